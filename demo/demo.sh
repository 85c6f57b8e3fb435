#!/bin/sh
# make demo: one GPU, two tenants of 1 and 2 GiB, each running the same greedy program (hog.c), and the
# machine's own account of it; then two that always have work for it, with 30 and 60 % of its time, and
# what each gets, second by second. On a real GPU if there is one, else on the simulated driver.
# An installed demo (`vgpu-demo`) has its programs beside it, in the build's layout: cmake/install.cmake.
set -eu
here=$(dirname "$(readlink -f "$0")")
if [ $# -eq 0 ] && [ -x "$here/hog" ]; then set -- "$here/.."; fi
build=$(cd "${1:-build}" && pwd)
scratch=$(mktemp -d)
busy=''
# shellcheck disable=SC2086 # numbers
trap 'exec 8>&- 9>&-; [ -z "$busy" ] || kill $busy 2>/dev/null || :; wait; rm -rf "$scratch"' EXIT

if "$build/demo/outside" >/dev/null 2>&1 && [ "${VGPU_DEMO:-}" != simulated ]; then
    echo "On this machine's GPU:"
else
    echo "On a simulated GPU of 80 GiB (no NVIDIA driver is needed for that):"
    export LD_LIBRARY_PATH="$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export VGPU_SIM_GPUS=80G VGPU_SIM_STATE="$scratch/gpu"
fi
export VGPU_STATE="$scratch/slices"

used() {
    "$build/demo/outside" | cut -d' ' -f1
}

# tenant NAME MEMORY FD: the greedy program in a slice; it keeps what it took until FD is closed.
tenant() {
    mkfifo "$scratch/$1.hold"
    : >"$scratch/$1.out"
    "$build/vgpu" run --name "$1" --memory "$2" --gpus 0 -- "$build/demo/hog" \
        <"$scratch/$1.hold" >"$scratch/$1.out" 2>&1 &
    eval "exec $3>\"\$scratch/\$1.hold\""
    tries=0
    until grep -q 'one byte more' "$scratch/$1.out"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 600 ]; then
            echo "demo: tenant $1 did not get that far:" >&2
            cat "$scratch/$1.out" >&2
            exit 1
        fi
        sleep 0.1
    done
}

before=$(used)
echo "  used before: $before MiB"
echo
echo "\$ vgpu run --memory 1G -- hog"
tenant one 1G 8
cat "$scratch/one.out"
first=$(($(used) - before))
echo "  NVML, from outside: $first MiB more in use (contexts included); the quota is 1024 MiB"
echo
echo "\$ vgpu run --memory 2G -- hog        (alongside)"
tenant two 2G 9
cat "$scratch/two.out"
second=$(($(used) - before - first))
echo "  NVML, from outside: $second MiB more in use; the quota is 2048 MiB"
echo
exec 8>&- 9>&-
wait
echo "  both ended: $(($(used) - before)) MiB in use"

if [ "$first" -gt 1026 ] || [ "$second" -gt 2050 ]; then
    echo "demo: a slice was exceeded; please report this" >&2
    exit 1
fi

# The GPU's time. Both do the same: kernels of a millisecond, as many as they can (bench/shares.c).
seconds=5
calibrated=$("$build/bench/shares" --calibrate | sed -n 's/^iters_per_us=/--iters-per-us=/p')

# worker PERCENT: with so much of the GPU's time; each second's share goes to a file.
worker() {
    percent=$1
    : >"$scratch/worker.$percent"
    set -- "$build/bench/shares" "$calibrated" --seconds=$seconds --begin="$begin" --live
    if [ "$run_has_cores" = yes ]; then
        "$build/vgpu" run --cores "$percent" --gpus 0 -- "$@" >"$scratch/worker.$percent" 2>&1 &
    else
        env CUDA_DEVICE_SM_LIMIT="$percent" CUDA_DEVICE_MEMORY_SHARED_CACHE="$scratch/region.$percent" \
            LD_PRELOAD="$build/libvgpu.so" "$@" >"$scratch/worker.$percent" 2>&1 &
    fi
    busy="$busy $!"
}

# share PERCENT SECOND: what it got, in percent, as it says itself; waits for that to be over.
share() {
    tries=0
    until grep -q "^second=$2 " "$scratch/worker.$1"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 600 ]; then
            echo "demo: the program with $1 % of the GPU did not get that far:" >&2
            cat "$scratch/worker.$1" >&2
            exit 1
        fi
        sleep 0.1
    done
    sed -n "s/^second=$2 share=//p" "$scratch/worker.$1" | awk '{ printf "%.1f\n", $1 * 100 }'
}

if "$build/vgpu" run --help | grep -q -e --cores; then run_has_cores=yes; else run_has_cores=no; fi
begin=$(($(date +%s) + 2))
echo
for percent in 30 60; do
    if [ $run_has_cores = yes ]; then
        echo "\$ vgpu run --cores $percent -- shares &"
    else
        echo "\$ CUDA_DEVICE_SM_LIMIT=$percent LD_PRELOAD=libvgpu.so shares &"
    fi
    worker $percent
done
echo "  the GPU's time, in percent: quota   30    60"
second=1
while [ "$second" -le "$seconds" ]; do
    first=$(share 30 "$second")
    other=$(share 60 "$second")
    printf '                delivered, second %s  %5s %5s\n' "$second" "$first" "$other"
    second=$((second + 1))
done
# shellcheck disable=SC2086
wait $busy
busy=''
