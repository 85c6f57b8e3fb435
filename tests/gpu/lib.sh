#!/bin/sh
# What the scripts here share, to be sourced with the build's directory as $1: a scratch directory with
# slices of 8 GiB, what the device holds as nvidia-smi says outside, checks of figures, and programs in slices.
# With simulated=yes set, the scratch directory has a simulated GPU in it, and there is no nvidia-smi.
# shellcheck disable=SC2034 # the scripts use what is set here
set -eu
build=$(cd "${1:-build}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
simulated=${simulated:-no}
if [ "$simulated" = no ] && { ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; }; then
    echo "gpu-check: skipped: no NVIDIA GPU on this machine (nvidia-smi does not answer)"
    exit 77
fi
scratch=$(mktemp -d)
trap 'exec 9>&-; pkill -P $$ || :; wait; rm -rf "$scratch"' EXIT
export VGPU_STATE="$scratch/slices"
failures=0
quota=8192

used() {
    nvidia-smi --id=0 --query-gpu=memory.used --format=csv,noheader,nounits
}

# NVML's own figure for all processes on the GPU together.
counted() {
    nvidia-smi --id=0 --query-compute-apps=used_memory --format=csv,noheader,nounits |
        awk '{ sum += $1 } END { print sum + 0 }'
}

ledger() {
    "$build/tests/gpu/ledger" "$scratch/slices/$1/region"
}

# check WHAT VALUE LEAST MOST
check() {
    if [ "$2" -ge "$3" ] && [ "$2" -le "$4" ]; then
        printf '  ok   %-52s %6s MiB  (%s to %s)\n' "$1" "$2" "$3" "$4"
    else
        printf '  FAIL %-52s %6s MiB  (%s to %s)\n' "$1" "$2" "$3" "$4"
        failures=$((failures + 1))
    fi
}

# wait_for FILE PATTERN COUNT
wait_for() {
    tries=0
    until [ "$(grep -c "$2" "$1")" -ge "$3" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 400 ] || { echo "gpu-check: gave up waiting:"; cat "$1"; exit 1; }
        sleep 0.1
    done
}

# fill SLICE PROCESSES COMMAND…: runs that many in the slice, which has GPU 0; they keep what they took until release.
fill() {
    slice=$1 processes=$2
    shift 2
    rm -f "$scratch/hold" "$scratch/out"
    mkfifo "$scratch/hold"
    : >"$scratch/out"
    i=0
    while [ "$i" -lt "$processes" ]; do
        "$build/vgpu" run --name "$slice" --gpus 0 --memory "${quota}M" "$@" <"$scratch/hold" >>"$scratch/out" 2>&1 9>&- &
        if [ "$i" = 0 ]; then exec 9>"$scratch/hold"; sleep 0.05; fi
        i=$((i + 1))
    done
}

# Waits until no other process is on the GPU: its memory would be in the figures.
wait_for_idle_gpu() {
    tries=0
    until [ "$(counted)" = 0 ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { echo "gpu-check: other processes hold memory of the GPU:"; nvidia-smi; exit 1; }
        sleep 0.1
    done
}

# What is charged to a slice whose processes have ended: nothing.
left() {
    if [ -e "$scratch/slices/$1/region" ]; then
        check "$1: the ledger at the end" "$(ledger "$1" | awk '$1 == "used" { print $3 }')" 0 0
    fi
}

release() {
    exec 9>&-
    wait
    tries=0
    until [ "$(used)" -le "$baseline" ] || [ "$tries" -ge 50 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
}

# The last line of each script.
conclude() {
    if [ "$failures" -gt 0 ]; then
        echo "$1: $failures checks failed"
        exit 1
    fi
    echo "$1: all held"
}

if [ "$simulated" = no ]; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    wait_for_idle_gpu
    baseline=$(used)
else
    export LD_LIBRARY_PATH="$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export VGPU_SIM_GPUS=80G VGPU_SIM_STATE="$scratch/gpu"
fi
