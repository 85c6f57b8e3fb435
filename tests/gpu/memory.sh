#!/bin/sh
# make gpu-check: what must hold on a real GPU, with figures. Each slice is 8 GiB; what it holds is read
# from outside, with nvidia-smi, by nobody that is in it. Bounds are what is promised: one
# granule (2 MiB) a process above the quota, 99 % of it below.
# Other users of the GPU make the figures meaningless: take an idle one.
set -eu
. "$(dirname "$0")/lib.sh"

echo "One process, each path until it is refused:"
for path in alloc tiny uneven pitch managed async async-small pool after-pool vmm mapped array array3d mipmap \
    small-arrays graph captured stack variable; do
    fill "$path" 1 -- "$build/tests/gpu/take" "$path" "$([ $path = tiny ] && echo 16 || echo 64)"
    wait_for "$scratch/out" '^[a-z0-9-]* [0-9]' 1
    outside=$(($(used) - baseline))
    # What the last step is: UVM takes the device's memory in chunks of 128 MiB, a stack grows by 66 MiB a step.
    case $path in
    managed | variable | stack) least=$((quota - 128)) ;;
    *) least=$((quota * 99 / 100)) ;;
    esac
    check "$path: the device holds" "$outside" "$least" $((quota + 2))
    if [ $path != managed ] && [ $path != variable ]; then # which NVML does not count for processes
        by_ledger=$(ledger "$path" | awk '$1 == "slot" { print $3 }')
        by_nvml=$(counted)
        # What is charged ahead of allocations that nobody has waited for comes on top.
        most=$([ $path = async-small ] && echo 36 || echo 4)
        check "$path: ledger less NVML's figure ($by_nvml)" $((by_ledger - by_nvml)) -4 "$most"
    fi
    release
    left "$path"
done

echo "Memory that is given back in each step:"
fill unloaded 1 -- "$build/tests/gpu/take" variable-unloaded 64
wait_for "$scratch/out" '^variable-unloaded [0-9]' 1
check "variable-unloaded: taken in all" "$(awk '/^variable-unloaded/ { print $2 }' "$scratch/out")" $((2 * quota)) 999999
check "variable-unloaded: the ledger" "$(ledger unloaded | awk '$1 == "used" { print $3 }')" 0 700
release
left unloaded

if command -v nvcc >/dev/null && nvcc -o "$scratch/runtime" "$here/runtime.cu" 2>/dev/null; then
    echo "Through the CUDA runtime (nvcc):"
    fill runtime 1 -- "$scratch/runtime"
    wait_for "$scratch/out" '^runtime [0-9]' 1
    check "cudaMallocArray: the device holds" $(($(used) - baseline)) $((quota * 99 / 100)) $((quota + 2))
    release
    left runtime
else
    echo "Through the CUDA runtime: skipped, there is no nvcc"
fi

echo "Memory that goes from process to process:"
fill share 1 -- "$build/tests/gpu/share"
for state in shared freed closed orphaned; do
    wait_for "$scratch/out" "^$state" 1
    # 2 GiB by IPC and 1 GiB by descriptor, and the contexts of those who live.
    case $state in
    shared | freed) least=$((3072 + 2 * 500)) most=$((3072 + 2 * 560)) ;;
    closed) least=$((2 * 500)) most=$((2 * 560)) ;;
    orphaned) least=$((3072 + 500)) most=$((3072 + 560)) ;;
    esac
    sleep 0.2 # a dead process's memory stays on the device for a moment
    outside=$(($(used) - baseline))
    check "$state: the device holds" "$outside" "$least" "$most"
    check "$state: ledger less that" $(($(ledger share | awk '$1 == "used" { print $3 }') - outside)) -8 24
    echo >&9
done
release
left share

echo "Six processes fill one slice at once:"
fill six 6 -- "$build/tests/gpu/take" alloc 16
wait_for "$scratch/out" '^alloc [0-9]' 6
check "six: the device holds" $(($(used) - baseline)) $((quota * 99 / 100)) $((quota + 12))
release

echo "Contexts until they are refused:"
fill contexts 1 -- "$build/tests/gpu/take" context
wait_for "$scratch/out" '^context [0-9]' 1
check "contexts: the device holds" $(($(used) - baseline)) 512 $((quota + 2))
release

echo "nvidia-smi in a slice:"
shown=$("$build/vgpu" run --memory 8G -- nvidia-smi | sed -n 's/.*\/ *\([0-9]*\)MiB.*/\1/p' | head -n 1)
check "nvidia-smi: total" "${shown:-0}" 8192 8192

if python3 -c 'import torch' 2>/dev/null; then
    echo "PyTorch:"
    fill torch 1 -- python3 "$here/torch_slice.py" hold
    wait_for "$scratch/out" '^full' 1
    check "torch: the device holds" $(($(used) - baseline)) $((quota * 95 / 100)) $((quota + 2))
    by_ledger=$(ledger torch | awk '$1 == "slot" { sum += $3 } END { print sum }')
    by_nvml=$(counted)
    check "torch: ledger less NVML's figure ($by_nvml)" $((by_ledger - by_nvml)) -4 4
    release
    cat "$scratch/out"
    if grep -q FAIL "$scratch/out" || ! grep -q 'and goes on' "$scratch/out"; then
        failures=$((failures + 1))
    fi
else
    echo "PyTorch: skipped, it is not installed"
fi

echo "Frameworks:"
for name in torch-expandable torch-async torch-graphs jax cupy cupy-async triton; do
    python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('${name%%-*}') is None)" 2>/dev/null || {
        echo "  $name: skipped, it is not installed"
        continue
    }
    fill "$name" 1 -- python3 "$here/frameworks.py" "$name"
    for state in full rest; do
        wait_for "$scratch/out" "^$name $state" 1
        outside=$(($(used) - baseline)) by_nvml=$(counted)
        by_ledger=$(ledger "$name" | awk '$1 == "slot" { print $3 }')
        if [ $state = full ]; then
            # JAX takes 85 % of what is free at its start, and then steps of its own.
            least=$([ "$name" = jax ] && echo $((quota * 80 / 100)) || echo $((quota * 99 / 100)))
            check "$name: the device holds" "$outside" "$least" $((quota + 2))
        fi
        check "$name at $state: ledger less NVML's figure ($by_nvml)" $((by_ledger - by_nvml)) -4 4
        echo >&9
    done
    release
    left "$name"
done

conclude "memory"
