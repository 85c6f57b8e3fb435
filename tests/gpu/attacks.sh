#!/bin/sh
# make gpu-check, or attacks.sh [--sim] BUILD [CASE…]: attacks on a memory quota (attacks.c), each in a slice that must
# hold against it. The figures are of NVML outside the slice: what the device holds beyond what it held before. At the
# end, and at every moment, the device holds at most the quota and one granule (2 MiB) for each process. Where an attack
# loads modules, a moment may also have the modules that are refused, as their size is known only after the load. The
# device holds at least so much that the slice was not refused its own quota. --sim needs no GPU.
# Other users of the GPU make the figures meaningless: take an idle one. A case takes at most 8 GiB of it.
set -eu
if [ "${attacks_timed:-}" != yes ]; then
    attacks_timed=yes exec timeout 115 "$0" "$@"
fi
simulated=no
if [ "${1:-}" = --sim ]; then simulated=yes; shift; fi
. "$(dirname "$0")/lib.sh"
[ $# -eq 0 ] || shift
cases=" $* "
trap 'exit 1' TERM # of timeout
attacks=$build/tests/gpu/attacks
export CUDA_CACHE_DISABLE=1 VGPU_SIM_MODULE_MIB=4 # the driver compiles PTX at each load

used() {
    "$attacks" used
}

# alongside ROLE: starts a neighbour in no slice. It ends when descriptor 7 is closed.
alongside() {
    rm -f "$scratch/by"
    mkfifo "$scratch/by"
    "$attacks" "$1" <"$scratch/by" >"$scratch/said" &
    exec 7>"$scratch/by"
    tries=0
    until [ -s "$scratch/said" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { echo "attacks: the neighbour does not start"; exit 1; }
        sleep 0.1
    done
}

# attack CASE QUOTA LEAST OVER OVER_PEAK [NEIGHBOUR]: figures in MiB. LEAST is what the device must hold, and OVER what it
# may hold above the quota at the end; OVER_PEAK is the same for a moment. What the neighbour `lend` lends counts for the
# slice. The neighbour `churn` changes the device's memory all the time, so nothing is compared alongside it.
attack() {
    name=$1 quota=$2 least=$3 over=$4 over_peak=$5 neighbour=${6:-}
    case $cases in *" $name "* | '  ') ;; *) return 0 ;; esac
    [ -z "$neighbour" ] || alongside "$neighbour"
    baseline=$(used)
    rm -f "$scratch/watch"
    mkfifo "$scratch/watch"
    "$attacks" peak <"$scratch/watch" >"$scratch/peak" &
    watcher=$!
    exec 8>"$scratch/watch"
    fill "$name" 1 -- "$attacks" "$name" 8>&-
    [ "$neighbour" != lend ] || cat "$scratch/said" >&9
    wait_for "$scratch/out" '^\(done\|wrong\|skip\) ' 1
    sleep 0.3
    rest=$(($(used) - baseline))
    exec 8>&-
    wait "$watcher"
    peak=$(($(cat "$scratch/peak") - baseline))
    said=$(grep -m 1 '^\(done\|wrong\|skip\) ' "$scratch/out")
    lent=$([ "$neighbour" = lend ] && echo 3072 || echo 0)
    case $said in
    skip*) echo "  skip $name: ${said#skip }" ;;
    done*)
        echo "  ok   $name: ${said#done }"
        if [ "$neighbour" != churn ]; then
            check "$name: the device holds" $((rest + lent)) "$least" $((quota + over))
            check "$name: the device held at most" $((peak + lent)) "$least" $((quota + over_peak))
        fi
        ;;
    *)
        echo "  FAIL $name: ${said#wrong }"
        cat "$scratch/out"
        failures=$((failures + 1))
        ;;
    esac
    exec 7>&-
    release
}

echo "Ways past a memory quota:"
attack dup 2048 1900 2 2
attack ipc_granule 2048 1500 4 4
attack dma_buf 700 640 2 2
# While the other thread's block of 256 MiB is under way, it can hide growth of that size (docs/design/memory.md). Of the
# simulated driver's calls, the first free is made slow.
if [ "$simulated" = yes ]; then
    export VGPU_SIM_PARK="cuMemFree_v2@1=$scratch/parked"
    for _ in 1 2 3; do sleep 4; rm -f "$scratch/parked"; done &
fi
attack long_call 2048 1900 258 300
unset VGPU_SIM_PARK
attack importer 5120 5000 2 36 lend
attack local 2048 2000 2 2
attack loads 4096 0 0 0 churn

conclude "attacks"
