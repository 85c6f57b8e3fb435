#!/bin/sh
# Where libvgpu.so is looked for.
. "$(dirname "$0")/lib.sh"

refuse_here() {
    (
        VGPU_LIBRARY=$1
        shift
        refuse "$@"
    ) || exit 1
}
refuse_here "$root/none.so" 125 "VGPU_LIBRARY is $root/none.so, which cannot be read" --unlimited true
mkdir "$root/a b" && cp "$NOTHING" "$root/a b/x.so"
refuse_here "$root/a b/x.so" 125 'has a blank, a colon or a dollar sign' --unlimited true
refuse_here /proc/self/cwd/x.so 125 'which cannot be read' --unlimited true
cp "$NOTHING" "$root/y.so"
(cd "$root" && refuse_here /proc/self/cwd/y.so 125 'it is not the same file in every process' \
    --unlimited true) || exit 1
ln -s "$root/a b/x.so" "$root/x.so"
same 'a link' "$root/x.so" "$(VGPU_LIBRARY=$root/x.so "$VGPU" run --unlimited printenv LD_PRELOAD)"
same 'a relative path' "$root/x.so" \
    "$(cd "$root" && VGPU_LIBRARY=x.so "$VGPU" run --unlimited printenv LD_PRELOAD)"

# Installed under any prefix, or in one directory with the program.
unset VGPU_LIBRARY
prefix=$root/prefix
mkdir -p "$prefix/bin" "$prefix/lib/vgpu"
cp "$VGPU" "$prefix/bin/vgpu"
VGPU=$prefix/bin/vgpu
vgpu_run --unlimited printenv LD_PRELOAD # where the build machine has one installed, that is found
if [ "$status" -eq 0 ]; then
    [ -e "$(cat "$out")" ] || fail "preloads $(cat "$out"), which is not there"
else
    refuse 125 "there is no libvgpu.so: it was looked for in $prefix/bin, as libvgpu.so, ../lib/" --unlimited true
fi
for place in lib/libvgpu.so lib/vgpu/libvgpu.so bin/libvgpu.so; do
    cp "$NOTHING" "$prefix/$place"
    same "with $place" "$prefix/$place" "$("$VGPU" run --unlimited printenv LD_PRELOAD)"
done
