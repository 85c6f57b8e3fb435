#!/bin/sh
# beside.sh [--slices] [OPTION...]: two jobs of `ranks` with these options at once, on the same GPUs, in
# slices of 50 %: a slice for each job, or (--slices) for each of its two ranks. The gangs take turns on
# all of their GPUs at the same time, so each gets nearly half of bare's steps. Where the driver divides
# the GPUs, the ranks of a job have them at different times, and spin meanwhile: each job gets some 39 %
# then, which the same with no turns prints.
set -u
: "${VGPU:?}" "${RANKS:?}"
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset CUDA_VISIBLE_DEVICES LD_PRELOAD VGPU_POLICY CUDA_DEVICE_MEMORY_SHARED_CACHE
export VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=8x80G VGPU_STATE="$root/state" BUSY=/bin/true
mkdir "$root/turns"
slices=no
[ "${1-}" != --slices ] || { slices=yes; shift; }

rate() {
    sed -n 's/.*rate \([0-9.]*\).*/\1/p' "$1"
}

# job NAME OPTION...: starts a job of that name, which is new. Its processes are in $pids.
job() {
    job=$1
    shift
    if [ $slices = no ]; then
        "$VGPU" run --name "$job" --cores 50 -- "$RANKS" "$@" >"$root/$job" &
        pids="$pids $!"
        return
    fi
    for rank in 1 0; do
        "$VGPU" run --name "$job-$rank" --cores 50 --gang "$job" -- "$RANKS" --job "$root/$job.ranks" --rank $rank "$@" \
            >"$root/$job" & # rank 0 alone prints
        pids="$pids $!"
    done
}

# both NAME OPTION...: sets one and other, parts of bare's rate. NAME is new.
both() {
    name=$1 pids=''
    shift
    job "$name-one" "$@"
    job "$name-other" "$@"
    for pid in $pids; do wait "$pid" || exit 1; done
    one=$(awk "BEGIN { print $(rate "$root/$name-one") / $bare }")
    other=$(awk "BEGIN { print $(rate "$root/$name-other") / $bare }")
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
