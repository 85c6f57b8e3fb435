#!/bin/sh
# installed.sh BUILD CMAKE READELF CC: what `make install` puts under a prefix works there, and again after
# the whole was moved.
# shellcheck source=tests/package/lib.sh
. "$(dirname "$0")/lib.sh"
build=$1 cmake=$2 readelf=$3 cc=$4
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")

"$cmake" --install "$build" --prefix "$root/usr" >"$work/log" || { cat "$work/log"; exit 1; }
find "$root" -name '*demo*' | grep . && fail 'and that is no part of make install'
"$cmake" --install "$build" --prefix "$root/usr" --component demo >>"$work/log" || { cat "$work/log"; exit 1; }
sed -n "s|^-- .*: $root/usr/||p" "$work/log" >"$work/files"
library=$(grep '/libvgpu\.so$' "$work/files") || fail 'libvgpu.so is not installed'

there bin/vgpu bin/vgpu-demo include/vgpu_region.h "$library" \
    share/man/man1/vgpu.1 share/man/man1/vgpu-run.1 share/man/man1/vgpu-demo.1 share/man/man5/vgpu-region.5
check_build_is_unknown "$build" "$readelf"
check_header "$cc"
check_run "$root/usr/$library" "$version"

mv "$root" "$work/elsewhere"
root=$work/elsewhere
check_run "$root/usr/$library" "$version"
check_demo
exit "$status"
