#!/bin/sh
# containerd.sh BUILD: slices in containers of containerd, started by its ctr. One that takes no CDI
# devices gets the mounts of the same specifications.
# shellcheck disable=SC2086,SC2317 # $flags holds several; until_it calls functions
# shellcheck source=tests/container/lib.sh
. "$(dirname "$0")/lib.sh"
needs containerd ctr containerd-shim-runc-v2

engine() {
    ctr --address "$work/containerd.sock" "$@"
}

is_up() {
    engine version >/dev/null 2>&1
}

# device KIND=NAME: the flags by which a container gets it.
device() {
    if [ "$has_cdi" = yes ]; then
        echo "--device $1"
    else
        python3 -c 'import glob, json, sys
kind, name = sys.argv[1].split("=")
for path in glob.glob("/run/cdi/*.json"):
    spec = json.load(open(path))
    for one in spec["devices"]:
        if spec["kind"] == kind and one["name"] == name:
            for mount in spec.get("containerEdits", {}).get("mounts", []) + one["containerEdits"].get("mounts", []):
                print("--mount type=bind,src=%s,dst=%s,options=%s"
                    % (mount["hostPath"], mount["containerPath"], ":".join(mount["options"])))' "$1"
    fi
}

count=0
# container WHAT FLAGS -- COMMAND...: runs it in a container that has the GPU, and waits; its output is in $work/out.
container() {
    what=$1
    shift
    wanted=
    while [ "$1" != -- ]; do
        wanted="$wanted $1"
        shift
    done
    shift
    count=$((count + 1))
    # ctr does not end a container's standard input.
    # shellcheck disable=SC2016 # the shell in the container expands it
    engine run --rm $flags $wanted --rootfs "$image" "test$count" sh -c '"$@" </dev/null' sh "$@" >"$work/out" 2>&1
}

# keep NAME FLAGS...: a container that holds all that it can get until it is stopped.
keep() {
    name=$1
    shift
    engine run -d $flags "$@" --rootfs "$image" "$name" sh -c "sleep 1000 | hog >/gpu/$name" >"$work/out" 2>&1 ||
        fail "$what: $name does not start"
    until_it holds "$name"
}

holds() {
    grep -qs 'one byte more' "$work/gpu/$1"
}

make_driver
make_image
mkdir -p /run/containerd
echo 'disabled_plugins = ["io.containerd.grpc.v1.cri"]' >"$work/containerd.toml"
containerd --config "$work/containerd.toml" --root "$work/containerd" --state "$work/containerd.state" \
    --address "$work/containerd.sock" >"$work/containerd.log" 2>&1 &
what='containerd starts'
until_it is_up
vgpu cdi alice --memory 2G --gpus 0 >"$work/out" 2>&1 || fail 'vgpu cdi'
vgpu cdi bob --memory 1G --gpus 0 >"$work/out" 2>&1 || fail 'vgpu cdi'
chmod 666 "$work/gpu/"*
has_cdi=no
engine run --rm --device vgpu.local/slice=alice --rootfs "$image" "probe" /usr/bin/env >"$work/out" 2>&1 && has_cdi=yes
flags="$(device nvidia.com/gpu=0) --mount type=bind,src=$work/gpu,dst=/gpu,options=rw:bind --env VGPU_SIM_STATE=/gpu/state --env VGPU_SIM_GPUS=2x80G --env PATH=/usr/bin"
alice=$(device vgpu.local/slice=alice)
bob=$(device vgpu.local/slice=bob)

container 'without a slice' -- hog
says '81920 MiB'
container 'a slice' $alice -- hog
sees 2048
container 'another one' $bob -- hog
sees 1024
container 'an empty environment' $alice -- env -i VGPU_SIM_STATE=/gpu/state hog
sees 2048
container 'a read-only root' --read-only $alice -- hog
sees 2048
drops= # containerd's defaults
for capability in AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID \
    SYS_CHROOT; do
    drops="$drops --cap-drop CAP_$capability"
done
container 'no capabilities' $drops $alice -- sh -c 'grep CapEff /proc/self/status; hog'
says 'CapEff:.*0000000000000000'
sees 2048
container 'the pid namespace of the host' --with-ns pid:/proc/1/ns/pid $alice -- hog
sees 2048
if [ -e "$image/usr/bin/busybox" ]; then
    container 'a static program' $bob -- vgpu doctor busybox
    says '^FAIL *held.*linked statically'
    container 'what a static program starts' $bob -- busybox env hog
    sees 1024
fi

# -- what the tenant may not --
tenant_attempts $alice
container 'after that' $alice -- hog
sees 2048

# -- several, side by side; exec; restart --

what='side by side'
keep first $alice
cat "$work/gpu/first" >"$work/out"
sees 2048
container 'another slice at the same time' $bob -- hog
sees 1024
container 'the same slice, which is full' $alice -- hog
says 'CUDA_ERROR_OUT_OF_MEMORY'
what='exec'
engine task exec --exec-id one first sh -c 'hog </dev/null' >"$work/out" 2>&1
says 'CUDA_ERROR_OUT_OF_MEMORY'
what='exec as another user'
engine run -d $flags $bob --rootfs "$image" idle sleep 1000 >"$work/out" 2>&1 || fail "$what: the container does not start"
engine task exec --exec-id one --user 1000:1000 idle sh -c 'hog </dev/null' >"$work/out" 2>&1
sees 1024
what='restart'
engine task kill --signal KILL first >"$work/out" 2>&1 || fail "$what: it is not killed"
until_it engine task rm first >/dev/null 2>&1
rm "$work/gpu/first"
engine task start -d first >"$work/out" 2>&1 || fail "$what: it does not start"
until_it holds first
cat "$work/gpu/first" >"$work/out"
sees 2048
engine task kill --signal KILL first >/dev/null 2>&1
until_it engine task rm first >/dev/null 2>&1
container 'the slice after it' $alice -- hog
sees 2048

# -- other limits --
what='other limits for a running container'
vgpu cdi bob --memory 1536m --gpus 0 >/dev/null || fail 'vgpu cdi'
engine task exec --exec-id two idle sh -c 'hog </dev/null' >"$work/out" 2>&1
sees 1536
what='a slice removed under its container'
vgpu cdi --remove bob >"$work/out" 2>&1 || fail "$what: it is not removed"
engine task exec --exec-id three idle sh -c 'hog </dev/null' >"$work/out" 2>&1
grep -q 'the program sees' "$work/out" && fail "$what: the program has a GPU"
container 'the mounts of a removed slice' $bob -- hog
grep -q 'the program sees' "$work/out" && fail "$what: the program starts"
engine task kill --signal KILL idle >/dev/null 2>&1
exit 0
