#!/bin/sh
# check.sh BUILD: container runtimes, and images of other releases. It needs root; Docker and the images also need debootstrap
# and Debian's mirrors, and are left out without them.
#
#   1. the tests of containers, with what this machine has (podman.sh, containerd.sh, cri.sh, docker.sh, claims.sh)
#   2. the same in Debian 13: Docker 26, containerd 1.7, Podman 5
#   3. the image of Containerfile, built with Podman (tests/kubernetes/containerfile.sh)
#   4. images of several releases of glibc, with programs and a simulated driver that were built there (releases.sh); those of
#      Ubuntu need Ubuntu's mirror and its keyring, which Debian does not have
#
# Root directories are made once, and kept in ~/.cache/vgpu; VGPU_ROOTS names another place.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "$1" && pwd)
source=$PWD
roots=${VGPU_ROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/vgpu}
failed=0

report() {
    case $1 in
    0) echo "ok    $2" ;;
    77) echo "none  $2" ;;
    *) echo "FAIL  $2" && failed=1 ;;
    esac
}

# make_root SUITE NAME PACKAGES [MIRROR OPTION...]
make_root() {
    [ ! -d "$roots/$2" ] || return 0
    command -v debootstrap >/dev/null || return 77
    script=/usr/share/debootstrap/scripts/$1
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid # of a release that is newer than debootstrap
    suite=$1 root=$roots/$2 packages=$3 mirror=${4:-http://deb.debian.org/debian}
    shift "$(($# < 4 ? $# : 4))"
    mkdir -p "$roots"
    rm -rf "$root.new"
    debootstrap --variant=minbase --include="$packages" "$@" "$suite" "$root.new" "$mirror" "$script" >"$root.log" 2>&1 ||
        return 77
    mv "$root.new" "$root"
}

# in_root ROOT SCRIPT: a test, in that root, with this tree and the build at their places.
in_root() {
    # shellcheck disable=SC2016 # the inner shell expands them
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root unshare --mount --pid --fork --kill-child sh -euc '
        root=$1 source=$2 build=$3 script=$4
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount --rbind /sys "$root/sys"
        for dir in "$source" "$build"; do
            mkdir -p "$root$dir"
            mount --bind "$dir" "$root$dir"
        done
        cd "$root"
        pivot_root . mnt
        umount -l /mnt
        cd "$source"
        exec sh "$script" "$build"' sh "$1" "$source" "$build" "$2"
}

for runtime in podman containerd cri docker claims; do
    sh "tests/container/$runtime.sh" "$build"
    report $? "$runtime, on this machine"
done
if make_root trixie trixie-runtimes \
    libre2-11,docker.io,docker-cli,containerd,runc,podman,python3-grpcio,openssl,libcurl4t64,libnghttp2-14,libjson-c5,libncursesw6,busybox-static; then
    for runtime in podman containerd cri docker; do
        in_root "$roots/trixie-runtimes" "tests/container/$runtime.sh"
        report $? "$runtime, in Debian 13"
    done
else
    report 77 'Docker: no root of Debian 13 can be made'
fi
sh tests/kubernetes/containerfile.sh
report $? 'the image of Containerfile'
for suite in xenial bionic bullseye bookworm trixie forky; do
    set --
    case $suite in
    xenial | bionic) set -- http://archive.ubuntu.com/ubuntu --components=main,universe --force-check-gpg ;;
    esac
    make_root "$suite" "$suite-images" gcc,libc6-dev,musl-tools "$@" || {
        report 77 "an image of $suite: it cannot be made"
        continue
    }
    sh tests/container/releases.sh "$build" "$roots/$suite-images"
    report $? "an image of $suite"
done
exit "$failed"
