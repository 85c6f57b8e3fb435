#!/bin/sh
# vgpu cdi: slices for containers, their specifications, and command lines that are wrong. tests/container/ has containers.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/json_lib.sh"
. "$(dirname "$0")/steer_lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"
containers=$root/containers
umask 077

# -- without a specification --
vgpu 0 cdi --flags alice --memory 8G --cores 30 --gpus 0
prints "--volume=$NOTHING:/usr/local/lib/libvgpu.so:ro" "--volume=$containers/ld.so.preload:/etc/ld.so.preload:ro" \
    "--volume=$containers/slices/alice:/etc/vgpu/policy:ro" "--volume=$containers/run/alice/shared:/run/vgpu"
same 'the policy' 'memory = 8G
cores = 30' "$(cat "$containers/slices/alice/$uuid0")"
same 'the slice' 'region = /run/vgpu/region
name = alice' "$(cat "$containers/slices/alice/slice")"
same 'what is preloaded' /usr/local/lib/libvgpu.so "$(cat "$containers/ld.so.preload")"
same 'the modes' '755 755 644 644 1777 700' "$(cd "$containers" &&
    stat -c %a slices slices/alice "slices/alice/$uuid0" ld.so.preload run/alice/shared run/alice | xargs)"

# Other limits and GPUs take the place of the former.
vgpu 0 cdi --flags alice --memory 25% --gpus 1 --turns "$root/turns" --gangs "$root/gangs" --gang train
same 'the policy' "$uuid1 slice" "$(cd "$containers/slices/alice" && echo *)"
same 'the memory' 'memory = 20G' "$(cat "$containers/slices/alice/$uuid1")"
grep -qx 'gang = train' "$containers/slices/alice/slice" || fail 'the gang is missing'
grep -qx -- "--volume=$root/turns:/run/vgpu-host/turns" "$out" || fail 'turns are not mounted'
grep -qx -- "--volume=$root/gangs:/run/vgpu-host/gangs" "$out" || fail 'gangs are not mounted'
same 'the directories' '1777 700' "$(stat -c %a "$root/turns" "$root/gangs" | xargs)"

# The directory of vgpud's socket is mounted, so it must have nothing else.
[ ! -e "$containers/run/alice/shared/turns" ] || fail "a mount point is the tenant's"
: >"$VGPU_SOCKET"
wrong 125 'other files' cdi --flags bob --memory 1G --vgpud
rm "$VGPU_SOCKET"
mkdir "$root/vgpud"
: >"$root/vgpud/vgpud.sock"
VGPU_SOCKET=$root/vgpud/vgpud.sock vgpu 0 cdi --flags bob --memory 1G --vgpud
grep -qx -- "--volume=$root/vgpud:/run/vgpud:ro" "$out" || fail "vgpud's socket is not mounted"
vgpu 0 cdi --remove bob
: >"$root/vgpud/other.sock"
VGPU_SOCKET=$root/vgpud/other.sock wrong 125 'is not called vgpud.sock' cdi --flags bob --memory 1G --vgpud

# -- to the other commands it is a slice --
ps 0
line 'alice empty'
vgpu 0 set alice --memory 10G --cores 40
prints 'alice: GPU 1: memory 10 GiB, cores 40 %'
same 'the policy' 'memory = 10G
cores = 40' "$(cat "$containers/slices/alice/$uuid1")"
vgpu 0 pause alice
ps 0
line 'alice 1 0 B 10 GiB 0 % 0 B 0 B 0 B -/40 % paused, empty'
vgpu 0 resume alice
wrong 125 'it is for containers: vgpu cdi --remove removes it' rm alice
wrong 125 'it is for containers' rm --force alice
vgpu 0 rm --all
[ -e "$containers/slices/alice/slice" ] || fail 'vgpu rm removed a slice for containers'

# -- a slice in which a process lives stays --
CUDA_DEVICE_MEMORY_SHARED_CACHE=$containers/run/alice/shared/region "$MEMBER" "$root/there" &
started="$started $!"
wait_for "$root/there"
ps 0
grep -q '^alice 1 .* 1 running$' "$root/words" || fail "the process is not listed: $(cat "$out")"
wrong 125 'the slice alice is not removed: 1 process is in it: stop its containers' cdi --remove alice
[ -e "$containers/slices/alice/slice" ] || fail 'the policy is gone'
kill -9 "$!"
wait "$!" 2>/dev/null
echo noise >"$containers/run/alice/shared/region" # nor does a region that is none keep a slice
vgpu 0 cdi --remove alice
prints 'alice: removed'
same 'what is left' '' "$(find "$containers/slices" "$containers/run" -mindepth 1)"
wrong 125 'there is no such slice: vgpu cdi --list' cdi --remove alice

# -- wrong command lines --
wrong 2 'no name for the slice' cdi --memory 1G
wrong 2 'one slice at a time' cdi --memory 1G a b
wrong 2 'is no name for a slice' cdi --memory 1G a/b
wrong 2 'is no name for a slice' cdi --remove ..
wrong 2 'no slice to remove' cdi --remove
wrong 2 'a slice wants a limit' cdi alice
wrong 2 '--unlimited is for a slice without limits' cdi alice --unlimited --cores 30
wrong 2 'is no size' cdi alice --memory lots
wrong 2 'names no GPU' cdi alice --memory 1G --gpus 1x
wrong 125 'there is no GPU 7' cdi alice --memory 1G --gpus 7
wrong 125 'is more than GPU 0 has' cdi alice --memory 81G
wrong 2 'leave --output out' cdi alice --memory 1G --flags --output -
wrong 2 '--json is for --list: leave --json out, or add --list' cdi alice --memory 1G --json
wrong 2 '--memory and --list do not go together: leave one out' cdi --list --memory 1G
wrong 2 'leave the name out' cdi --list alice
wrong 125 "vgpud's socket $VGPU_SOCKET is not there" cdi alice --memory 1G --vgpud
wrong 125 'take an absolute path' cdi --flags alice --memory 1G --turns here
VGPU_CONTAINERS=here wrong 125 'VGPU_CONTAINERS is no absolute path' cdi alice --memory 1G
[ ! -e "$containers/slices/alice" ] || fail 'a wrong command line made a slice'
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$root"
    vgpu 0 cdi --flags alice --memory 1G
    setpriv --reuid 65534 --clear-groups "$VGPU" ps >"$out" 2>"$err"
    grep -q alice "$out" && fail 'another user sees a slice whose directory is not open to it'
    vgpu 0 cdi --remove alice
    env -u VGPU_CONTAINERS setpriv --reuid 65534 --clear-groups "$VGPU" cdi alice --memory 1G >"$out" 2>"$err"
    same 'the status of another user' 125 "$?"
    grep -q 'run this as root' "$err" || fail 'another user is not told to be root'
fi

# -- the specification --
json cdi --list --json
same 'what is found' '[]' "$(found 'd["slices"]')"
vgpu 0 cdi bob --memory 2G --gpus 0
prints vgpu.local/slice=bob
vgpu 0 cdi alice --memory 4G,8G --cores 10,none --burst 30ms
same 'the files' 'vgpu-alice.json vgpu-bob.json' "$(cd "$containers/cdi" && echo *)"
same 'the mode' 644 "$(stat -c %a "$containers/cdi/vgpu-bob.json")"
cp "$containers/cdi/vgpu-bob.json" "$out"
mounts='d["devices"][0]["containerEdits"]["mounts"]'
same 'the specification' '"0.5.0"
"vgpu.local/slice"
["bob"]
["cdiVersion", "devices", "kind"]
["/usr/local/lib/libvgpu.so", "/etc/ld.so.preload", "/etc/vgpu/policy", "/run/vgpu"]
["ro", "ro", "ro", "rw"]
[false, true, true, true]' "$(found 'd["cdiVersion"]' 'd["kind"]' '[one["name"] for one in d["devices"]]' 'sorted(d)' \
    "[m['containerPath'] for m in $mounts]" "[m['options'][0] for m in $mounts]" "['noexec' in m['options'] for m in $mounts]")"
same 'the host paths' "[\"$NOTHING\", \"$containers/ld.so.preload\", \"$containers/slices/bob\", \"$containers/run/bob/shared\"]" \
    "$(found "[m['hostPath'] for m in $mounts]")"
vgpu 0 cdi bob --memory 2G --gpus 0 --output -
cmp -s "$out" "$containers/cdi/vgpu-bob.json" || fail 'standard output has another specification than the file'
(cd "$root" && vgpu 0 cdi bob --memory 2G --gpus 0 --output bob.json) || exit 1
cmp -s "$root/bob.json" "$containers/cdi/vgpu-bob.json" || fail '--output writes another specification'

vgpu 0 cdi --list
same 'the list' 'SLICE GPU MEMORY CORES SPECIFICATION
alice 0 4 GiB 10 % CDI/vgpu-alice.json
alice 1 8 GiB none CDI/vgpu-alice.json
bob 0 2 GiB none CDI/vgpu-bob.json' "$(sed "s|$containers/cdi|CDI|; s/  */ /g" "$out")"
json cdi --list --json
same 'the document' '["alice", "bob"]
["vgpu.local/slice=alice", "vgpu.local/slice=bob"]
[4294967296, 8589934592]
[10, null]
[30000000, 30000000]
null' "$(found '[s["name"] for s in d["slices"]]' '[s["device"] for s in d["slices"]]' \
    '[g["memory_limit_bytes"] for g in d["slices"][0]["gpus"]]' '[g["cores_limit_pct"] for g in d["slices"][0]["gpus"]]' \
    '[g["burst_ns"] for g in d["slices"][0]["gpus"]]' 'd["slices"][0]["error"]')"
: >"$containers/slices/bob/$uuid0"
vgpu 0 cdi --list
grep -q '^bob .*does not say how much memory' "$out" || fail 'a policy that cannot be read is not listed'
vgpu 0 cdi --remove alice bob
prints 'alice: removed' 'bob: removed'
same 'the files' '' "$(ls -A "$containers/cdi")"

# -- a container for a single run --
# shellcheck disable=SC2016 # the shell of that name expands them
printf '#!/bin/sh\nprintf "%%s\\n" "$@"\nls "$VGPU_CONTAINERS/slices"\nexit 7\n' >"$root/podman"
chmod 755 "$root/podman"
expect 7 --container --name single --memory 1G --gpus 1 "$root/podman" --log-level error run --rm IMAGE run
prints --log-level error run "--volume=$NOTHING:/usr/local/lib/libvgpu.so:ro" "--volume=$containers/ld.so.preload:/etc/ld.so.preload:ro" \
    "--volume=$containers/slices/single:/etc/vgpu/policy:ro" "--volume=$containers/run/single/shared:/run/vgpu" --rm IMAGE run single
same 'what is left' '' "$(find "$containers/slices" "$containers/run" -mindepth 1)"
expect 7 --container --memory 1G "$root/podman" run IMAGE
grep -q '^run-[0-9]*$' "$out" || fail 'a slice without a name has none'
refuse 2 'has no "run" or "create"' --container --memory 1G "$root/podman" ps
refuse 2 '--group and --container do not go together' --container --memory 1G --group 0 "$root/podman" run IMAGE
refuse 2 '--container makes a slice' --container --name single "$root/podman" run IMAGE
refuse 2 'is no name for a slice for containers' --container --name _x --memory 1G "$root/podman" run IMAGE
refuse 127 'not found: check' --container --memory 1G "$root/nowhere" run IMAGE
vgpu 0 cdi --flags single --memory 2G
refuse 125 'there is a slice single for containers already' --container --name single --memory 1G "$root/podman" run IMAGE
same 'the policy' 'memory = 2G' "$(cat "$containers/slices/single/$uuid0")"

# A process that outlives the command keeps the slice.
cat >"$root/podman" <<SCRIPT
#!/bin/sh
"$VGPU" run --memory 1G sh -c 'cp "\$CUDA_DEVICE_MEMORY_SHARED_CACHE" "$containers/run/late/shared/region"'
CUDA_DEVICE_MEMORY_SHARED_CACHE=$containers/run/late/shared/region "$MEMBER" "$root/late" &
echo \$! >"$root/late.pid"
until [ -e "$root/late" ]; do sleep 0.05; done
SCRIPT
"$VGPU" run --container --name late --memory 1G "$root/podman" run IMAGE >"$out" 2>"$err"
same 'the status' 0 "$?"
started="$started $(cat "$root/late.pid")"
grep -q 'warning: 1 process is in the slice late still, and it stays: vgpu cdi --remove late' "$err" || fail 'no warning'
[ -e "$containers/slices/late/slice" ] || fail 'a slice in use was removed'
