#!/bin/sh
# holds.sh BUILD LIBRARY: whether that libvgpu.so, perhaps built on another machine, loads here and refuses
# the demo's greedy program what exceeds 1 GiB of a simulated GPU.
set -eu
build=$1 library=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export LD_LIBRARY_PATH="$build/sim" VGPU_SIM_STATE="$scratch/gpu" VGPU_SIM_GPUS=8G VGPU_STATE="$scratch/slices"
VGPU_LIBRARY=$library "$build/vgpu" run --memory 1G -- "$build/demo/hog" </dev/null >"$scratch/out" 2>&1 || :
grep -q 'one byte more: CUDA_ERROR_OUT_OF_MEMORY' "$scratch/out" || {
    echo "holds.sh: $library does not hold a program to 1 GiB:" >&2
    cat "$scratch/out" >&2
    exit 1
}
