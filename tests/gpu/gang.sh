#!/bin/sh
# gang.sh [OPTION…] BUILD [KIND…]: jobs on all GPUs, two or more (gang.py), bare and in a slice, while nobody else uses them: what
# each gets of bare's steps, and for which part of the time each GPU was busy as NVML says, spinning included. It is not a
# part of `make gpu-check`, and prints figures only: a job at 50 % is to have at least 0.47 of bare, at 30 and 60 at least
# 0.28 (the policy's scarcer device counts), at 80 at least 0.77.
set -eu

usage() {
    cat <<'TEXT'
usage: tests/gpu/gang.sh [OPTION...] BUILD [KIND...]
  --seconds S       of each run (6)
  --turns N         bare and each quota N times, one after the other (1); then the median part of bare
  --quotas "P..."   default "30 50 80"; a pair P:Q gives the GPUs unlike quotas in turn; none: in a slice without limits
  --pin             eight processors for each rank: its host's speed then varies less from run to run
  --apart           a slice for each rank, joined by a name
  --beside "P:Q.."  two jobs at once, at P and Q percent, that take turns; and the same without turns
  --next-to "US.."  a job at 30, on whose first GPU a slice of 60 always has kernels of that length queued; likewise
  --sweep "PHASE.." one run, through phases of so many seconds each: a quota, none, or pause:MS (gang.py); with
                    VGPU_TRACE set, the last decisions of each phase are in $GANG_TRACES/KIND.PHASE
KIND is ddp, tp, graph, pipeline, fsdp, single or late.
TEXT
}

limit=90 seconds=6 turns=1 quotas='30 50 80' apart=no beside='' next_to='' pin=no sweep=
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2; shift ;;
    --turns) turns=$2; shift ;;
    --quotas) quotas=$2; shift ;;
    --apart) apart=yes ;;
    --pin) pin=yes ;;
    --beside) beside=$2; shift ;;
    --next-to) next_to=$2; shift ;;
    --sweep) sweep=$2; shift ;;
    --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) break ;;
    esac
    shift
done
build=$(cd "${1:-build}" && pwd)
[ $# -eq 0 ] || shift
here=$(cd "$(dirname "$0")" && pwd)
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
if [ "$gpus" -lt 2 ]; then
    echo "gang.sh: skipped: there are not two GPUs"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export VGPU_STATE="$scratch/state" VGPU_LIBRARY="$build/libvgpu.so"
# Multicast is NCCL's NVLS.
export NCCL_NVLS_ENABLE=0 MASTER_ADDR=127.0.0.1

pinned=0 # the first processor of a job

# job PORT OUTPUT KIND COMMAND…: starts all ranks by the command, with %r in it for the rank; their pids are in $ranks.
job() {
    port=$1 output=$2 kind=$3
    shift 3
    world=$gpus
    [ "$kind" != single ] || world=1
    rank=0
    ranks=
    while [ "$rank" -lt "$world" ]; do
        command=$(echo "$*" | sed "s/%r/$rank/g")
        [ "$pin" = no ] || command="taskset -c $((pinned + 8 * rank))-$((pinned + 8 * rank + 7)) $command"
        # shellcheck disable=SC2086 # words
        MASTER_PORT=$port RANK=$rank WORLD_SIZE=$world timeout -s ABRT "$limit" $command python3 -X faulthandler "$here/gang.py" "$kind" "$seconds" >"$output.out.$rank" 2>"$output.err.$rank" &
        ranks="$ranks $!"
        rank=$((rank + 1))
    done
}

rate() {
    sed -n 's/^rank 0 .*rate \([0-9.]*\) .*/\1/p' "$1.out.0"
}

# How long four steps took, in ms: median or slowest.
four() {
    sed -n "s/^rank 0 .*$1 four \([0-9.]*\) .*/\1/p" "$2.out.0"
}

# The GPUs' busy time in the run's last five seconds but one, as NVML says.
watch_gpus() {
    while sleep 0.5; do
        nvidia-smi --query-gpu=index,utilization.gpu --format=csv,noheader,nounits
    done >"$scratch/busy"
}

busy() {
    awk -F', ' -v runs="$seconds" '
        { figure[$1, n[$1]++] = $2 }
        END {
            for (gpu = 0; gpu in n; gpu++) {
                last = n[gpu] - 3; sum = count = 0
                for (i = last - 2 * (runs - 2); i < last; i++)
                    if (i >= 0) { sum += figure[gpu, i]; count++ }
                printf "%s%.0f", gpu ? " " : "", count ? sum / count : -1
            }
        }' "$scratch/busy"
}

port=29600
# run OUTPUT KIND COMMAND…
run() {
    port=$((port + 1))
    watch_gpus &
    watcher=$!
    job "$port" "$@"
    ended=
    for pid in $ranks; do
        status=0
        wait "$pid" || status=$?
        ended="$ended $status"
    done
    kill "$watcher" 2>/dev/null || :
    wait "$watcher" 2>/dev/null || :
    [ -n "$(rate "$1")" ] || { echo "gang.sh: $2 failed, the ranks' exit statuses are$ended:"; tail -n 5 "$1".out.* "$1".err.*; }
}

policy() {
    mkdir -p "$scratch/policy"
    nvidia-smi --query-gpu=index,uuid --format=csv,noheader | while IFS=', ' read -r index uuid; do
        printf 'memory = unlimited\ncores = %s\n' "$(echo "$1" | cut -d: -f$((index % 2 + 1)))" >"$scratch/policy/$uuid"
    done
    printf 'region = %s\nname = gang\n' "$scratch/region" >"$scratch/policy/slice"
}

say() {
    awk -v kind="$1" -v quota="$2" -v limited="$(rate "$3")" -v bare="$4" -v middle="$(four median "$3")" \
        -v slow="$(four slowest "$3")" -v busy="$5" -v parts="$scratch/parts" 'BEGIN {
        if (limited == "" || bare == "") { print kind, quota ": failed"; exit }
        printf "%-9s %-6s %8.2f of %8.2f steps a second: %.3f; four steps %.2f ms, at most %d; busy %s\n", kind, quota, limited, bare, limited / bare, middle, slow, busy
        print kind, quota, limited / bare >>parts
    }'
}

# in_slice NAME QUOTA: the command for a job's ranks; with --apart, for each rank a slice of its own.
in_slice() {
    if [ "$apart" = yes ]; then
        echo "$build/vgpu run --name $1-%r --gang $1 --cores $2 --"
    else
        echo "$build/vgpu run --name $1 --cores $2 --"
    fi
}

# two_jobs MODE QUOTA QUOTA: at once.
two_jobs() {
    job 29800 "$scratch/one" "$kind" "$(in_slice one "$2")"
    pinned=$((8 * gpus))
    job 29900 "$scratch/other" "$kind" "$(in_slice other "$3")"
    pinned=0
    wait
    say "$kind" "$2 $1" "$scratch/one" "$bare" -
    say "$kind" "$3 $1" "$scratch/other" "$bare" -
}

# next_to MODE US: a job, and another slice's kernels. The job starts within 15 s, and then runs for $seconds.
next_to() {
    job 29800 "$scratch/one" "$kind" "$(in_slice one 30)"
    CUDA_VISIBLE_DEVICES=0 "$build/vgpu" run --name other --memory 4G --cores 60 --gpus 0 -- "$build/bench/shares" "$calibrated" \
        --seconds=$((seconds + 15)) --kernel="$2" --live >"$scratch/other" 2>&1 &
    other=$!
    # shellcheck disable=SC2086 # words
    wait $ranks
    kill "$other" 2>/dev/null || :
    wait "$other" 2>/dev/null || :
    say "$kind" "30 $1" "$scratch/one" "$bare" -
    echo "    next to kernels of $2 us at 60, which got in each second:" "$(tr '\n' ' ' <"$scratch/other")"
}

with_turns() {
    case $1 in turns) unset VGPU_TURNS ;; *) export VGPU_TURNS=/nonexistent ;; esac
}

calibrated=''
[ -z "$next_to" ] ||
    calibrated=$(CUDA_VISIBLE_DEVICES=0 "$build/bench/shares" --calibrate | sed -n 's/^iters_per_us=/--iters-per-us=/p')

[ $# -gt 0 ] || set -- ddp tp graph pipeline fsdp single late
# turn KIND
turn() {
    kind=$1
    run "$scratch/bare" "$kind" env
    bare=$(rate "$scratch/bare")
    say "$kind" bare "$scratch/bare" "$bare" "$(busy)"
    for mode in turns without; do
        with_turns $mode
        for length in $next_to; do next_to "$mode" "$length"; done
        for pair in $beside; do two_jobs "$mode" "${pair%:*}" "${pair#*:}"; done
    done
    unset VGPU_TURNS
    [ -z "$beside$next_to" ] || return 0
    for quota in $quotas; do
        case $quota in
        none) run "$scratch/limited" "$kind" "$build/vgpu run --name job-none --unlimited --" ;;
        *:*)
            policy "$quota"
            run "$scratch/limited" "$kind" "env VGPU_POLICY=$scratch/policy LD_PRELOAD=$build/libvgpu.so"
            ;;
        *) run "$scratch/limited" "$kind" "$(in_slice "job-$quota" "$quota")" ;;
        esac
        say "$kind" "$quota" "$scratch/limited" "$bare" "$(busy)"
    done
}

# sweep KIND
sweep() {
    kind=$1
    port=$((port + 1))
    limit=$((40 + $(echo "$sweep" | wc -w) * seconds))
    export GANG_SWEEP="$sweep" GANG_VGPU="$build/vgpu" GANG_SLICE="sweep-$kind" GANG_LEDGER="$build/tests/gpu/ledger"
    job "$port" "$scratch/sweep" "$kind" "$build/vgpu run --name sweep-$kind --unlimited --"
    # Without rank 0, the others wait for ever.
    # shellcheck disable=SC2086 # words
    set -- $ranks
    wait "$1" || kill "$@" 2>/dev/null || :
    wait
    grep "^$kind" "$scratch/sweep.out.0" || tail -n 5 "$scratch"/sweep.out.* "$scratch"/sweep.err.*
}

# The median part of bare for each kind and quota.
medians() {
    sort -k1,1 -k2,2 -k3,3n "$scratch/parts" | awk '
        function flush() { if (n) printf "%-9s %-6s median %.3f of bare, %d turns\n", kind, quota, part[int((n + 1) / 2)], n; n = 0 }
        $1 != kind || $2 != quota { flush(); kind = $1; quota = $2 }
        { part[++n] = $3 }
        END { flush() }'
}

for kind in "$@"; do
    if [ -n "$sweep" ]; then
        sweep "$kind"
        continue
    fi
    : >"$scratch/parts"
    turn=0
    while [ "$turn" -lt "$turns" ]; do
        turn "$kind"
        turn=$((turn + 1))
    done
    [ "$turns" -eq 1 ] || medians
done
