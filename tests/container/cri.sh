#!/bin/sh
# cri.sh BUILD: slices in containers of containerd that it makes by CRI, as the kubelet asks for them: by the names of CDI
# devices. containerd takes these from version 1.7 on.
# shellcheck disable=SC2317 # until_it calls functions
# shellcheck source=tests/container/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/kubernetes/image.sh
. "$(dirname "$0")/../kubernetes/image.sh"
needs containerd ctr containerd-shim-runc-v2
containerd --version | grep -Eq ' v?(1\.([7-9]|[1-9][0-9])|[2-9])\.' || skip 'containerd is older than 1.7'
/usr/bin/python3 -c 'import grpc' 2>/dev/null || skip 'there is no python3-grpcio'

is_up() {
    ctr plugins ls 2>/dev/null | grep -q ' cri .* ok'
}

make_driver
make_image
cat >"$work/containerd.toml" <<TOML
version = 2
root = "$work/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/vgpu-test:1"
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["/run/cdi"]
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
TOML
containerd --config "$work/containerd.toml" >"$work/containerd.log" 2>&1 &
what='containerd starts'
until_it is_up
# shellcheck disable=SC2154 # lib.sh has set it
image localhost/vgpu-test:1 "$image"
vgpu cdi alice --memory 2G --gpus 0 >"$work/out" 2>&1 || fail 'vgpu cdi'
vgpu cdi bob --memory 1G --gpus 0 >"$work/out" 2>&1 || fail 'vgpu cdi'
chmod 666 "$work/gpu/"*
plugin=
[ ! -x "$build/vgpu-dra" ] || plugin=$build/vgpu-dra
export TMPDIR="$work" PLUGIN="$plugin" LIBRARY="$build/libvgpu.so" VGPU="$build/vgpu" LD_LIBRARY_PATH="$build/sim"
exec /usr/bin/python3 -B "$(dirname "$0")/cri.py" /run/containerd/containerd.sock "$work/gpu"
