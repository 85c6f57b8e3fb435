#!/bin/sh
# `vgpu doctor`: the library, and what is preloaded.
# shellcheck disable=SC2119 # doctor may have no arguments
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/doctor_lib.sh"

# the_library FILE: doctor's word on it as the library.
the_library() {
    VGPU_LIBRARY=$1
    doctor
    VGPU_LIBRARY=$library
}
the_library "$library"
says ok library "$library, version "
grep -q 'needs glibc 2\.\(1[0-7]\|[0-9]\)$' "$out" || fail "its glibc: $(cat "$out")"
the_library "$LD_LIBRARY_PATH/libcuda.so.1"
says FAIL library "$LD_LIBRARY_PATH/libcuda.so.1 is not vgpu's"
the_library "$root/none.so"
says FAIL library "VGPU_LIBRARY is $root/none.so, which cannot be read"
head -c 5000 /dev/urandom >"$root/noise.so"
the_library "$root/noise.so"
says FAIL library 'is no library, or a damaged one'
: >"$root/empty.so"
the_library "$root/empty.so"
says FAIL library 'is no library, or a damaged one'
the_library "$root"
says FAIL library 'is not a file'
{
    printf '\177ELF\1\1\1'
    head -c 9 /dev/zero
    printf '\3\0\3\0'
    head -c 32 /dev/zero
} >"$root/i386.so"
the_library "$root/i386.so"
says FAIL library 'for another machine (32-bit x86)'

cp "$library" "$root/copy.so"
the_library "$root/copy.so"
says ok library "$root/copy.so"
chmod o+w "$root/copy.so"
the_library "$root/copy.so"
says warn library "every user may change $root/copy.so"
chmod o-rw "$root/copy.so"
the_library "$root/copy.so"
says warn library "not every user may read $root/copy.so"
chmod o+r "$root/copy.so"
mkdir "$root/open"
cp "$root/copy.so" "$root/open"
chmod 777 "$root/open"
the_library "$root/open/copy.so"
says warn library 'every user may change'
chmod +t "$root/open"
the_library "$root/open/copy.so"
says ok library "$root/open/copy.so"
if [ "$(id -u)" -eq 0 ] && chown nobody "$root/copy.so" 2>/dev/null; then
    the_library "$root/copy.so"
    says warn library "is user $(id -u nobody)'s, and is preloaded for root"
fi
# The note that says whose it is, with another version.
at=$(LC_ALL=C grep -obUaP 'vgpu\x00\x00\x00\x00[0-9]' "$library" | head -n 1)
at=${at%%:*}
cp "$library" "$root/newer.so"
printf 9 | dd of="$root/newer.so" bs=1 seek="$((at + 8))" conv=notrunc 2>/dev/null
the_library "$root/newer.so"
says warn library "$root/newer.so is version 9"

# preloads LIST: doctor, with LD_PRELOAD.
preloads() {
    # Not for a program on the way: what cannot be loaded is complained of by each.
    through="env LD_PRELOAD=$1"
    doctor
    through=
}
preloads "$library"
says note preload "$library is in this process, by LD_PRELOAD"
preloads "$root/none.so"
says warn preload "the loader cannot use an entry of LD_PRELOAD: $root/none.so cannot be read"
preloads "$root/lib/libvgpu.so"
says FAIL preload "LD_PRELOAD: $root/lib/libvgpu.so cannot be read"
preloads "$root/noise.so:$library"
says warn preload "$root/noise.so is no library"
says note preload "$library is in this process"
preloads "$root/i386.so"
says warn preload 'for another machine (32-bit x86)'
preloads "$LD_LIBRARY_PATH/libcuda.so.1"
says note preload "LD_PRELOAD preloads $LD_LIBRARY_PATH/libcuda.so.1, which hooks CUDA"
through='env CUDA_DEVICE_MEMORY_LIMIT=1g'
doctor
says FAIL preload 'no libvgpu.so of vgpu'
through="env CUDA_DEVICE_MEMORY_LIMIT=1g CUDA_DEVICE_MEMORY_SHARED_CACHE=$root/region LD_PRELOAD=$library"
doctor
says note preload 'is in this process'
through=

# For everybody: /etc/ld.so.preload, in a file system of our own.
can_be_apart || exit 0
# everywhere TEXT: doctor, where that is the list.
cat >"$root/everywhere" <<'END'
mount -t tmpfs none /etc && printf '%b' "$1" >/etc/ld.so.preload && shift && exec "$@"
END
everywhere() {
    unshare -rm sh "$root/everywhere" "$1" "$VGPU" doctor >"$out" 2>"$err"
}
everywhere "# ours: /no/such.so\n$library"
says ok preload "$library is in this process, by /etc/ld.so.preload"
same 'how much it says of a list with a comment' 1 "$(grep -c '^[^ ]*  *preload ' "$out")"
everywhere "/no/such.so"
says warn preload 'an entry of /etc/ld.so.preload: /no/such.so cannot be read'
mkdir "$root/a b"
cp "$library" "$root/a b/libvgpu.so"
everywhere "$root/a b/libvgpu.so"
says FAIL preload "/etc/ld.so.preload: b/libvgpu.so cannot be read"
chmod o-r "$root/a b/libvgpu.so"
mv "$root/a b" "$root/ab"
everywhere "$root/ab/libvgpu.so"
says FAIL preload "not every user may read $root/ab/libvgpu.so, of /etc/ld.so.preload"
