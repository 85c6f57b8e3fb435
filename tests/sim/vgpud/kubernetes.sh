#!/bin/sh
# Slices of vgpu-device-plugin have labels for their pods, as soon as the plugin has written down whose they are.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"

made=0123456789abcdef0123456789abcdef
directory=$VGPU_KUBERNETES/policies/$made
regions=$VGPU_KUBERNETES/regions/$made
make_slice x --gpus 0 --memory 2G
mkdir -p "$directory" "$regions"
cp -r "$state/x/policy" "$directory/policy"
cp "$region" "$regions/region"
CUDA_DEVICE_MEMORY_SHARED_CACHE=$regions/region "$MEMBER" "$root/ready" 1610612736 &
started="$started $!"
wait_for "$root/ready"

# labels [MORE]: those of the slice, with its pod's.
labels() {
    printf '{slice="%s",kind="kubernetes",user="%s"%s,device_uuid="%s"}' "$made" "$user" "${1-}" "$uuid0"
}
pod=',namespace="lab",pod="train-0",container="main"'

printf 'metrics = {\n    listen = "127.0.0.1:0"\n}\nevents = {\n    file = "%s"\n}\n' "$events" >"$config"
start_vgpud VGPUD_TEST=1
until_sample "vgpu_slice_memory_used_bytes$(labels)" 1610612736
echo lab/train-0/main >"$directory/pod"
until_sample "vgpu_slice_memory_used_bytes$(labels "$pod")" 1610612736
until_event slice_pods "e['slice'] == '$made' and e['namespace'] == 'lab' and e['pod'] == 'train-0' and e['container'] == 'main'"
grep -q "slice $made is used by the container lab/train-0/main\"" "$events" || fail "another sentence: $(cat "$events")"
same 'the former series' '' "$(sample "vgpu_slice_memory_used_bytes$(labels)")"
same 'the limit' 2147483648 "$(sample "vgpu_slice_memory_limit_bytes$(labels "$pod")")"
same 'of other slices' 1 "$(grep -c '^vgpu_slice_memory_used_bytes{.*namespace=' "$out")"

# What is no name of Kubernetes' is no label.
printf 'lab/a"} 1\\n/main\n' >"$directory/pod"
until_sample "vgpu_slice_memory_used_bytes$(labels)" 1610612736
! grep -q 'namespace="lab"' "$out" || fail "an odd name: $(cat "$out")"

# Events have the names, too, and of several containers those that are the same.
printf 'lab/train-0/main\nlab/train-0/side\n' >"$directory/pod"
until_sample "vgpu_slice_memory_used_bytes$(labels ',namespace="lab",pod="train-0"')" 1610612736
grep -q 'lab/train-0/main and 1 more"' "$events" || fail "another sentence: $(cat "$events")"
same 'how often its pods became known' 2 "$(count slice_pods)"
rm -r "$directory"
until_event slice_removed "e['slice'] == '$made' and e['namespace'] == 'lab' and e['pod'] == 'train-0' and 'container' not in e"
stop_vgpud
