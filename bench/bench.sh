#!/bin/sh
# make bench: what the library costs. Each figure is the median over RUNS runs of the program bare and in a slice,
# in turn; what counts is the difference within a run. Reported, not asserted: machines are noisy.
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

i=0
while [ "$i" -lt "$runs" ]; do
    "$build/bench/calls" many | sed "s/^/bare $i /"
    "$build/vgpu" run --memory 8G -- "$build/bench/calls" many | sed "s/^/slice $i /"
    i=$((i + 1))
done >"$scratch/rows"

awk '
function median(list, n,    i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
{ if (!($3 in seen)) { seen[$3] = 1; names[++count] = $3 } value[$1, $2, $3] = $4; if ($2 + 1 > runs) runs = $2 + 1 }
END {
    printf "%-22s %14s %14s %14s   ns, medians of %d runs\n", "", "bare", "in a slice", "difference", runs
    for (k = 1; k <= count; k++) {
        for (i = 0; i < runs; i++) {
            bare[i + 1] = value["bare", i, names[k]]; slice[i + 1] = value["slice", i, names[k]]
            difference[i + 1] = slice[i + 1] - bare[i + 1]
        }
        printf "%-22s %14.1f %14.1f %+14.1f\n", names[k], median(bare, runs), median(slice, runs), median(difference, runs)
    }
}' "$scratch/rows"
