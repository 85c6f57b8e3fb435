#!/bin/sh
# other_debian.sh SUITE [CTEST-ARGUMENT...]: builds and tests this tree on another release of Debian, such as
# trixie. Without arguments for CTest, it runs ./dev demo and ./dev test there, as root. With some, those tests
# run as another user, as on a workstation.
#
# It needs root, debootstrap and Debian's mirrors. The release's root directory is made once, and kept in
# ~/.cache/vgpu; VGPU_ROOTS names another place. Programs run there as in a container: with a pid
# namespace, mounts and /proc of their own. At the end, each release loads the library that the other
# one has built. Exits with 77 and a reason where it cannot run.
set -eu
cd "$(dirname "$0")/.."
suite=$1
shift
roots=${VGPU_ROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/vgpu}
root=$roots/$suite

skip() {
    echo "skipped: $*"
    exit 77
}

# A root directory counts once it is renamed into place: an interrupted debootstrap leaves another name.
make_root() {
    mkdir -p "$roots"
    rm -rf "$root.new"
    debootstrap --variant=minbase --include=ninja-build "$suite" "$root.new" >"$root.log" 2>&1 || {
        tail -n 5 "$root.log" >&2
        rm -rf "$root.new"
        skip "debootstrap cannot make a root of $suite; $root.log has its output"
    }
    mv "$root.new" "$root"
}

# Lays this tree into the root, without what git ignores. The build there is a new one each time.
lay_tree() {
    rm -rf "$root/src/vgpu"
    mkdir -p "$root/src/vgpu"
    git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- -cf - |
        tar -C "$root/src/vgpu" -xf -
}

# inside SCRIPT [ARGUMENT...]: runs a shell's script in the root, in /src/vgpu.
inside() {
    # shellcheck disable=SC2016 # the inner shell expands them
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG=C.UTF-8 \
        http_proxy="${http_proxy-}" https_proxy="${https_proxy-}" \
        unshare --mount --pid --fork --kill-child sh -euc '
        root=$1 script=$2
        shift 2
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount --rbind /sys "$root/sys"
        cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || :
        cd "$root"
        pivot_root . mnt
        umount -l /mnt
        cd /src/vgpu
        exec sh -euc "$script" sh "$@"' sh "$root" "$@"
}

[ "$(id -u)" = 0 ] || skip 'another root directory needs root'
command -v debootstrap >/dev/null 2>&1 || skip 'there is no debootstrap'
unshare --mount --pid --fork true 2>/dev/null || skip 'mount and pid namespaces are not permitted here'
[ -d "$root" ] || make_root
lay_tree

if [ $# -eq 0 ]; then
    inside './dev demo && ./dev test'
else
    demo/build.sh build
    cp build/libvgpu.so "$root/src/vgpu/from-outside.so"
    # Ninja takes a quarter less time than make.
    # shellcheck disable=SC2016 # the inner shell expands it
    inside '! command -v ninja >/dev/null || export CMAKE_GENERATOR=Ninja
        CFLAGS=-Werror ./dev test -N "$@"
        id -u tester >/dev/null 2>&1 || useradd --create-home tester
        chown -R tester .
        setpriv --reuid=tester --regid=tester --init-groups env HOME=/home/tester ./dev test "$@"
        tests/holds.sh build /src/vgpu/from-outside.so' "$@"
    tests/holds.sh build "$root/src/vgpu/build/libvgpu.so"
fi
