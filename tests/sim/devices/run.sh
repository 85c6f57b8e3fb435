#!/bin/sh
# What a command of `vgpu run --gpus` sees: its slice's GPUs, and its numbers count those.
set -u
: "${VGPU:?}" "${VGPU_LIBRARY:?}" "${LIST:?}" # from CMakeLists.txt
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
export VGPU_STATE="$root/state" VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=4x8G
unset LD_PRELOAD VGPU_POLICY CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
uuid=GPU-51300000-0000-4000-8000-00000000000

# sees EXPECTED ASKED ARGUMENT...: ASKED is what the command sets CUDA_VISIBLE_DEVICES to; "-": nothing,
# "unset": it removes it.
sees() {
    expected=$1 asked=$2
    shift 2
    case $asked in
    -) found=$("$VGPU" run --unlimited "$@" "$LIST") ;;
    unset) found=$("$VGPU" run --unlimited "$@" env -u CUDA_VISIBLE_DEVICES "$LIST") ;;
    *) found=$("$VGPU" run --unlimited "$@" env "CUDA_VISIBLE_DEVICES=$asked" "$LIST") ;;
    esac
    [ "$found" = "$expected" ] || {
        echo "FAILED: run $* with $asked: \"$found\" instead of \"$expected\"" >&2
        exit 1
    }
}

sees 0123 -
sees 2 - --gpus 2
sees 2 - --gpus ${uuid}2
sees 2 0 --gpus 2
sees 2 0 --gpus ${uuid}2
sees 2 unset --gpus 2
sees 'error 100' 2 --gpus 2
sees 'error 100' ${uuid}0 --gpus 2
sees 31 - --gpus 3,1
sees 13 unset --gpus 3,1
sees 31 1,0 --gpus 3,1
sees 3 ${uuid}3,${uuid}0,${uuid}1 --gpus 3,1
sees 'error 101' 0,0 --gpus 3,1
sees 'error 100' '' --gpus 3,1
sees 20 2,0

# Set outside, it means the same.
CUDA_VISIBLE_DEVICES=0
export CUDA_VISIBLE_DEVICES
sees 2 - --gpus 2
