#!/bin/sh
# exports.sh API LIBRARY SIM NM READELF: what libvgpu.so promises to whatever it is preloaded into: it
# exports its hooks, the loader's three functions and _exit, needs libc alone, no newer than 2.17, runs nothing
# when it is loaded, is not written to, and says by a note that it is vgpu's. And the simulated driver SIM exports what the list has.
set -u
api=$1 library=$2 sim=$3 nm=$4 readelf=$5
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

complain() {
    echo "$*" >&2
    status=1
}

exported() {
    "$nm" -D --defined-only "$1" | awk '{ print $3 }' | LC_ALL=C sort
}

# compare WHAT: $work/expected with $work/exported.
compare() {
    [ -s "$work/exported" ] || complain "$1 exports nothing"
    LC_ALL=C comm -23 "$work/expected" "$work/exported" >"$work/missing"
    LC_ALL=C comm -13 "$work/expected" "$work/exported" >"$work/extra"
    while read -r name; do complain "$1 does not export $name"; done <"$work/missing"
    while read -r name; do complain "$1 exports $name"; done <"$work/extra"
}

{
    sed -n 's/^\(CU\|NVML\)_HOOK(\([A-Za-z0-9_]*\),.*/\2/p' "$api/cuda.def" "$api/nvml.def"
    printf '%s\n' _exit dlopen dlsym dlvsym
} | LC_ALL=C sort >"$work/expected"
exported "$library" >"$work/exported"
compare libvgpu.so
# Weak, common, data: a name of another kind is not a hook.
"$nm" -D --defined-only "$library" | awk '$2 != "T" { print $3 }' >"$work/kinds"
while read -r name; do complain "$name is not an ordinary function"; done <"$work/kinds"

awk '!/^#/ && NF { print $1 }' "$api/symbols/cuda-13.0.txt" | LC_ALL=C sort >"$work/expected"
exported "$sim" >"$work/exported"
compare "the simulated driver"

"$readelf" -dW "$library" >"$work/dynamic" || exit 1
"$readelf" -lW "$library" >"$work/segments" || exit 1

sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' "$work/dynamic" >"$work/needed"
grep -qx 'libc\.so\.6' "$work/needed" || complain "does not need libc.so.6"
while read -r name; do
    case $name in
    libc.so.6 | libdl.so.2 | libpthread.so.0) ;;
    ld-linux-aarch64.so.1) ;; # the loader, which is there; it has the canary of -fstack-protector
    *) complain "needs $name" ;;
    esac
done <"$work/needed"

sh "$(dirname "$0")/../../cmake/old_glibc.sh" "$library" "$readelf" || status=1

# A pointer to the toolchain's own frame_dummy, on aarch64 one to what tells libgcc which atomic
# instructions there are (-moutline-atomics), and to nothing of ours.
own=8
"$nm" "$library" | grep -q ' t init_have_lse_atomics$' && own=16
size=$(sed -n 's/.*(INIT_ARRAYSZ) *\([0-9]*\) .*/\1/p' "$work/dynamic")
[ "${size:-0}" -le "$own" ] || complain "has constructors: .init_array has $size bytes"
size=$(sed -n 's/.*(FINI_ARRAYSZ) *\([0-9]*\) .*/\1/p' "$work/dynamic")
# Of destructors there is one beside the toolchain's: a process that exits empties its slot.
[ "${size:-0}" -le 16 ] || complain "has more than one destructor: .fini_array has $size bytes"
grep -q '(PREINIT_ARRAY)' "$work/dynamic" && complain "has a .preinit_array"
grep -q TEXTREL "$work/dynamic" && complain "has relocations in its code"
grep -q '(NEEDED)\|(SONAME)' "$work/dynamic" || complain "has no dynamic section"
grep 'GNU_STACK' "$work/segments" | grep -q 'RWE' && complain "wants an executable stack"
grep -q 'GNU_STACK' "$work/segments" || complain "does not say that its stack is not executable"
grep -q 'NODELETE' "$work/dynamic" || complain "can be unloaded"
"$readelf" -nW "$library" | grep -q '^ *vgpu  *0x' || complain "has no note that says whose it is"
exit "$status"
