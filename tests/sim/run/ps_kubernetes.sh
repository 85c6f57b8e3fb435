#!/bin/sh
# Slices of vgpu-device-plugin: listed as others are; the plugin alone changes and removes them.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"

container=0123456789abcdef0123456789abcdef
policy=$VGPU_KUBERNETES/policies/$container/policy
regions=$VGPU_KUBERNETES/regions/$container

make_slice x --gpus 0 --memory 2G
cp "$region" "$root/whole"
uuid=$(cd "$state/x/policy" && echo GPU-*)
kill -9 "$holder" "$sleeper"
wait_gone "$holder"
wait_gone "$sleeper"
rm -r "$state/x"

mkdir -p "$policy" "$regions" "$VGPU_KUBERNETES/policies/.half" "$VGPU_KUBERNETES/policies/no_policy"
: >"$VGPU_KUBERNETES/policies/libvgpu.so"
printf 'memory = 2G\ncores = 30\n' >"$policy/$uuid"
echo "region = $regions/region" >"$policy/slice"

ps 0
line "$container empty"
no_line ' pod '
cp "$root/whole" "$regions/region"
CUDA_DEVICE_MEMORY_SHARED_CACHE=$regions/region "$MEMBER" "$root/ready" &
started="$started $!"
wait_for "$root/ready"
ps 0
grep -q "^$container 0 .* 2 GiB .* 1 running$" "$root/words" || fail "the process is not listed: $(cat "$out")"
"$VGPU" ps --json >"$out" 2>"$err" || fail 'ps --json'
grep -q '"kind": *"kubernetes"' "$out" || fail 'the kind is not kubernetes'
grep -q '"pod": *null' "$out" || fail 'there is a pod'

# Whose it is, as the plugin has written it down; names that Kubernetes has not are none.
pod=$VGPU_KUBERNETES/policies/$container/pod
for odd in 'lab/train-0' 'lab/train-0/main/x' 'lab/train-0/a b' 'lab/\033[2J/main' 'lab//main'; do
    # shellcheck disable=SC2059 # it has escapes
    printf "$odd\n" >"$pod"
    ps 0
    no_line '^pod '
done
echo lab/train-0/main >"$pod"
ps 0
line 'pod lab/train-0/main'
grep -A 1 "^$container 0 " "$root/words" | grep -qx 'pod lab/train-0/main' || fail 'the pod is of another slice'
"$VGPU" ps --json >"$out" 2>"$err" || fail 'ps --json'
for member in '"namespace": *"lab"' '"pod": *"train-0"' '"container": *"main"'; do
    grep -q "$member" "$out" || fail "no $member: $(cat "$out")"
done
if "$VGPU" set "$container" --memory 1G >"$out" 2>"$err"; then fail 'it can be set'; fi
grep -q 'in the configuration of vgpu-device-plugin' "$err" || fail 'it does not say who sets it'
same 'the policy' 'memory = 2G' "$(head -n 1 "$policy/$uuid")"
if "$VGPU" rm --force "$container" >"$out" 2>"$err"; then fail 'it can be removed'; fi
grep -q 'vgpu-device-plugin removes it' "$err" || fail 'it does not say who removes it'
[ -e "$policy/$uuid" ] || fail 'its policy is gone'
