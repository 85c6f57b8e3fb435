#!/bin/sh
# bare.sh OPTION...: ranks on a machine of its own, without a slice.
: "${RANKS:?}" # from CMakeLists.txt
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset CUDA_VISIBLE_DEVICES
export VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=8x80G
"$RANKS" "$@"
