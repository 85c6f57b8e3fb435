#!/bin/sh
# make gpu-check: what must hold on two GPUs: different quotas, reordering, peer access, an all-reduce under quotas, and
# shares of both at once.
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
printf 'memory = 4G\ncores = 30\n' >"$scratch/policy/$first"
printf 'memory = 6G\ncores = 60\n' >"$scratch/policy/$second"
printf 'region = %s\nname = two\n' "$scratch/region" >"$scratch/policy/slice"
echo "Policy: $first 4 GiB and 30 %, $second 6 GiB and 60 %"
bare=$(python3 "$here/two_gpus.py" shares)
export VGPU_POLICY="$scratch/policy" LD_PRELOAD="$build/libvgpu.so"
for order in 0,1 1,0 "$second,$first" "$second"; do
    CUDA_VISIBLE_DEVICES=$order python3 "$here/two_gpus.py" totals
done
python3 "$here/two_gpus.py" fill
python3 "$here/two_gpus.py" peer
NCCL_NVLS_ENABLE=0 python3 "$here/two_gpus.py" allreduce
limited=$(python3 "$here/two_gpus.py" shares)
# Half a point more than elsewhere, as bare the two threads may not keep both GPUs busy all the time.
echo "$bare $limited" | awk '{
    first = 100 * $5 / $2; second = 100 * $6 / $3
    bad = first < 28.5 || first > 31.5 || second < 58.5 || second > 61.5
    printf "one process on both at once: %.1f of 30 %%, %.1f of 60 %%%s\n", first, second, bad ? ": WRONG" : ""
    exit bad
}'
nvidia-smi --query-gpu=index,uuid,memory.total --format=csv,noheader
