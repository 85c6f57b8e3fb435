#!/bin/sh
# containerfile.sh [TAG]: builds the image of Containerfile with Podman, over a base that debootstrap makes, so that
# no image registry is needed, and looks whether its programs run there, as a user without rights.
#
# The base is made once, as a root directory in ~/.cache/vgpu, as tests/other_debian.sh does; the finished image is
# localhost/vgpu:test, or TAG. It needs root, Podman, debootstrap and Debian's mirror.
# Exits with 77 and a reason where it cannot run.
set -eu
cd "$(dirname "$0")/../.."
suite=bookworm
tag=${1:-localhost/vgpu:test}
roots=${VGPU_ROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/vgpu}
base=localhost/debian:$suite
failures=0

skip() {
    echo "skipped: $*"
    exit 77
}

make_base() {
    mkdir -p "$roots"
    rm -rf "$roots/$suite.new"
    [ -d "$roots/$suite" ] || {
        debootstrap --variant=minbase "$suite" "$roots/$suite.new" >"$roots/$suite.log" 2>&1 ||
            skip "debootstrap cannot make a root of $suite; $roots/$suite.log has its output"
        mv "$roots/$suite.new" "$roots/$suite"
    }
    tar -C "$roots/$suite" --exclude=./src/vgpu --exclude=./var/cache/apt/archives/*.deb -cf - . |
        podman import - "$base" >/dev/null
}

# sees WHAT COMMAND...
sees() {
    what=$1
    shift
    if "$@" >/dev/null 2>&1; then
        echo "  ok    $what"
    else
        echo "  FAIL  $what"
        failures=$((failures + 1))
    fi
}

# In the image, as its own user, with nothing that a container can lack.
inside() {
    podman run --rm --runtime runc --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --network none --read-only \
        --cap-drop ALL --security-opt no-new-privileges "$tag" "$@"
}

[ "$(id -u)" = 0 ] || skip 'debootstrap needs root'
for tool in podman debootstrap runc; do
    command -v "$tool" >/dev/null 2>&1 || skip "there is no $tool"
done
podman image exists "$base" || make_base
nice -n 5 podman build --runtime runc --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --network host \
    --build-arg "BASE=$base" --tag "$tag" .
sees 'vgpu-device-plugin runs' inside vgpu-device-plugin --version
sees 'vgpu-dra runs' inside vgpu-dra --version
sees 'vgpud runs' inside vgpud --version
sees 'vgpu runs' inside vgpu --version
sees 'the library loads' inside env LD_PRELOAD=/usr/lib/vgpu/libvgpu.so grep -q libvgpu /proc/self/maps
# shellcheck disable=SC2016 # the inner shell expands it
sees 'no program of the image runs as root by itself' inside sh -c '[ "$(id -u)" != 0 ]'
sees 'no compiler is left in it' inside sh -c '! command -v gcc && ! command -v make'
[ "$failures" = 0 ]
