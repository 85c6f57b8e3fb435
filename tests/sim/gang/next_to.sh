#!/bin/sh
# next_to.sh KERNEL_US [OPTION...]: a job of `ranks` with these options in a slice of 30 %, next to a slice of 60 % that
# always has kernels of that length queued on the job's first GPU. With turns, the job gets nearly 30 % of bare's
# steps. Where the driver divides that GPU, the ranks spin for each other: what the job gets then is printed only.
set -u
: "${VGPU:?}" "${RANKS:?}" "${SHARES:?}"
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset CUDA_VISIBLE_DEVICES LD_PRELOAD VGPU_POLICY CUDA_DEVICE_MEMORY_SHARED_CACHE
export VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=8x80G VGPU_STATE="$root/state"
mkdir "$root/turns"
kernel=$1
shift

rate() {
    sed -n 's/.*rate \([0-9.]*\).*/\1/p' "$1"
}

# next_to NAME OPTION...: sets part, of bare's rate. NAME is new.
next_to() {
    name=$1
    shift
    "$VGPU" run --name "$name-kernels" --cores 60 --gpus 0 -- "$SHARES" "$calibrated" --seconds=30 --kernel="$kernel" --live \
        >"$root/kernels" 2>&1 &
    kernels=$!
    "$VGPU" run --name "$name-job" --cores 30 -- "$RANKS" "$@" >"$root/job" || exit 1
    kill "$kernels"
    wait "$kernels"
    part=$(awk "BEGIN { print $(rate "$root/job") / $bare }")
}

calibrated=$("$SHARES" --calibrate | sed -n 's/^iters_per_us=/--iters-per-us=/p')
for turn in 1 2 3 4 5; do
    "$RANKS" "$@" >"$root/bare" || exit 1
    bare=$(rate "$root/bare")
    export VGPU_TURNS="$root/turns"
    next_to "turn$turn" "$@"
    echo "part of bare's steps in turns: $part"
    awk "BEGIN { exit !($part > 0.24 && $part < 0.36) }" || continue
    export VGPU_TURNS=/nonexistent
    next_to "apart$turn" "$@"
    echo "without turns: $part"
    exit 0
done
echo 'FAILED: five times, not nearly 30 % of the steps' >&2
exit 1
