#!/bin/sh
# A C program that calls the simulated runtime, alone and in a slice.
set -u
: "${VGPU:?}" "${VGPU_LIBRARY:?}" "${CALLS:?}" # from CMakeLists.txt
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
export VGPU_STATE="$root/state" VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=2x4G
unset LD_PRELOAD VGPU_POLICY CUDA_VISIBLE_DEVICES
"$CALLS" || exit 1
"$VGPU" run --memory 2G -- "$CALLS" || exit 1
"$VGPU" run --memory 900M -- "$CALLS" small
