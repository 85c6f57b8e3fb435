#!/bin/sh
# HAMi's names: the host's GPUs, and its containers with their pods.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"

make_slice x --gpus 0 --memory 2G --cores 30
pod=6f1c3a2e-5b11-4f0e-9a47-2f6f1d0c8e55
container "${pod}_trainer" "$region"
CUDA_DEVICE_MEMORY_SHARED_CACHE=$cache "$MEMBER" "$root/one.ready" 1610612736 &
started="$started $!"
wait_for "$root/one.ready"

# labels NAMESPACE POD: those of the container's GPU.
labels() {
    printf '{namespace="%s",pod="%s",container="trainer",vdevice_index="0",device_uuid="%s"}' "$1" "$2" "$uuid0"
}

configure 'hami = true'
printf 'events = {\n    file = "%s"\n}\n' "$events" >>"$config"
start_vgpud VGPUD_TEST=1
until_sample "hami_vgpu_memory_used_bytes$(labels '' "$pod")" 1610612736
same 'the limit' 2147483648 "$(sample "hami_vgpu_memory_limit_bytes$(labels '' "$pod")")"
same 'the memory' 1610612736 "$(sample "hami_container_device_memory_bytes$(labels '' "$pod")")"
same 'data' 1610612736 "$(sample "hami_vgpu_memory_buffer_bytes$(labels '' "$pod")")"
same 'contexts' 0 "$(sample "hami_vgpu_memory_context_bytes$(labels '' "$pod")")"
same 'code' 0 "$(sample "hami_vgpu_memory_module_bytes$(labels '' "$pod")")"
node=$(uname -n)
same 'the host' 0 "$(sample "hami_host_gpu_memory_used_bytes{node=\"$node\",device_uuid=\"$uuid1\"}")"
same 'its time' 0 "$(sample "hami_host_gpu_utilization_ratio{node=\"$node\",device_uuid=\"$uuid1\"}")"
# ours NAMES MORE: labels of the slice in our own metrics.
ours() {
    printf '{slice="%s",kind="hami",user="%s",%s,%s}' "${pod}_trainer" "$user" "$1" "$2"
}
unnamed="pod=\"$pod\",container=\"trainer\"" named='namespace="ml",pod="train-0",container="trainer"'
same 'ours' 1610612736 "$(sample "vgpu_slice_memory_used_bytes$(ours "$unnamed" "device_uuid=\"$uuid0\"")")"
same 'what holds it' 1 "$(sample "vgpu_slice_enforcement_info$(ours "$unnamed" 'level="region"')")"
same 'no slice of vgpu run' 1 "$(grep -c '^hami_vgpu_memory_used_bytes' "$out")"

# A launch, half an hour ago.
python3 -c 'import struct, sys, time; sys.stdout.buffer.write(struct.pack("<q", int(time.time()) - 1800))' >"$root/launched"
dd if="$root/launched" of="$cache" bs=1 seek=2008912 conv=notrunc 2>/dev/null
tries=0
until [ "$(sample "hami_container_last_kernel_elapsed_seconds$(labels '' "$pod")" | cut -c 1-2)" = 18 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || fail "no launch: $(cat "$out")"
    sleep 0.2
    scrape
done

# The kubelet's logs tell the pod's name and namespace, as soon as they are there.
mkdir -p "$root/pods/kube-system_other_0" "$root/pods/ml_train-0_$pod"
until_sample "hami_vgpu_memory_used_bytes$(labels ml train-0)" 1610612736
same 'ours' 1610612736 "$(sample "vgpu_slice_memory_used_bytes$(ours "$named" "device_uuid=\"$uuid0\"")")"
same 'the former series' '' "$(sample "vgpu_slice_memory_used_bytes$(ours "$unnamed" "device_uuid=\"$uuid0\"")")"
until_event slice_pods "e['slice'] == '${pod}_trainer' and e['namespace'] == 'ml' and e['pod'] == 'train-0' and e['container'] == 'trainer'"

# A container of an earlier pod of that name: one of the two has the labels, and the names stay when the logs are gone.
earlier=7${pod#?}
living=$cache
container "${earlier}_trainer" "$region"
until_event slice_made "e['slice'] == '${earlier}_trainer' and e['pod'] == '$earlier' and 'namespace' not in e"
mkdir "$root/pods/ml_train-0_$earlier"
until_event slice_pods "e['slice'] == '${earlier}_trainer' and e['pod'] == 'train-0'"
scrape
same 'one of the two' 1 "$(grep -c '^hami_vgpu_memory_used_bytes' "$out")"
same 'the living one' 1610612736 "$(sample "hami_vgpu_memory_used_bytes$(labels ml train-0)")"
rm -r "$root/pods"
rm -r "$hami/containers/${earlier}_trainer"
until_event slice_removed "e['slice'] == '${earlier}_trainer' and e['namespace'] == 'ml'"
scrape
same 'it has its name' 1610612736 "$(sample "hami_vgpu_memory_used_bytes$(labels ml train-0)")"

# A directory whose name has no UID has no metrics by HAMi's names.
container odd "$region"
until_sample "vgpu_slice_memory_limit_bytes{slice=\"odd\",kind=\"hami\",user=\"$user\",device_uuid=\"$uuid0\"}" 2147483648
same 'one container' 1 "$(grep -c '^hami_vgpu_memory_used_bytes' "$out")"
rm -r "$hami/containers/odd"
cache=$living

# An older region of the same container does not speak for its GPU.
cp "$cache" "$hami/containers/${pod}_trainer/$uuid0.older.cache"
until_sample 'vgpu_slices{state="empty"}' 1
same 'one of the two' 1 "$(grep -c '^hami_vgpu_memory_used_bytes' "$out")"
same 'the living one' 1610612736 "$(sample "hami_vgpu_memory_used_bytes$(labels ml train-0)")"
stop_vgpud

start_vgpud NODE_NAME=worker-1
scrape
same 'a named node' 0 "$(sample "hami_host_gpu_memory_used_bytes{node=\"worker-1\",device_uuid=\"$uuid1\"}")"
stop_vgpud

configure 'hami = false'
start_vgpud VGPUD_TEST=1
scrape
grep -q '^hami_' "$out" && fail "hami = false: $(grep ^hami_ "$out")"
stop_vgpud
