#!/bin/sh
# make gpu-check, or cores.sh [OPTION…] BUILD [ROW…]: whether a compute quota holds, on a real GPU that nobody else
# uses: a row for each kind of work and quota. --help has the options.
#
# Each row is of two runs of one program (bench/shares.c, shares.py), bare and under the quota; where kernels are short,
# of three, bare before and after. Delivered is what the limited run got of the bare one, in percent: where the GPU's
# time is what the program lacks, that is the quota. Of kernels of 20 us it is the GPU's time itself, by its own clock,
# as a launch of them takes 22.9 to 24.9 us of it from one run to the next; what was done in that time is shown beside it, and
# which part of all its time it was, as a program that is woken late leaves some of it to nobody.
# Next to it is by how much the worst second was off. Bounds, in points: 1 for a run (1.5 for kernels of 20 us, and for
# the sum of processes that share a slice), 3 for each second of it. Beside the work of other slices 3 less are allowed,
# and no more than 1 more. Who asks for less than the quota gets 98 % of what it gets bare. PyTorch and JAX
# are not busy all the time, and the card's clock goes up when it has less to do: there, 8. A launch may take 1.1 of what
# it takes bare or without a quota, and with a quota of 99 programs take 1.02 of what they take without one.
#
# Runs are of 3 seconds, but where a row needs more: the whole table takes some 14 minutes.
set -eu

usage() {
    cat <<'TEXT'
usage: tests/gpu/cores.sh [OPTION...] BUILD [ROW...]
  --sim            over the simulated driver, without frameworks
  --seconds S      of each run (3)
  --quotas "P..."  instead of each row's own
  --list           the rows' names
ROW is a name, or a pattern such as '*ms' or 'grid-*'.
TEXT
}

simulated=no seconds=3 quotas='' list=no
while [ $# -gt 0 ]; do
    case $1 in
    --sim) simulated=yes ;;
    --seconds) seconds=$2; shift ;;
    --quotas) quotas=$2; shift ;;
    --list) list=yes simulated=yes ;; # which needs no GPU
    --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || { usage >&2; exit 2; }
. "$(dirname "$0")/lib.sh"
. "$here/../../bench/median.sh"
shift
rows=$*
shares=$build/bench/shares
began=$(date +%s)
unset LD_PRELOAD VGPU_POLICY CUDA_DEVICE_SM_LIMIT CUDA_DEVICE_MEMORY_LIMIT GPU_CORE_UTILIZATION_POLICY

# wanted ROW
wanted() {
    if [ "$list" = yes ]; then
        echo "$1"
        return 1
    fi
    [ -n "$rows" ] || return 0
    set -f
    for pattern in $rows; do
        # shellcheck disable=SC2254 # a pattern it is
        case $1 in $pattern) set +f; return 0 ;; esac
    done
    set +f
    return 1
}

# -- runs ---------------------------------------------------------------------------------------------------------

slices=0
new_slice() {
    slices=$((slices + 1))
    region="$scratch/region.$slices"
}

# limited CORES COMMAND…: as HAMi sets it, in the slice that new_slice made.
limited() {
    cores=$1
    shift
    env CUDA_DEVICE_SM_LIMIT="$cores" CUDA_DEVICE_MEMORY_SHARED_CACHE="$region" LD_PRELOAD="$build/libvgpu.so" "$@"
}

# to FILE COMMAND…: its results; where it fails, there are none, and it is said why.
to() {
    file=$1
    shift
    if ! "$@" >"$file" 2>"$file.err"; then
        echo "  that failed: $*"
        sed 's/^/    /' "$file.err"
        : >"$file"
    fi
}

# iters GRID: what shares is told, measured once for each.
iters() {
    if [ ! -s "$scratch/iters.$1" ]; then
        timeout 60 "$shares" --calibrate --grid="$1" >"$scratch/iters.$1" || { echo "cores: shares cannot run" >&2; exit 1; }
    fi
    sed -n 's/^iters_per_us=/--iters-per-us=/p' "$scratch/iters.$1"
}

# share OPTION…: the program, with what all runs have in common.
share() {
    grid=132
    for option; do case $option in --grid=*) grid=${option#*=} ;; esac; done
    timeout 120 "$shares" "$(iters "$grid")" --seconds="$seconds" "$@"
}

# The same in the slice.
limited_share() {
    cores=$1
    shift
    grid=132
    for option; do case $option in --grid=*) grid=${option#*=} ;; esac; done
    calibrated=$(iters "$grid")
    limited "$cores" timeout 120 "$shares" "$calibrated" --seconds="$seconds" "$@"
}

# together COUNT COMMAND…: so many at once, which begin at the same time.
together() {
    count=$1 i=0 pids='' bad=0
    shift
    iters 132 >/dev/null # not by all of them at once
    begin=$(($(date +%s) + 3))
    while [ "$i" -lt "$count" ]; do
        "$@" --begin="$begin" >"$scratch/one.$i" &
        pids="$pids $!" i=$((i + 1))
    done
    for pid in $pids; do wait "$pid" || bad=1; done
    i=0
    while [ "$i" -lt "$count" ]; do
        cat "$scratch/one.$i"
        i=$((i + 1))
    done
    return $bad
}

# even FILE: whether no second of the run's was a twentieth below another; else it is said.
even() {
    sed -n 's/.*windows=\([^ ]*\).*/\1/p' "$1" | tr , '\n' | awk '
    NR == 1 || $1 < least { least = $1 }
    $1 > most { most = $1 }
    END {
        if (least < 0.95 * most) {
            printf "  a bare run was uneven, %.1f to %.1f %% of the GPU (of three tries)\n", 100 * least, 100 * most
            exit 1
        }
    }'
}

# bare_to FILE OPTION…: a run that others are compared with. The machine may do something else for a moment, and what is
# delivered would look like more than it is: three tries.
bare_to() {
    file=$1 tries=0
    shift
    while [ "$tries" -lt 3 ]; do
        to "$file" share "$@"
        ! even "$file" || return 0
        tries=$((tries + 1))
    done
}

# bare OPTION…: leaves $bare with the results, from an earlier run where there was one.
bare() {
    bare="$scratch/bare.$(printf '%s ' "$@" | tr -c 'a-z0-9' _)"
    [ -s "$bare" ] || bare_to "$bare" "$@"
}

# bare_again OPTION…: another run, right behind one with a quota: with the one before that it is two.
bare_again() {
    bare_to "$scratch/again" "$@"
    tail -n 1 "$bare" | cat - "$scratch/again" >"$scratch/both"
    mv "$scratch/both" "$bare"
    [ -s "$scratch/again" ] || : >"$bare"
}

# -- rows ---------------------------------------------------------------------------------------------------------

# judge NAME QUOTA LEAST MOST SECOND: $bare, of one run or of some whose mean counts, and $scratch/limited, which has a line
# for each process; they are shown with what fails. SECOND: by how much one may be off; - where seconds mean nothing, no
# where they are only shown.
judge() {
    awk -v name="$1" -v quota="$2" -v least="$3" -v most="$4" -v second="$5" -v by_second="${6:-}" \
        -v expected="${limited_runs:-1}" '
    function value(key,    i) {
        for (i = 1; i <= NF; i++) if (index($i, key "=") == 1) return substr($i, length(key) + 2)
        return ""
    }
    {
        where = FILENAME == ARGV[1] ? "bare" : "limited"
        runs[where]++; share[where] += value("share"); work[where] += value("work"); cpu[where] += value("cpu")
        n = split(value("windows"), list, ",")
        for (i = 1; i <= n; i++) window[where, i] += list[i]
        seconds = n
    }
    END {
        if (runs["bare"] < 1 || runs["limited"] != expected || share["bare"] <= 0) {
            printf "%-24s %5s %10s %8s %6s %6s  FAIL (did not run)\n", name, quota, "-", "-", "-", "-"
            exit 1
        }
        share["bare"] /= runs["bare"]
        work["bare"] /= runs["bare"]
        cpu["bare"] /= runs["bare"]
        for (i = 1; i <= seconds; i++) window["bare", i] /= runs["bare"]
        delivered = 100 * share["limited"] / share["bare"]
        for (i = 1; i <= seconds; i++) {
            of = by_second == "" ? share["bare"] : window["bare", i]
            off = (of > 0 ? 100 * window["limited", i] / of : 0) - quota
            if (off * off > worst * worst) worst = off
        }
        bad = ""
        if (delivered < least - 0.05) bad = sprintf("FAIL (below %g)", least)
        if (delivered > most + 0.05) bad = sprintf("FAIL (above %g)", most)
        if (bad == "" && second + 0 > 0 && worst * worst > second * second)
            bad = sprintf("FAIL (a second is off by more than %g)", second)
        if (work["bare"] && work["limited"] != share["limited"])
            by_work = sprintf(" (by what was done %.1f; of the GPU %.1f, bare %.1f)",
                100 * work["limited"] / work["bare"], 100 * share["limited"], 100 * share["bare"])
        printf "%-24s %5s %10.1f %8s %6.1f %6.1f  %s%s\n", name, quota, delivered,
            second == "-" ? "-" : sprintf("%+.1f", worst), cpu["bare"], cpu["limited"], bad == "" ? "ok" : bad,
            by_work
        exit bad != ""
    }' "$bare" "$scratch/limited" || {
        failures=$((failures + 1))
        sed 's/^/    bare: /' "$bare"
        sed 's/^/    under the quota: /' "$scratch/limited"
    }
}

# around NAME QUOTA POINTS SECOND
around() {
    judge "$1" "$2" "$(echo "$2 $3" | awk '{ print $1 - $2 }')" "$(echo "$2 $3" | awk '{ print $1 + $2 }')" "$4" "${5:-}"
}

# under_quotas NAME POINTS QUOTAS OPTION…: under each quota, beside $bare. What a launch takes of the device bare varied by
# 0.7 us within a minute. Of short kernels that is a hundredth or more: there, bare is measured right before and right
# after.
under_quotas() {
    name=$1 points=$2 of_row=$3
    shift 3
    for percent in ${quotas:-$of_row}; do
        new_slice
        to "$scratch/limited" limited_share "$percent" "$@"
        case $name in 20us | 50us) bare_again "$@" ;; esac
        case $name in change) each=yes ;; *) each='' ;; esac
        around "$name" "$percent" "$points" 3 $each
    done
}

# row NAME POINTS QUOTAS OPTION…: the same program bare.
row() {
    wanted "$1" || return 0
    name=$1 points=$2 of_row=$3
    shift 3
    bare "$@"
    under_quotas "$name" "$points" "$of_row" "$@"
}

# round HOW: a wait of this kind behind each round of kernels. All are compared with who waits for the stream: one that
# sleeps until an event has happened is woken late, so that it gets 91 to 95 % of the GPU bare, and nearly all that it
# asks for under a quota.
round() {
    wanted "round-$1" || return 0
    kernels=--kernel=20,20,20,20,20,20,20,20,20,20,3800
    bare "$kernels" --round=stream
    under_quotas "round-$1" 1.5 '30 80' "$kernels" --round="$1"
}

# A queue that is as long as the driver lets it be: bare, the driver itself loses a hundredth there.
unbounded() {
    wanted unbounded || return 0
    bare --kernel=200
    under_quotas unbounded 1 '30 80' --kernel=200 --in-flight=0
}

# processes COUNT[-…] LENGTH: processes of one slice: their sum, of what one alone gets.
processes() {
    name=processes-$1 count=${1%%-*}
    wanted "$name" || return 0
    bare --kernel="$2"
    for percent in ${quotas:-30 80}; do
        new_slice
        to "$scratch/limited" together "$count" limited_share "$percent" --kernel="$2"
        limited_runs=$count
        around "$name" "$percent" 1.5 3
        limited_runs=1
    done
}

# One that is held beside one that is not, of another slice.
neighbour() {
    name=neighbour-$1
    wanted "$name" || return 0
    bare --kernel="$2"
    for percent in ${quotas:-30}; do
        timeout 120 "$shares" "$(iters 132)" --kernel="$2" --seconds=100 >/dev/null 2>&1 &
        beside=$!
        sleep 1
        new_slice
        to "$scratch/limited" limited_share "$percent" --kernel="$2"
        kill "$beside" 2>/dev/null || :
        wait "$beside" 2>/dev/null || :
        judge "$name" "$percent" $((percent - 3)) $((percent + 1)) no
    done
}

# idle COUNT[-…] LENGTHS: so many processes of one slice, whose one function takes now one time and now another, beside a process
# that holds gigabytes outside the slice and does nothing.
idle() {
    name=idle-$1 count=${1%%-*}
    wanted "$name" || return 0
    bare --kernel="$2" --alike
    mkfifo "$scratch/idle"
    "$build/tests/gpu/take" alloc 2048 <"$scratch/idle" >/dev/null 2>&1 &
    beside=$!
    exec 3>"$scratch/idle"
    sleep 2
    for percent in ${quotas:-30}; do
        new_slice
        to "$scratch/limited" together "$count" limited_share "$percent" --kernel="$2" --alike
        limited_runs=$count
        around "$name" "$percent" 1.5 3
        limited_runs=1
    done
    kill "$beside" 2>/dev/null || :
    exec 3>&-
    wait "$beside" 2>/dev/null || :
    rm "$scratch/idle"
}

# pair NAME LESS MORE COMMAND ARGUMENT…: two of COMMAND CORES ARGUMENT… at once, each in a slice of its own.
pair() {
    name=$1 less=$2 more=$3 command=$4 pids=''
    shift 4
    for percent in 30 60; do
        new_slice
        to "$scratch/tenant.$percent" "$command" "$percent" "$@" &
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid"; done
    for percent in 30 60; do
        cp "$scratch/tenant.$percent" "$scratch/limited"
        judge "$name" "$percent" $((percent - less)) $((percent + more)) no
    done
}

tenants() {
    wanted "tenants-$1" || return 0
    bare --kernel="$2"
    pair "tenants-$1" 3 1 limited_share --kernel="$2" --begin=$(($(date +%s) + 3))
}

tenants_train() {
    wanted tenants-train && has torch || return 0
    bare="$scratch/bare.train"
    to "$bare" timeout 300 python3 "$here/shares.py" "$seconds" train
    pair tenants-train 8 8 limited timeout 300 python3 "$here/shares.py" --begin=$(($(date +%s) + 15)) "$seconds" train
}

host_bound() {
    wanted host-bound || return 0
    bare --kernel=1000 --use=20
    new_slice
    to "$scratch/limited" limited_share 50 --kernel=1000 --use=20
    judge host-bound 50 98 102 -
}

# By the command instead of HAMi's variables.
vgpu_run() {
    wanted vgpu-run || return 0
    if ! "$build/vgpu" run --help | grep -q -e --cores; then
        echo "vgpu-run: skipped, it has no --cores"
        return 0
    fi
    bare --kernel=1000
    calibrated=$(iters 132)
    for percent in ${quotas:-30 80}; do
        to "$scratch/limited" timeout 120 "$build/vgpu" run --cores "$percent" -- \
            "$shares" "$calibrated" --seconds="$seconds" --kernel=1000
        around vgpu-run "$percent" 1 3
    done
}

# has MODULE
has() {
    [ "$simulated" = no ] || return 1
    if ! python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)" 2>/dev/null; then
        echo "$1: skipped, it is not installed"
        return 1
    fi
}

# framework MODULE KIND…
framework() {
    module=$1
    shift
    kinds=''
    for kind; do if wanted "$module-$kind"; then kinds="$kinds $kind"; fi; done
    [ -n "$kinds" ] && has "$module" || return 0
    # shellcheck disable=SC2086 # words they are
    to "$scratch/bare.$module" timeout 300 python3 "$here/shares.py" "$seconds" $kinds
    for percent in ${quotas:-30 70}; do
        new_slice
        # shellcheck disable=SC2086
        to "$scratch/limited.$module" limited "$percent" timeout 300 python3 "$here/shares.py" "$seconds" $kinds
        for kind in $kinds; do
            bare="$scratch/bare.one"
            grep "^name=$kind " "$scratch/bare.$module" >"$bare" || :
            grep "^name=$kind " "$scratch/limited.$module" >"$scratch/limited" || :
            around "$module-$kind" "$percent" 8 no
        done
    done
}

# at PERCENT NAME READY LEAST COMMAND ARGUMENT…: what a quota costs that is no less than the program wants. It comes and
# goes each second, and what is got under it is compared with what is got right before and after: processors do not go
# at one speed for a minute. Of all these the median counts. Beside it is what was got without it after a while, of what
# it was in the first second, before there was one: nothing of it should stay. A second of it may take 8 ms more than its
# share, as the bucket is full at first and in debt at last: of shorter turns that would be more. Where the processor is
# what the program lacks, its seconds differ by a third from each other on some machines, bare, too: with the median goes
# the range in which it is with 98 % certainty (of ten, the second to the ninth), and a row fails where LEAST, percent,
# is beyond that. READY: seconds until it can begin.
at() {
    percent=$1 name=at-$1-$2 ready=$3 least=$4
    shift 4
    begin=$(($(date +%s) + ready)) i=0
    "$build/vgpu" run --name at --cores "$percent" -- "$@" --begin="$begin" >"$scratch/at" 2>"$scratch/at.err" &
    pid=$!
    while [ "$i" -lt 21 ]; do
        sleep "$(date +%s.%N | awk -v at=$((begin + i)) '{ print (at > $1 ? at - $1 : 0) }')"
        "$build/vgpu" set at --cores "$([ $((i % 2)) = 0 ] && echo none || echo "$percent")" >/dev/null || break
        i=$((i + 1))
    done
    wait "$pid" || cat "$scratch/at.err"
    sed -n 's/.*windows=\([^ ]*\).*/\1/p' "$scratch/at" | tr , '\n' | awk -v name="$name" -v quota="$percent" -v bound="$least" "$median"'
    NR == 1 { first = before = $1 }
    NR % 2 && NR > 1 { ratio[++n] = 100 * 2 * under / ($1 + before); without[n] = before = $1 }
    { under = $1 }
    END {
        part = n ? median(ratio, n) : 0
        least = ratio[2] # which median has sorted
        most = ratio[n - 1]
        bad = n < 10 || most < bound
        printf "%-24s %5s %10.1f %8s %6s %6s  %s", name, quota, part, "-", "-", "-",
            bad ? "FAIL (below " bound ")" : part < bound ? "cannot be told" : "ok"
        if (n == 10 && first)
            printf " (%.1f to %.1f; and %.1f of before, when it was lifted)", least, most, 100 * median(without, n) / first
        print ""
        exit bad
    }' || failures=$((failures + 1))
}

costs_of_enough() {
    # The simulated driver takes less for a launch than the quota does.
    if { [ "$simulated" = no ] || [ "$list" = yes ]; } && wanted at-99-empty; then at 99 empty 3 90.9 "$build/bench/calls" each-second; fi
    if wanted at-99-launches; then
        at 99 launches 3 98 "$shares" "$(iters 132)" --seconds=21 --warm=0 --kernel=2 --in-flight=256
    fi
    for kind in inference inference-small train decode; do
        if wanted "at-99-$kind" && has torch; then at 99 "$kind" 20 98 python3 "$here/shares.py" 21 "$kind"; fi
    done
    # Of the GPU it wants half to two thirds, as fast as the processor is.
    if wanted at-80-decode && has torch; then at 80 decode 20 98 python3 "$here/shares.py" 21 decode; fi
}

# Launches of nothing: some runs of each, in turn, and of these the lowest, as processors change their speed; by a third
# from one process to the next on some machines, so that what a quota of 99 % costs is told by at-99-empty on a GPU.
launch_cost() {
    wanted launch || return 0
    i=0
    while [ "$i" -lt 15 ]; do
        "$build/bench/calls" launch | sed 's/^/bare /'
        new_slice
        CUDA_DEVICE_MEMORY_LIMIT=8g limited 0 "$build/bench/calls" launch | sed 's/^/none /'
        new_slice
        CUDA_DEVICE_MEMORY_LIMIT=8g limited 99 "$build/bench/calls" launch | sed 's/^/99 /'
        i=$((i + 1))
    done >"$scratch/launches"
    # The simulated driver's launches cost next to nothing: there it is compared with what a real one would.
    awk -v simulated="$simulated" '
    function row(name,    ns, ratio, shown, bad) {
        ns = lowest[name]
        ratio = simulated == "yes" ? (2400 + ns - lowest["bare"]) / 2400 : ns / lowest["bare"]
        shown = name == "99" && simulated == "no"
        bad = !ns || (!shown && ratio > 1.1)
        failed += bad
        printf "%-24s %5s %7.0f ns %7.2fx                %s\n", "launch", name, ns, ratio,
            bad ? "FAIL (above 1.1)" : shown ? "-" : "ok"
    }
    $2 == "launch" && (!($1 in lowest) || $3 < lowest[$1]) { lowest[$1] = $3 }
    END { if (lowest["bare"]) { row("bare"); row("none"); row("99") } else failed = 1; exit failed > 0 }
    ' "$scratch/launches" || failures=$((failures + 1))
}

[ "$list" = yes ] ||
    printf '%-24s %5s %10s %8s %6s %6s\n' "what (runs of $seconds s)" quota delivered 'second' 'bare' 'CPU %'
row 20us 1.5 '10 30 50 80' --kernel=20 --in-flight=32 --by-time
row 50us 1 '10 30 50 80' --kernel=50
row 200us 1 '10 30 50 80' --kernel=200
row 1ms 1 '10 30 50 80' --kernel=1000
row 5ms 1 '10 30 50 80' --kernel=5000
row 20ms 1 '10 30 50 80' --kernel=20000
row grid-1 1 '30 80' --kernel=1000 --grid=1
row grid-1000 1 '30 80' --kernel=1000 --grid=1000
row streams-2 1 '30 80' --kernel=200 --streams=2
row streams-4 1 '30 80' --kernel=200 --streams=4
row threads-4 1 '30 80' --kernel=200 --threads=4
unbounded
row mix 1 '30 50 80' --kernel=50,5000
row mix-alike 1 '30 50 80' --kernel=50,5000 --alike
row mix-streams 1 '10 30 50' --kernel=20,1000 --alike --streams=2
for how in stream context event questions copy; do round "$how"; done
row graph 1 '30 80' --kernel=50 --graph
of_all=$seconds seconds=$(echo "$seconds" | awk '{ print $1 < 4 ? 4 : $1 }')
row change 1 '30 80' --kernel=200 --change
seconds=$of_all
processes 2 1000
processes 4 1000
processes 4-short 50
processes 4-long 5000
idle 1 20,1000
idle 1-long 50,5000
idle 2 20,1000
neighbour 200us 200
neighbour 1ms 1000
tenants 200us 200
tenants 1ms 1000
host_bound
vgpu_run
launch_cost
costs_of_enough
tenants_train
framework torch matmul train inference graph
framework jax jit
[ "$list" = no ] || exit 0
echo "$(($(date +%s) - began)) seconds"

conclude "cores"
