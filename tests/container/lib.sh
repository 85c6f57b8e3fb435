#!/bin/sh
# What the tests of containers share, to be sourced with the build directory as $1: mounts and processes of the test's own,
# an image, a machine with two simulated GPUs, and a CDI device that stands for NVIDIA's.
#
# All files are in a tmpfs over /run, in a mount namespace of the test's own, and all processes in a pid namespace: whatever
# happens, nothing is left.
# shellcheck disable=SC2034 # the tests use what is set here
set -u

skip() {
    echo "skipped: $*"
    exit 77
}

fail() {
    echo "FAILED: $*" >&2
    [ ! -s "$work/out" ] || sed 's/^/    it printed: /' "$work/out" >&2
    exit 1
}

# needs COMMAND...: they are here, or the test is skipped.
needs() {
    for tool; do
        command -v "$tool" >/dev/null 2>&1 || skip "$tool is not here"
    done
}

what='the test' # which case this is
build=$(cd "$1" && pwd)
work=/run/test
if [ "${VGPU_TEST_NAMESPACE:-}" != own ]; then
    [ "$(id -u)" -eq 0 ] || skip 'containers need root here'
    needs unshare runc python3
    unshare --mount --pid --fork true 2>/dev/null || skip 'mount and pid namespaces are not permitted here'
    VGPU_TEST_NAMESPACE=own exec unshare --mount --propagation private --pid --fork --kill-child --mount-proc sh "$0" "$@"
fi
mount -t tmpfs -o mode=755 tmpfs /run || exit 1
umask 022
mkdir -p "$work/gpu" "$work/containers/cdi" /run/cdi
chmod 1777 "$work/gpu"
mount --bind "$work/containers/cdi" /run/cdi || exit 1
export VGPU_CONTAINERS="$work/containers" VGPU_SIM_STATE="$work/gpu/state" VGPU_SIM_GPUS=2x80G
unset LD_PRELOAD VGPU_POLICY VGPU_LIBRARY VGPU_STATE

vgpu() {
    LD_LIBRARY_PATH=$build/sim "$build/vgpu" "$@"
}

# -- the driver --
# What NVIDIA's specification has of its driver: its libraries, where the loader looks. The simulated one needs variables and
# a file as well, which are the container's own: what a specification sets, exec does not get.
driver_libraries="$build/sim/libcuda.so.1 $build/sim/libnvidia-ml.so.1"
driver_flags="-v $work/gpu:/gpu -e VGPU_SIM_STATE=/gpu/state -e VGPU_SIM_GPUS=2x80G"

# driver_volumes: the same mounts as flags of Podman and Docker.
driver_volumes() {
    for library in $driver_libraries; do
        echo "--volume=$library:/usr/lib/${library##*/}:ro"
    done
}

make_driver() {
    separator=
    mounts=
    for library in $driver_libraries; do
        mounts="$mounts$separator{\"hostPath\": \"$library\", \"containerPath\": \"/usr/lib/${library##*/}\", \"options\": [\"ro\", \"bind\"]}"
        separator=', '
    done
    cat >"$work/containers/cdi/nvidia.json" <<JSON
{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits":
 {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}}],
 "containerEdits": {"mounts": [$mounts]}}
JSON
}

# -- the image --
image=$work/image

# put FILE [PATH]: a program of the host into the image, with the libraries that it needs.
put() {
    mkdir -p "$image/$(dirname "${2:-$1}")"
    cp -L "$1" "$image/${2:-$1}"
    ldd "$1" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
        [ -e "$image/$library" ] || {
            mkdir -p "$image/$(dirname "$library")"
            cp -L "$library" "$image/$library"
        }
    done
}

# make_image: a root with a shell, a few programs and the demo's greedy one.
make_image() {
    mkdir -p "$image/etc" "$image/tmp" "$image/proc" "$image/sys" "$image/dev" "$image/run"
    chmod 1777 "$image/tmp"
    for program in sh cat env sleep grep mount umount; do
        put "$(command -v "$program")" "/usr/bin/$program"
    done
    ln -s usr/bin "$image/bin"
    put "$build/demo/hog" /usr/bin/hog
    put "$build/vgpu" /usr/bin/vgpu
    if command -v busybox >/dev/null && ! ldd "$(command -v busybox)" >/dev/null 2>&1; then
        put "$(command -v busybox)" /usr/bin/busybox
    fi
    echo 'root:x:0:0::/:/bin/sh' >"$image/etc/passwd"
}

# tenant_attempts FLAGS...: a tenant with that slice fails to lift its limits; run by the test's `container`.
tenant_attempts() {
    for attempt in 'echo memory = 80G >/etc/vgpu/policy/slice' 'echo >/etc/ld.so.preload' 'umount /etc/vgpu/policy' \
        'umount /etc/ld.so.preload' 'mount -o remount,rw /etc/vgpu/policy' 'echo >/usr/local/lib/libvgpu.so'; do
        ! container "the tenant's $attempt" "$@" -- sh -c "$attempt" || fail "$what: it succeeds"
    done
}

# -- what a container printed --
# sees MIB: the program in it saw a GPU of that size, took all of it, and got no byte more.
sees() {
    grep -q "the program sees a GPU of $1 MiB" "$work/out" || fail "$what: the program does not see $1 MiB"
    grep -q 'one byte more: CUDA_ERROR_OUT_OF_MEMORY' "$work/out" || fail "$what: the program is not held"
}

says() {
    grep -q -- "$1" "$work/out" || fail "$what: it does not say \"$1\""
}

# until_it COMMAND...: until it succeeds, or fail with what it should be.
until_it() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 500 ] || fail "$what"
        sleep 0.05
    done
}
