#!/bin/sh
# make gpu-check: what a kill -9 leaves on a real GPU, and pid namespaces that share a slice.
set -eu
. "$(dirname "$0")/lib.sh"

echo "A process that holds half of the slice is killed while another allocates, ${ROUNDS:-50} times:"
fill kill 1 -- cat
sleep 0.5
"$build/tests/gpu/kill" "$build" "${ROUNDS:-50}" >"$scratch/figures" 9>&-
cat "$scratch/figures"
read -r name highest median longest <"$scratch/figures"
[ "$name" = kill ] || highest=0 longest=0
check "kill: the device held at most" "$highest" $((quota * 99 / 100)) $((quota + 2))
check "kill: wait for the memory, median $median ms, longest in ms, not" "$longest" 1 1000
release

if ! python3 -c 'import torch' 2>/dev/null; then
    echo "PyTorch in two pid namespaces: skipped, it is not installed"
elif ! unshare --pid --fork --mount-proc true 2>/dev/null; then
    echo "PyTorch in two pid namespaces: skipped, they cannot be made"
else
    echo "PyTorch in two pid namespaces that share a slice:"
    fill spaces 1 -- unshare --pid --fork --kill-child --mount-proc python3 "$here/spaces.py" first 4096
    wait_for "$scratch/out" '^first full' 1
    mkfifo "$scratch/more"
    "$build/vgpu" run --name spaces -- unshare --pid --fork --kill-child --mount-proc \
        python3 "$here/spaces.py" second <"$scratch/more" >>"$scratch/out" 2>&1 9>&- &
    exec 8>"$scratch/more"
    wait_for "$scratch/out" '^second full' 1
    check "both: the device holds" $(($(used) - baseline)) $((quota * 98 / 100)) $((quota + 4))
    by_ledger=$(ledger spaces | awk '$1 == "slot" { sum += $3 } END { print sum }') by_nvml=$(counted)
    check "both: ledger less NVML's figure ($by_nvml)" $((by_ledger - by_nvml)) -4 4
    pkill -9 -f "spaces.py first"
    echo >&8
    wait_for "$scratch/out" '^second again' 1
    check "one killed: the device holds" $(($(used) - baseline)) $((quota * 98 / 100)) $((quota + 2))
    grep -E '^(first|second) ' "$scratch/out"
    grep -q '^second again [0-9]* right' "$scratch/out" || failures=$((failures + 1))
    exec 8>&-
    release
fi

conclude "deaths"
