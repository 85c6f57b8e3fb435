#!/bin/sh
# turns.sh [OPTION…] BUILD [ROW…]: what slices that use one GPU at the same time get of it, on a GPU that nobody else uses
# (or simulated): shares of the GPU's time, and how long a server's requests take beside a busy neighbour. It prints figures,
# and judges none. --help has the options.
#
# A row of shares is two or four programs (bench/shares.c) in slices of their own that always have work queued, with kernels of
# one length. What each gets is its work per second, in percent of what the same program gets bare. A row of a server is
# bench/serve.c in a slice of 30 that wants 15 %, beside such a program in a slice of 60. Each row is run with turns, and with
# --without also without them. The table takes less than 4 minutes.
set -eu

usage() {
    cat <<'TEXT'
usage: tests/gpu/turns.sh [OPTION...] BUILD [ROW...]
  --sim            over the simulated driver
  --seconds S      of each run (2)
  --kernels "US.." lengths of kernels (50 200 1000 5000 20000)
  --without        each row without turns, too
  --processes N    of each slice in rows of shares (1), each with such a program
  --in-flight N    kernels that each program of those rows has queued (8)
ROW is 30+60, 30+30, 50+50, 4x20, 4x25, 25+75, 30+free, elastic, server or unlike; all of them by default.
TEXT
}

simulated=no seconds=2 kernels='50 200 1000 5000 20000' modes='turns' processes=1 in_flight=8
while [ $# -gt 0 ]; do
    case $1 in
    --sim) simulated=yes ;;
    --seconds) seconds=$2; shift ;;
    --kernels) kernels=$2; shift ;;
    --without) modes='turns without' ;;
    --processes) processes=$2; shift ;;
    --in-flight) in_flight=$2; shift ;;
    --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || { usage >&2; exit 2; }
. "$(dirname "$0")/lib.sh"
shift
rows=${*:-30+60 30+30 50+50 4x20 4x25 25+75 30+free elastic server unlike}
unset LD_PRELOAD VGPU_POLICY CUDA_DEVICE_SM_LIMIT CUDA_DEVICE_MEMORY_LIMIT GPU_CORE_UTILIZATION_POLICY
mkdir "$scratch/turns"
calibrated=$("$build/bench/shares" --calibrate | sed -n 's/^iters_per_us=/--iters-per-us=/p')
began=$(date +%s)

wanted() {
    case " $rows " in *" $1 "*) return 0 ;; esac
    return 1
}

# in_slice NAME CORES COMMAND…: CORES is a percentage, or two, or `free` for a slice without a quota.
in_slice() {
    name=$1 cores=$2
    shift 2
    case $cores in free) limit='' ;; *) limit="--cores $cores" ;; esac
    # shellcheck disable=SC2086 # an option and its value, or nothing
    "$build/vgpu" run --name "$name" --memory 4G $limit --gpus 0 -- "$@"
}

with_turns() {
    case $1 in turns) export VGPU_TURNS="$scratch/turns" ;; *) export VGPU_TURNS=/nonexistent ;; esac
}

bare_share() {
    [ -s "$scratch/bare.$1" ] ||
        "$build/bench/shares" "$calibrated" --seconds="$seconds" --kernel="$1" >"$scratch/bare.$1"
    sed -n 's/^share=\([0-9.]*\).*/\1/p' "$scratch/bare.$1"
}

# shares ROW KERNELS CORES…: KERNELS is one length, or one for each slice with commas.
shares() {
    row=$1 lengths=$2
    shift 2
    for length in $(echo "$lengths" | tr , ' '); do bare_share "$length" >/dev/null; done
    for mode in $modes; do
        with_turns "$mode"
        begin=$(($(date +%s) + 2 + processes / 2)) i=0 # eight programs at once take some 3 s until they are ready
        for cores; do
            i=$((i + 1))
            length=$(echo "$lengths" | cut -d, -f$i)
            for process in $(seq "$processes"); do
                in_slice "slice$i" "$cores" "$build/bench/shares" "$calibrated" --seconds="$seconds" --warm=0.5 \
                    --begin="$begin" --in-flight="$in_flight" --kernel="${length:-$lengths}" \
                    >"$scratch/out.$i.$process" 2>&1 &
            done
        done
        wait
        printf '%-8s %-12s %-8s' "$row" "$lengths us" "$mode"
        i=0 sum=0
        for cores; do
            i=$((i + 1))
            length=$(echo "$lengths" | cut -d, -f$i)
            got=$(sed -n 's/.*work=\([0-9.]*\).*/\1/p' "$scratch/out.$i".*)
            [ "$(echo "$got" | wc -w)" -eq "$processes" ] || { echo; cat "$scratch/out.$i".*; return; }
            got=$(echo "$got" | awk -v bare="$(bare_share "${length:-$lengths}")" \
                '{ got += $1 } END { printf "%.1f", 100 * got / bare }')
            sum=$(awk "BEGIN { printf \"%.1f\", $sum + $got }")
            printf ' %5s' "$got"
        done
        printf '   together %5s\n' "$sum"
    done
}

# server KERNEL: beside a busy slice with such kernels.
server() {
    for mode in $modes; do
        with_turns "$mode"
        begin=$(($(date +%s) + 2))
        in_slice server 30 "$build/bench/serve" "$calibrated" --seconds="$seconds" --warm=0.5 --begin="$begin" \
            >"$scratch/out.1" 2>&1 &
        in_slice busy 60 "$build/bench/shares" "$calibrated" --seconds="$seconds" --warm=0.5 --begin="$begin" \
            --kernel="$1" >"$scratch/out.2" 2>&1 &
        wait
        printf '%-8s %-12s %-8s %s; the neighbour %s\n' server "$1 us" "$mode" "$(cat "$scratch/out.1")" \
            "$(sed -n 's/ windows=.*//p' "$scratch/out.2")"
    done
}

for kernel in $kernels; do
    if wanted 30+60; then shares 30+60 "$kernel" 30 60; fi
    if wanted 30+30; then shares 30+30 "$kernel" 30 30; fi
    if wanted 50+50; then shares 50+50 "$kernel" 50 50; fi
    if wanted 25+75; then shares 25+75 "$kernel" 25 75; fi
    if wanted 4x20; then shares 4x20 "$kernel" 20 20 20 20; fi
    if wanted 4x25; then shares 4x25 "$kernel" 25 25 25 25; fi
    if wanted 30+free; then shares 30+free "$kernel" 30 free; fi
    if wanted elastic; then
        shares 30-100 "$kernel" 30-100
        shares 30-60 "$kernel" 30-60
        shares elastic "$kernel" 30-100 70
        shares elastic "$kernel" 30-100 40
        shares elastic "$kernel" 30-100 free
        shares elastic "$kernel" 30-100 70-100
        shares elastic "$kernel" 30-100 30-100
        shares elastic "$kernel" 30-60 20
    fi
done
if wanted unlike; then
    shares 30+60 50,20000 30 60
    shares 30+60 20000,50 30 60
fi
if wanted server; then
    printf '%-8s %-12s %-8s %s\n' server alone bare \
        "$("$build/bench/serve" "$calibrated" --seconds="$seconds")"
    for kernel in $kernels; do server "$kernel"; done
fi
echo "turns.sh: $(($(date +%s) - began)) s"
