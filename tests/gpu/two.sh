#!/bin/sh
# make gpu-check: what must hold on two GPUs: different quotas, reordering, peer access, and an all-reduce under quotas.
# Skipped where there are not two.
set -eu
build=$(cd "${1:-build}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(nvidia-smi -L 2>/dev/null | wc -l)" -lt 2 ]; then
    echo "two.sh: skipped: there are not two GPUs"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
first=$(nvidia-smi --id=0 --query-gpu=uuid --format=csv,noheader)
second=$(nvidia-smi --id=1 --query-gpu=uuid --format=csv,noheader)

# vgpu run has one quota for all GPUs; a policy by hand has one for each.
mkdir "$scratch/policy"
echo 'memory = 4G' >"$scratch/policy/$first"
echo 'memory = 6G' >"$scratch/policy/$second"
printf 'region = %s\nname = two\n' "$scratch/region" >"$scratch/policy/slice"
echo "Policy: $first 4 GiB, $second 6 GiB"
export VGPU_POLICY="$scratch/policy" LD_PRELOAD="$build/libvgpu.so"
for order in 0,1 1,0 "$second,$first" "$second"; do
    CUDA_VISIBLE_DEVICES=$order python3 "$here/two_gpus.py" totals
done
python3 "$here/two_gpus.py" fill
python3 "$here/two_gpus.py" peer
NCCL_NVLS_ENABLE=0 python3 "$here/two_gpus.py" allreduce
nvidia-smi --query-gpu=index,uuid,memory.total --format=csv,noheader
