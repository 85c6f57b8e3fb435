#!/bin/sh
# limited.sh [OPTION...]: `ranks` with these options, bare and in a slice of 50 %, which finds out by
# itself that the ranks are a gang. Its GPUs are busy for half of the time, and it gets about half of
# bare's steps, whatever waits for what. The bounds are wide, as a busy machine delays hosts: GPUs
# that are paced one by one get a twentieth of the steps.
set -u
: "${VGPU:?}" "${RANKS:?}"
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset CUDA_VISIBLE_DEVICES LD_PRELOAD VGPU_POLICY CUDA_DEVICE_MEMORY_SHARED_CACHE
export VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=8x80G VGPU_STATE="$root/state"

# measure NAME COMMAND...: sets rate_NAME, steps a second, and busy_NAME, percent of the busiest GPU.
measure() {
    name=$1
    shift
    "$@" >"$root/said" || exit 1
    eval "rate_$name=$(sed -n 's/.*rate \([0-9.]*\).*/\1/p' "$root/said")"
    eval "busy_$name=$(sed -n 's/^busy //p' "$root/said" | tr ' ' '\n' | sort -n | tail -n 1)"
}

for turn in 1 2 3; do
    measure bare "$RANKS" "$@"
    measure limited "$VGPU" run --name "turn$turn" --cores 50 -- "$RANKS" "$@"
    # shellcheck disable=SC2154 # measure sets them
    echo "bare $rate_bare steps a second, busy for $busy_bare %; limited $rate_limited, $busy_limited %"
    awk "BEGIN { exit !($rate_limited > 0.25 * $rate_bare && $busy_limited < 60) }" && exit 0
done
echo 'FAILED: three times, less than a quarter of the steps or a GPU busy for 60 %' >&2
exit 1
