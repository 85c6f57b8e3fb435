#!/bin/sh
# hami.sh BUILD [SCRATCH]: HAMi's answer to Allocate, replayed with Podman over the simulated driver: the environment, the mounts
# and ld.so.preload that docs/hami.md lists, and a monitor that knows the bytes of HAMi's region and nothing else
# (hami_region.py). Exits with 77 and a reason where it cannot run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
# shellcheck source=tests/kubernetes/image.sh
. "$here/../kubernetes/image.sh"
uuid=GPU-51300000-0000-4000-8000-000000000000 # of the simulated machine's first GPU
pod=6b9fa1a4-5d3c-4a53-9c38-1f7a1f1c0d11
failures=0

skip() {
    echo "skipped: $*"
    exit 77
}

# All of it runs in namespaces of its own: at the end no process and no mount of Podman's is left, and the scratch
# directory can be removed.
if [ $# -eq 1 ]; then
    [ "$(id -u)" = 0 ] || skip 'containers need root here'
    for tool in podman runc python3 unshare; do
        command -v "$tool" >/dev/null 2>&1 || skip "there is no $tool"
    done
    unshare --mount --pid --fork true 2>/dev/null || skip 'mount and pid namespaces are not permitted here'
    scratch=$(mktemp -d)
    trap 'rm -rf --one-file-system "$scratch"' EXIT
    trap 'exit 1' HUP INT TERM
    unshare --mount --propagation private --pid --fork --kill-child --mount-proc sh "$0" "$build" "$scratch"
    exit
fi
scratch=$2
mount -t tmpfs tmpfs /run # runc's and Podman's state

engine() {
    podman --root "$scratch/storage" --runroot "$scratch/run" --tmpdir "$scratch/libpod" --events-backend none \
        --cgroup-manager cgroupfs --runtime runc "$@"
}

# sees WHAT COMMAND...
sees() {
    seen=$1
    shift
    if "$@"; then
        echo "  ok    $seen"
    else
        echo "  FAIL  $seen"
        failures=$((failures + 1))
    fi
}

wait_until() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || return 1
        sleep 0.2
    done
}

# -- the node ---------------------------------------------------------------------------------------------------------

# As vgpu-init.sh leaves /usr/local/vgpu: the library with the plugin's version in its name, and ld.so.preload.
make_node() {
    mkdir -p "$scratch/node/containers" "$scratch/lock" "$scratch/gpu"
    chmod 1777 "$scratch/lock" "$scratch/gpu"
    cp "$build/libvgpu.so" "$scratch/node/libvgpu.so.v2.10.0"
    echo /usr/local/vgpu/libvgpu.so >"$scratch/node/ld.so.preload"
}

# Of programs of this machine; and the driver, which NVIDIA's runtime would mount.
make_root() {
    lay "$scratch/root" /usr/bin /bin/sh /usr/bin/sleep /usr/bin/cat /usr/bin/env "$build/demo/hog" "$build/bench/shares"
    lay "$scratch/root" "/usr/lib/$(uname -m)-linux-gnu" "$build/sim/libcuda.so.1" "$build/sim/libnvidia-ml.so.1"
    mkdir -p "$scratch/root/tmp/vgpulock" "$scratch/root/usr/local/vgpu" "$scratch/root/etc" "$scratch/root/gpu" \
        "$scratch/root/proc" "$scratch/root/sys" "$scratch/root/dev"
    : >"$scratch/root/etc/ld.so.preload"
    ln -sf usr/bin "$scratch/root/bin"
}

# container NAME COMMAND...: runs in the background, with what HAMi's plugin answers for a container of 2048 MiB and 30 %.
# Its directory is there before it, of mode 0777, and stays.
container() {
    name=$1
    shift
    mkdir -p "$scratch/node/containers/${pod}_$name"
    chmod 777 "$scratch/node/containers/${pod}_$name"
    engine run --detach --name "$name" --network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
        --env "NVIDIA_VISIBLE_DEVICES=$uuid" \
        --env CUDA_DEVICE_MEMORY_LIMIT_0=2048m \
        --env CUDA_DEVICE_SM_LIMIT=30 \
        --env "CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/$uuid.cache" \
        --volume "$scratch/node/containers/${pod}_$name:/usr/local/vgpu" \
        --volume "$scratch/node/libvgpu.so.v2.10.0:/usr/local/vgpu/libvgpu.so:ro" \
        --volume "$scratch/lock:/tmp/vgpulock" \
        --volume "$scratch/node/ld.so.preload:/etc/ld.so.preload:ro" \
        --volume "$scratch/gpu:/gpu" --env VGPU_SIM_STATE=/gpu/state --env VGPU_SIM_GPUS=1x80G \
        --rootfs "$scratch/root" "$@" >/dev/null
}

# The monitor's view of a container, by HAMi's offsets: a question, and what hami_region.py says to it.
region() {
    name=$1
    shift
    python3 "$here/hami_region.py" "$scratch/node/containers/${pod}_$name/$uuid.cache" "$@"
}

is_full() {
    engine logs "$1" 2>&1 | grep -q 'one byte more: CUDA_ERROR_OUT_OF_MEMORY'
}

# holds_mib LEAST MOST: what NVML counts on the GPU, outside.
holds_mib() {
    used=$(env LD_LIBRARY_PATH="$build/sim" VGPU_SIM_STATE="$scratch/gpu/state" VGPU_SIM_GPUS=1x80G "$build/demo/outside")
    used=${used%% *}
    if [ "$used" -lt "$1" ] || [ "$used" -gt "$2" ]; then
        echo "NVML counts $used MiB" >&2
        return 1
    fi
}

# session NAME COMMAND...: as by ssh or cron: without the container's environment. The simulated GPU's variables are no
# part of HAMi's.
session() {
    name=$1
    shift
    engine exec "$name" env -i VGPU_SIM_STATE=/gpu/state VGPU_SIM_GPUS=1x80G "$@"
}

# calibrate: by what shares counts its work. Outside, as a limit would change what is measured.
calibrate() {
    env LD_LIBRARY_PATH="$build/sim" VGPU_SIM_STATE="$scratch/gpu/state" VGPU_SIM_GPUS=1x80G "$build/bench/shares" --calibrate |
        sed -n 's/^iters_per_us=/--iters-per-us=/p'
}

# has_share NAME LEAST MOST: in percent, the part of the GPU's time that a program gets in a session of a second. A busy
# machine has less to give, and measures badly what work is: so it tries again, some times.
has_share() {
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        session "$1" shares "$(calibrate)" --seconds=1 >"$scratch/shares" 2>&1 || return 1
        share=$(sed -n 's/.*\<share=\([0-9.]*\).*/\1/p' "$scratch/shares" | tail -n 1)
        ! awk -v share="$share" -v least="$2" -v most="$3" \
            'BEGIN { exit !(100 * share >= least && 100 * share <= most) }' || return 0
    done
    echo "after $try tries its share is $share" >&2
    return 1
}

# -- what is seen -----------------------------------------------------------------------------------------------------

hog='sleep infinity | hog'
make_node
make_root

echo 'one container:'
container a sh -c "$hog"
sees 'it fills its 2048 MiB, and is refused the next byte' wait_until is_full a
sees 'the region is HAMi layout 1.2, byte for byte' region a header "$uuid" 2048 30
used=$(region a used)
sees 'the monitor reads what NVML counts, to a granule' holds_mib "$((used - 2))" "$((used + 2))"
sees 'which is 2048 MiB at most, and 99 % of it at least' holds_mib 2028 2050

echo 'a session without environment:'
session a hog </dev/null >"$scratch/session" 2>&1 || :
sees 'it has no context in a full container' grep -q CUDA_ERROR_OUT_OF_MEMORY "$scratch/session"
sees 'outside, NVML counts no more than before' holds_mib 2028 2050

echo 'two containers of a pod:'
container b sh -c "$hog"
sees 'the second has 2048 MiB of its own' wait_until is_full b
sees 'outside, NVML counts both' holds_mib 4056 4100

echo 'a restart over an old region:'
engine kill --signal KILL a >/dev/null
engine rm --force --time 0 a >/dev/null
container a sh -c "$hog"
sees 'what the dead left counts for nothing' wait_until is_full a
sees 'one process is in the region' region a processes 1
sees 'outside, NVML counts two containers' holds_mib 4056 4100

echo 'the monitor writes:'
container c sh -c 'hog </dev/null; sleep infinity' # its first program makes the region
wait_until is_full c
calibrated=$(calibrate)
region c block
session c shares "$calibrated" --seconds=1 >"$scratch/shares" 2>&1 &
session=$!
sleep 3
sees 'a blocked container launches nothing' test ! -s "$scratch/shares"
region c unblock
wait "$session" || :
sees 'it goes on when it is unblocked' grep -q share= "$scratch/shares"
sees 'it says that it has launched' region c launched
sees 'its 30 % are a limit' has_share c 0.1 33
region c lift
sees 'it gets more when the monitor lifts the limit' has_share c 40 101
region c limit
sees 'its 30 % are a limit again' has_share c 0.1 33
engine rm --all --force --time 0 >/dev/null 2>&1 || : # and their cgroups
[ "$failures" = 0 ]
