#!/bin/sh
# make aarch64: what is built for aarch64 (cmake/aarch64.cmake), and its tests under emulation. Linux runs
# each aarch64 program through qemu then, in user and mount namespaces of its own: nothing else on the machine sees it.
# What the tests take from there lies over /usr/lib: the cross compiler's libc, and VGPU_AARCH64_ROOT's libraries.
#
#     tests/aarch64.sh BUILD [CTEST-ARGUMENT…]
#
# Not said of aarch64 by what fails there: tests that run the machine's own programs, or a compiler, under the library;
# that become another user, of whom there is one, or change back to a namespace; that set up seccomp, which qemu has
# not; that look at /proc, whose command lines and mappings are qemu's; and time limits. sim.faults takes hours. Nor does it show what order aarch64 leaves to memory: qemu on x86-64 has x86-64's.
set -u
build=$1
shift

# need WHAT CONDITION…
need() {
    what=$1
    shift
    "$@" >/dev/null 2>&1 && return
    echo "skipped: the tests of the aarch64 build need $what"
    exit 77
}

qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64)
need 'qemu-user-static' test -n "$qemu"
need "Linux 6.7's binfmt_misc in user namespaces" \
    unshare --user --map-root-user --mount mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
root=$(sed -n 's/^VGPU_AARCH64_ROOT:PATH=//p' "$build/CMakeCache.txt")
triplet=aarch64-linux-gnu
over=/usr/$triplet/lib
for dir in "$root/lib/$triplet" "$root/usr/lib/$triplet"; do
    [ -z "$root" ] || [ ! -d "$dir" ] || over=$over:$dir
done

magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
# P: the name that it was called by stays; F: also in another root.
export rule=":vgpu-aarch64:M::$magic:$mask:$qemu:PF" over
# shellcheck disable=SC2016 # expanded inside
exec unshare --user --map-root-user --mount sh -euc '
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    printf %s "$rule" >/proc/sys/fs/binfmt_misc/register
    mount -t overlay -o "lowerdir=$over:/usr/lib" overlay /usr/lib
    unset rule over
    exec "$@"' sh ctest --test-dir "$build" "$@"
