#!/bin/sh
# ranks.sh CORES [OPTION...]: `ranks` with these options, bare and in a slice of CORES percent, by
# turns; prints both rates, how they compare, and how busy each GPU was. Needs a build, whose
# directory is BUILD. TIMES: how often, default 1. GPUS: the simulated machine's. PROGRAM: `stalls`
# instead. OWN: each of so many ranks in a slice of its own, which has its GPU only.
set -u
cores=${1:?usage: ranks.sh CORES [OPTION...]}
shift
build=$(cd "${BUILD:-$(dirname "$0")/../../../build}" && pwd) || exit 1
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset CUDA_VISIBLE_DEVICES LD_PRELOAD VGPU_POLICY CUDA_DEVICE_MEMORY_SHARED_CACHE
export LD_LIBRARY_PATH="$build/sim" VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS="${GPUS:-8x80G}"
export VGPU_STATE="$root/state" VGPU_LIBRARY="$build/libvgpu.so"
program=$build/tests/sim/gang/gang_${PROGRAM:-ranks}
export BUSY="$build/tests/sim/gang/gang_busy"

rate_of() {
    sed -n 's/.*rate \([0-9.]*\).*/\1/p' "$1"
}

# limited_own TURN OPTION...: what the first rank prints.
limited_own() {
    turn=$1
    shift
    for rank in $(seq 0 $((OWN - 1))); do
        "$build/vgpu" run --name "gang$turn-$rank" --gpus "$rank" --cores "$cores" -- \
            "$program" --ranks "$OWN" --job "$root/job$turn" --rank "$rank" "$@" &
    done
    wait
}

for turn in $(seq "${TIMES:-1}"); do
    "$program" ${OWN:+--ranks "$OWN"} "$@" >"$root/bare" || exit 1
    if [ "${OWN:-}" ]; then
        limited_own "$turn" "$@" >"$root/limited"
    else
        "$build/vgpu" run --name "gang$turn" --cores "$cores" -- "$program" "$@" >"$root/limited" || exit 1
    fi
    bare=$(rate_of "$root/bare") limited=$(rate_of "$root/limited")
    echo "bare    $bare a second, busy $(sed -n 's/^busy //p' "$root/bare")"
    echo "limited $limited a second, busy $(sed -n 's/^busy //p' "$root/limited")"
    echo "ratio   $(awk "BEGIN { printf \"%.3f\", $limited / $bare }") at $cores %"
done
