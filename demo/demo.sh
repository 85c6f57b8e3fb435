#!/bin/sh
# make demo: one GPU, two tenants of 1 and 2 GiB, each running the same greedy program (hog.c), and the
# machine's own account of it. On a real GPU if there is one, else on the simulated driver.
set -eu
build=$(cd "${1:-build}" && pwd)
scratch=$(mktemp -d)
trap 'exec 8>&- 9>&-; wait; rm -rf "$scratch"' EXIT

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
    "$build/vgpu" run --name "$1" --memory "$2" --gpus 0 -- "$build/demo/hog" \
        <"$scratch/$1.hold" >"$scratch/$1.out" 2>&1 &
    eval "exec $3>\"\$scratch/\$1.hold\""
    tries=0
    until grep -q 'one byte more' "$scratch/$1.out"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 300 ]; then
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
echo "\$ vgpu run --memory 2G -- hog        (beside it)"
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
