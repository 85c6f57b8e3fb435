#!/bin/sh
# Slices of Kubernetes whose pods nobody has written down: the control groups of their processes, and the kubelet's links to
# logs, tell them. The kernel's files of control groups have others mounted over them, in a mount namespace of the test's own.
if [ "${VGPU_TEST_NAMESPACE:-}" != own ]; then
    unshare --mount true 2>/dev/null || {
        echo 'skipped: a mount namespace is not permitted here'
        exit 77
    }
    VGPU_TEST_NAMESPACE=own exec unshare --mount --propagation private sh "$0"
fi
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"

made=0123456789abcdef0123456789abcdef
directory=$VGPU_KUBERNETES/policies/$made
regions=$VGPU_KUBERNETES/regions/$made
links=$root/containers
export VGPU_CONTAINER_LOGS="$links"
uid=6f1c3a2e-5b11-4f0e-9a47-2f6f1d0c8e55
id=$(printf '%064d' 1) side=$(printf '%064d' 2) strange=$(printf '%064d' 3)

# group PID LINE...: what /proc/PID/cgroup has from now on.
group() {
    pid=$1
    shift
    printf '%s\n' "$@" >"$root/group.$pid"
    mount --bind "$root/group.$pid" "/proc/$pid/cgroup" 2>/dev/null || {
        echo 'skipped: nothing can be mounted over a file of /proc'
        exit 77
    }
}

# member NAME REGION: a process of that slice; its pid in $member.
member() {
    CUDA_DEVICE_MEMORY_SHARED_CACHE=$2 "$MEMBER" "$root/$1.ready" 1048576 &
    member=$!
    started="$started $member"
    wait_for "$root/$1.ready"
}

# labels [MORE]: those of the slice, with its pod's.
labels() {
    printf '{slice="%s",kind="kubernetes",user="%s"%s,device_uuid="%s"}' "$made" "$user" "${1-}" "$uuid0"
}

make_slice x --gpus 0 --memory 2G
mkdir -p "$directory" "$regions"
cp -r "$state/x/policy" "$directory/policy"
cp "$region" "$regions/region"

# A process of the slice has written the pid of another slice's process in the place of its own.
member victim "$region"
group "$member" "0::/kubepods/pod00000000-5b11-4f0e-9a47-2f6f1d0c8e55/$strange"
victim=$member
member liar "$regions/region"
python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<ii", *[int(sys.argv[1])] * 2))' "$victim" |
    dd of="$regions/region" bs=1 seek="$at_slots" conv=notrunc 2>/dev/null
member main "$regions/region"
main=$member
group "$main" '9:name=systemd:/' "4:memory:/kubepods/burstable/pod$uid/$id" '0::/'

# Without the kubelet's links, the pod's UID is known.
configure "containers = \"$links\""
printf 'events = {\n    file = "%s"\n}\n' "$events" >>"$config"
start_vgpud VGPUD_TEST=1
until_sample "vgpu_slice_memory_limit_bytes$(labels ",pod=\"$uid\"")" 2147483648
ps 0
same 'in how many slices the other process is' 2 "$(grep -c "^$victim run_member" "$root/words")"
line "pod $uid"
same 'how many lines of pods' 1 "$(grep -c '^pod ' "$root/words")"
"$VGPU" ps --json >"$out" 2>"$err" || fail 'ps --json'
for member in '"namespace": *null' "\"pod\": *\"$uid\"" '"container": *null'; do
    grep -q "$member" "$out" || fail "no $member: $(cat "$out")"
done

# With them, the names are. A link is not followed.
mkdir "$links"
: >"$links/other_lab_main-$side.log"
: >"$links/victim_lab_main-$strange.log"
: >"$links/$(printf 'odd\033[2J_lab_main')-$id.log"
ln -s /nowhere "$links/train-0_lab_main-$id.log"
pod=',namespace="lab",pod="train-0",container="main"'
until_sample "vgpu_slice_memory_limit_bytes$(labels "$pod")" 2147483648
until_event slice_pods "e['slice'] == '$made' and e['namespace'] == 'lab' and e['pod'] == 'train-0' and e['container'] == 'main'"
same 'the former series' '' "$(sample "vgpu_slice_memory_limit_bytes$(labels ",pod=\"$uid\"")")"
ps 0
line 'pod lab/train-0/main'

# A second container, whose tenant has made a control group below its own that is called like that of another pod.
rm "$links/other_lab_main-$side.log"
: >"$links/train-0_lab_side-$side.log"
member side "$regions/region"
group "$member" "0::/kubepods.slice/kubepods-pod$(echo "$uid" | tr - _).slice/cri-containerd-$side.scope/kubepods-pod00000000_5b11_4f0e_9a47_2f6f1d0c8e55.slice/docker-$strange.scope"
until_sample "vgpu_slice_memory_limit_bytes$(labels ',namespace="lab",pod="train-0"')" 2147483648
ps 0
line 'pod lab/train-0/main'
line 'pod lab/train-0/side'
same 'how many lines of pods' 2 "$(grep -c '^pod ' "$root/words")"

# The names stay when the processes have ended.
kill -9 "$member" "$main"
wait_gone "$member"
wait_gone "$main"
sleep 6 # vgpud searches again after 5 s
scrape
same 'the names' 2147483648 "$(sample "vgpu_slice_memory_limit_bytes$(labels ',namespace="lab",pod="train-0"')")"

# What the plugin has written down counts.
echo ml/train-1/main >"$directory/pod"
until_sample "vgpu_slice_memory_limit_bytes$(labels ',namespace="ml",pod="train-1",container="main"')" 2147483648
! grep -q victim "$events" || fail "another tenant's pod: $(cat "$events")"
stop_vgpud
