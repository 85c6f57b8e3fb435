#!/bin/sh
# make bench: what the library costs. A figure of the first table is the median over RUNS runs of the program, bare
# and in a slice, in turn. Where a machine's cores change their speed from run to run, by half on some, the lowest
# figures of each say more: others only ever make a run slower. The second is of launches, as fast as can be and with an
# event behind each, by which it is timed: bare, in a slice that has no compute quota, and in one of 99 %, which nothing
# has to wait for, so that what is left is the accounting. The third is the region's share of it, without a driver: each
# run's median and 99th percentile, and of these the medians over RUNS runs, beside what the first is meant to stay
# below. Reported, not asserted: machines are noisy.
set -eu
build=$(cd "${1:-build}" && pwd)
runs=${RUNS:-7}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export VGPU_STATE="$scratch/slices"

if nvidia-smi -L >/dev/null 2>&1; then
    nvidia-smi -L | head -n 1
else
    echo "On the simulated driver (no GPU here): only the differences mean something."
    export LD_LIBRARY_PATH="$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export VGPU_SIM_STATE="$scratch/gpu" VGPU_SIM_GPUS=80G
fi

# shellcheck source=bench/median.sh
. "$(dirname "$0")/median.sh"

i=0
while [ "$i" -lt "$runs" ]; do
    "$build/bench/calls" many | sed "s/^/bare $i /"
    "$build/vgpu" run --memory 8G -- "$build/bench/calls" many | sed "s/^/slice $i /"
    i=$((i + 1))
done >"$scratch/rows"

awk "$median"'
{ if (!($3 in seen)) { seen[$3] = 1; names[++count] = $3 } value[$1, $2, $3] = $4; if ($2 + 1 > runs) runs = $2 + 1 }
END {
    printf "%-22s %12s %12s %12s %12s %12s %12s\n", "ns, of " runs " runs", "median bare", "in a slice",
        "difference", "lowest bare", "in a slice", "difference"
    for (k = 1; k <= count; k++) {
        for (i = 0; i < runs; i++) {
            bare[i + 1] = value["bare", i, names[k]]; slice[i + 1] = value["slice", i, names[k]]
            difference[i + 1] = slice[i + 1] - bare[i + 1]
        }
        printf "%-22s %12.1f %12.1f %+12.1f ", names[k], median(bare, runs), median(slice, runs), median(difference, runs)
        printf "%12.1f %12.1f %+12.1f\n", bare[1], slice[1], slice[1] - bare[1] # median() has sorted them
    }
}' "$scratch/rows"

# What a launch costs: each by HAMi's variables, as others set them.
in_slice() {
    rm -f "$scratch/launches"
    env "$@" CUDA_DEVICE_MEMORY_LIMIT=8g CUDA_DEVICE_MEMORY_SHARED_CACHE="$scratch/launches" \
        LD_PRELOAD="$build/libvgpu.so" "$build/bench/calls" "$kind"
}
i=0
while [ "$i" -lt "$runs" ]; do
    for kind in launch timed; do
        "$build/bench/calls" $kind | sed 's/^/bare /'
        in_slice CUDA_DEVICE_SM_LIMIT=0 | sed 's/^/none /'
        in_slice CUDA_DEVICE_SM_LIMIT=99 | sed 's/^/99 /'
    done
    i=$((i + 1))
done | grep ' launch' >"$scratch/rows"

echo
awk -v runs="$runs" "$median"'
function row(name, kind, key,    i, list) {
    for (i = 1; i <= runs; i++) list[i] = value[kind, key, i]
    middle = median(list, runs) # which sorts them
    if (key == "bare") { bare = middle; bare_lowest = list[1] }
    printf "%-34s %10.1f %+10.1f %10.1f %+10.1f\n", name, middle, middle - bare, list[1], list[1] - bare_lowest
}
function table(title, kind) {
    printf "%-34s %10s %10s %10s %10s      ns, of %d runs\n", title, "median", "more", "lowest", "more", runs
    row("bare", kind, "bare"); row("in a slice without compute quota", kind, "none"); row("with a quota of 99 %", kind, "99")
}
{ value[$2, $1, ++seen[$2, $1]] = $3 }
END { table("a launch", "launch"); table("one with an event behind it", "launch_timed") }' "$scratch/rows"

i=0
while [ "$i" -lt "$runs" ]; do
    "$build/bench/region" "$scratch/region"
    "$build/bench/takeover" "$scratch/region"
    i=$((i + 1))
done >"$scratch/rows"

# A row's name, what it is meant to stay below, and what it is.
cat >"$scratch/targets" <<'EOF'
charge_refund 60 charge and refund, alone
charge_refund_of_8 1000 the same, among 8 processes
attach_to_1 200 attach
attach_to_100 200 the same, 100 slots living
attach_to_1000 200 the same, 1,000 slots living
attach_with_setup_to_1 200 attach with limits of its own
attach_with_setup_to_100 200 the same, 100 slots living
attach_with_setup_to_1000 200 the same, 1,000 slots living
create - make a region
takeover - killed with the lock, to a charge
EOF
echo
awk -v cores="$(nproc)" -v runs="$runs" "$median"'
NR == FNR { unit[$1] = $2; n = ++seen[$1]; middle[$1, n] = $3; high[$1, n] = $4; next }
FNR == 1 {
    printf "%-34s %10s %10s %10s      medians of %d runs, %d cores\n", "the region", "median", "99 %", "target", runs, cores
}
{
    name = $1; target = $2; n = seen[name]; sub(/^[^ ]+ [^ ]+ /, "")
    for (i = 1; i <= n; i++) { a[i] = middle[name, i]; b[i] = high[name, i] }
    above = target != "-" && median(a, n) > target + 0
    printf "%-34s %10.1f %10.1f %10s   %s%s\n", $0, median(a, n), median(b, n), target, unit[name], above ? "   above" : ""
}' "$scratch/rows" "$scratch/targets"
