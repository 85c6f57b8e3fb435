#!/bin/sh
# beside.sh [OPTION...]: two jobs of `ranks` with these options at once, on the same GPUs, in slices of
# 50 %. The gangs take turns on all of their GPUs at the same time, so each gets nearly half of bare's
# steps. Where the driver divides the GPUs, the ranks of a job have them at different times, and spin
# meanwhile: each job gets some 39 % then, which the same with no turns prints.
set -u
: "${VGPU:?}" "${RANKS:?}"
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset CUDA_VISIBLE_DEVICES LD_PRELOAD VGPU_POLICY CUDA_DEVICE_MEMORY_SHARED_CACHE
export VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=8x80G VGPU_STATE="$root/state" BUSY=/bin/true
mkdir "$root/turns"

rate() {
    sed -n 's/.*rate \([0-9.]*\).*/\1/p' "$1"
}

# both NAME OPTION...: sets one and other, parts of bare's rate. NAME is new.
both() {
    name=$1
    shift
    "$VGPU" run --name "$name-one" --cores 50 -- "$RANKS" "$@" >"$root/one" &
    one=$!
    "$VGPU" run --name "$name-other" --cores 50 -- "$RANKS" "$@" >"$root/other" || exit 1
    wait "$one" || exit 1
    one=$(awk "BEGIN { print $(rate "$root/one") / $bare }")
    other=$(awk "BEGIN { print $(rate "$root/other") / $bare }")
}

for turn in 1 2 3 4 5; do
    "$RANKS" "$@" >"$root/bare" || exit 1
    bare=$(rate "$root/bare")
    export VGPU_TURNS="$root/turns"
    both "turn$turn" "$@"
    echo "parts of bare's steps in turns: $one and $other"
    awk "BEGIN { exit !($one > 0.43 && $other > 0.43 && $one < 0.56 && $other < 0.56) }" || continue
    export VGPU_TURNS=/nonexistent
    both "apart$turn" "$@"
    echo "without turns: $one and $other"
    exit 0
done
echo 'FAILED: five times, not nearly half of the steps for each job' >&2
exit 1
