#!/bin/sh
# claims.sh BUILD: containers of Podman with the CDI devices that vgpu-dra makes for ResourceClaims. The cases are in
# claims.py.
# shellcheck source=tests/container/lib.sh
. "$(dirname "$0")/lib.sh"
needs podman tar
[ -x "$build/vgpu-dra" ] || skip 'vgpu-dra was not built'

engine="podman --root $work/storage --runroot $work/runroot --tmpdir $work/libpod --events-backend none \
    --cgroup-manager cgroupfs --runtime runc"
make_driver
make_image
tar -C "$image" -cf "$work/image.tar" . || exit 1
$engine import "$work/image.tar" vgpu-test >"$work/out" 2>&1 || fail 'the image cannot be imported'
LD_LIBRARY_PATH=$build/sim "$build/demo/hog" </dev/null >/dev/null 2>&1 # makes the machine's state
chmod 666 "$work/gpu/"*                                                  # the simulated machine is everybody's

tests=$(cd "$(dirname "$0")/.." && pwd)
export TMPDIR="$work" PLUGIN="$build/vgpu-dra" LIBRARY="$build/libvgpu.so" VGPU="$build/vgpu" ENGINE="$engine" \
    FLAGS="--network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --device nvidia.com/gpu=0 $driver_flags" \
    SIM="$build/sim"
exec sh "$tests/sim/plugin/run.sh" "$tests/container/claims.py"
