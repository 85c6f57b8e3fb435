#!/bin/sh
# limited.sh [OPTION...]: `ranks` with these options, bare and in a slice of 50 %, which finds out by
# itself that the ranks are a gang. It gets about half of bare's steps, whatever waits for what. The
# bounds are wide, as a busy machine delays hosts; GPUs that are paced one by one get a twentieth.
set -u
: "${VGPU:?}" "${RANKS:?}"
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset CUDA_VISIBLE_DEVICES LD_PRELOAD VGPU_POLICY CUDA_DEVICE_MEMORY_SHARED_CACHE
export VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=8x80G VGPU_STATE="$root/state"

rate() {
    "$@" >"$root/said" || exit 1
    sed -n 's/.*rate \([0-9.]*\).*/\1/p' "$root/said"
}

for turn in 1 2 3; do
    bare=$(rate "$RANKS" "$@")
    limited=$(rate "$VGPU" run --name "turn$turn" --cores 50 -- "$RANKS" "$@")
    echo "bare $bare steps a second, limited to 50 % $limited"
    awk "BEGIN { part = $limited / $bare; exit !(part > 0.25 && part < 0.7) }" && exit 0
done
echo 'FAILED: not half of bare in three turns' >&2
exit 1
