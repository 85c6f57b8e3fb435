#!/bin/sh
# bare.sh PROGRAM [OPTION...]: on a machine of its own, without a slice.
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset CUDA_VISIBLE_DEVICES
export VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=8x80G
"$@"
