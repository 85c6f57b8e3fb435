#!/bin/sh
# Which GPUs a slice has, and how much of each.
. "$(dirname "$0")/lib.sh"

# policy ARGUMENT...: the slice's policy, a line a file: "NAME: its text".
policy() {
    "$VGPU" run "$@" sh -c 'cd "$VGPU_POLICY" &&
        for file in GPU-*; do echo "$file:" $(cat "$file"); done'
}

both="$uuid0: memory = 4G
$uuid1: memory = 4G"
same 'no limit' "$uuid0: memory = unlimited
$uuid1: memory = unlimited" "$(policy --unlimited)"
same 'one for all' "$both" "$(policy --memory 4G)"
same 'one for all' "$both" "$(policy --memory 4096m --gpus all)"
same 'one for each' "$uuid0: memory = 1G
$uuid1: memory = 1536m" "$(policy --memory 1g,1.5G)"
same 'in the order of --gpus' "$uuid0: memory = 2G
$uuid1: memory = 1G" "$(policy --gpus 1,0 --memory 1G,2G)"
same 'the least' "$uuid0: memory = 2m" "$(policy --gpus 0 --memory 2m)"
same 'to the byte' "$uuid0: memory = 5000001" "$(policy --gpus 0 --memory 5000001)"
same 'all of it' "$uuid0: memory = 80G" "$(policy --gpus 0 --memory 80G)"
same 'by index' "$uuid1: memory = 1G" "$(policy --memory 1G --gpus 1)"
same 'by UUID' "$uuid1: memory = 1G" "$(policy --memory 1G --gpus $uuid1)"
same 'by the start of one' "$uuid1: memory = unlimited" \
    "$(VGPU_SIM_STATE=$root/sim2 policy --unlimited --gpus GPU-51300000-0000-4000-8000-000000000001)"
same 'all by UUID' "$both" "$(policy --memory 4G --gpus $uuid1,$uuid0)"

VGPU_SIM_GPUS=1x24G VGPU_SIM_STATE=$root/sim1
same 'the start of the only one' "$uuid0: memory = unlimited" "$(policy --unlimited --gpus GPU-5)"
refuse 125 'is more than GPU 0 has, which is 24 GiB (24576m)' --memory 25G true

VGPU_SIM_GPUS=3x24G VGPU_SIM_STATE=$root/sim3
same 'two of three' "$uuid0: memory = 1G
GPU-51300000-0000-4000-8000-000000000002: memory = 2G" "$(policy --gpus 0,2 --memory 1G,2G)"

# More than the card has.
VGPU_SIM_GPUS=1x24G VGPU_SIM_STATE=$root/sim4
refuse 125 'give at most that; only a slice that was made with vgpu run --oversubscribe may have more' --memory 25G true
same 'more than the GPU has' "$uuid0: memory = 100G" "$(policy --oversubscribe --memory 100G)"
expect 0 --name big --oversubscribe --memory 100G sh -c 'cat "$VGPU_POLICY/slice"'
same 'oversubscribed' "region = $state/big/region
name = big
oversubscribe = yes$root_group" "$(cat "$out")"
VGPU_SIM_GPUS=3x24G VGPU_SIM_STATE=$root/sim3

# Times.
same 'a time' "$uuid0: memory = unlimited cores = 30 burst = 25ms" "$(policy --cores 30 --burst 25ms --gpus 0)"
same 'one for each' "$uuid0: memory = unlimited cores = 30 burst = 0
$uuid1: memory = unlimited cores = 30" "$(policy --cores 30 --burst 0,default --gpus 0,1)"
refuse 125 'has 2 times' --cores 30 --burst 0,1s true

# A word on gangs.
for word in yes no train-8; do
    expect 0 --unlimited --name "gang-$word" --gang "$word" sh -c 'cat "$VGPU_POLICY/slice"'
    same "--gang $word" "region = $state/gang-$word/region
name = gang-$word$root_group
gang = $word" "$(cat "$out")"
done
expect 0 --unlimited --name found --gang found sh -c 'cat "$VGPU_POLICY/slice"'
same '--gang found' "region = $state/found/region
name = found$root_group" "$(cat "$out")"

# Ranges, and percentages of each GPU's memory in whole granules of 2 MiB.
VGPU_SIM_GPUS=4x24G VGPU_SIM_STATE=$root/sim5
uuid=GPU-51300000-0000-4000-8000-00000000000
same 'a range' "${uuid}0: memory = unlimited cores = 10
${uuid}1: memory = unlimited cores = 10" "$(policy --cores 10 --gpus 0-1)"
same 'an index and a range' "${uuid}0: memory = unlimited cores = 10
${uuid}2: memory = unlimited cores = 30
${uuid}3: memory = unlimited cores = 20" "$(policy --cores 10,20,30 --gpus 0,3,2-2)"
refuse 2 'the range of GPUs 3-1 is empty' --cores 10 --gpus 3-1 true
refuse 2 '"1-" names no GPU' --cores 10 --gpus 1- true
refuse 2 '"0-1-2" names no GPU' --cores 10 --gpus 0-1-2 true
refuse 125 'there is no GPU 4: this machine has 4' --cores 10 --gpus 2-4 true
refuse 125 "GPU 1 (${uuid}1) is listed twice" --cores 10 --gpus 0-2,1 true
same 'half' "${uuid}0: memory = 12G" "$(policy --memory 50% --gpus 0)"
same 'a list of percentages' "${uuid}0: memory = 736m
${uuid}1: memory = 24G
${uuid}2: memory = 1G" "$(policy --memory 3%,100%,1G --gpus 0-2)"
refuse 125 '--memory 101% is more than GPU 0 has' --memory 101% --gpus 0 true
same 'more than all' "${uuid}0: memory = 36G" "$(policy --oversubscribe --memory 150% --gpus 0)"
for size in 0% % 1.5% -1% 50%% 99999%; do
    refuse 2 "\"$size\" is no size: a percentage of a GPU's memory is a whole number from 1 to 100, with --oversubscribe to 10000" --memory "$size" true
done
VGPU_SIM_GPUS=3x24G VGPU_SIM_STATE=$root/sim3

# The name and the region stand in the policy; the region has the slice's devices.
expect 0 --unlimited --name web sh -c 'cat "$VGPU_POLICY/slice"'
same 'the slice' "region = $state/web/region
name = web$root_group" "$(cat "$out")"
# 2 GPUs at byte 56; their UUIDs from 64 on, 96 bytes each; limits from 1600 on.
expect 0 --gpus 2,0 --memory 1G,2G sh -c 'cat "$CUDA_DEVICE_MEMORY_SHARED_CACHE"'
at() {
    tail -c +$(($1 + 1)) "$out" | head -c "$2"
}
same 'the region: how many' 2 "$(at 56 8 | od -An -tu8 | tr -d ' ')"
same 'the region: first' GPU-51300000-0000-4000-8000-000000000002 "$(at 64 40)"
same 'the region: second' "$uuid0" "$(at 160 40)"
same 'the region: limits' '1073741824 2147483648' \
    "$(at 1600 16 | od -An -tu8 | tr -s ' ' | sed 's/^ //')"
