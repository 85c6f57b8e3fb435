#!/bin/sh
# deb.sh BUILD SOURCE READELF CC NM CTEST: the packages that `make deb` made work where they are unpacked;
# the library in them promises what ours does, and is held to the quota by tests of ours.
# shellcheck source=tests/package/lib.sh
. "$(dirname "$0")/lib.sh"
build=$1 source=$2 readelf=$3 cc=$4 nm=$5 ctest=$6

skip() {
    echo "skipped: $*"
    exit 77
}

command -v dpkg-deb >/dev/null 2>&1 || skip 'there is no dpkg-deb'
set -- "$source"/build/deb/vgpu_*.deb "$source"/build/deb/vgpu-demo_*.deb
ls "$1" "$2" >/dev/null 2>&1 || skip 'make deb has made no packages'
[ $# -eq 2 ] || { fail "which of these: $*"; exit 1; }
[ -z "$(find "$source/src" "$source/api" "$source/include" "$source/debian" "$source/demo" "$source/sim" \
    -newer "$1" -print -quit)" ] || skip 'the packages are older than the tree: make deb'
for deb; do
    dpkg-deb -x "$deb" "$root" || exit 1
done
version=$(dpkg-deb -f "$1" Version)
version=${version%-*}
lib=lib/$(cd "$root/usr/lib" && find . -name libvgpu.so -printf '%P\n' | sed 's|/libvgpu\.so$||')

there bin/vgpu bin/vgpu-demo include/vgpu_region.h "$lib/libvgpu.so" "$lib/sim/libcuda.so.1" \
    share/man/man1/vgpu.1.gz share/man/man5/vgpu-region.5.gz share/man/man1/vgpu-demo.1.gz \
    share/doc/vgpu/README.md share/doc/vgpu/SECURITY.md share/doc/vgpu/changelog.gz \
    share/doc/vgpu/changelog.Debian.gz share/doc/vgpu/copyright
[ ! -e "$root/etc" ] || fail 'something is put into /etc'
dpkg-deb -c "$1" | grep 'libcuda\|libnvidia' && fail 'vgpu brings a driver'
for deb; do
    dpkg-deb --ctrl-tarfile "$deb" | tar -tf - | grep -vxE '\./(control|md5sums)?' && fail "$deb: has scripts"
done
daemon=$(ls "$source"/build/deb/vgpud_*.deb 2>/dev/null)
[ -n "$daemon" ] || fail 'there is no package vgpud'
dpkg-deb -x "$daemon" "$work/vgpud" || exit 1
"$work/vgpud/usr/sbin/vgpud" --config "$work/vgpud/etc/vgpu/vgpud.conf" --check || fail "vgpud's settings"
for file in usr/share/man/man8/vgpud.8.gz usr/share/doc/vgpud/examples/prometheus/vgpud.rules.yml; do
    [ -e "$work/vgpud/$file" ] || fail "vgpud has no $file"
done
find "$work/vgpud" -name vgpud.service -exec cat {} + | grep -qFx 'ExecStart=/usr/sbin/vgpud' ||
    fail "vgpud's unit does not start it"
plugin=$(ls "$source"/build/deb/vgpu-device-plugin_*.deb 2>/dev/null)
[ -n "$plugin" ] || fail 'there is no package vgpu-device-plugin'
dpkg-deb -x "$plugin" "$work/plugin" || exit 1
"$work/plugin/usr/sbin/vgpu-device-plugin" --check \
    --config "$work/plugin/usr/share/doc/vgpu-device-plugin/examples/device-plugin.yaml" ||
    fail "the device plugin's settings"
[ -e "$work/plugin/usr/share/man/man8/vgpu-device-plugin.8.gz" ] || fail 'the device plugin has no page'
find "$work/plugin" -name vgpu-device-plugin.service -exec cat {} + |
    grep -qFx 'ExecStart=/usr/sbin/vgpu-device-plugin' || fail "the device plugin's unit does not start it"
dra=$(ls "$source"/build/deb/vgpu-dra_*.deb 2>/dev/null)
[ -n "$dra" ] || fail 'there is no package vgpu-dra'
dpkg-deb -x "$dra" "$work/dra" || exit 1
for file in usr/share/man/man8/vgpu-dra.8.gz usr/share/doc/vgpu-dra/examples/dra.env; do
    [ -e "$work/dra/$file" ] || fail "vgpu-dra has no $file"
done
# shellcheck disable=SC2016 # systemd expands it
find "$work/dra" -name vgpu-dra.service -exec cat {} + |
    grep -qFx 'ExecStart=/usr/sbin/vgpu-dra $VGPU_DRA_OPTIONS' || fail "vgpu-dra's unit does not start it"
# --version is read after the options of the example.
sed -n 's/^VGPU_DRA_OPTIONS=//p' "$work/dra/usr/share/doc/vgpu-dra/examples/dra.env" >"$work/options"
# shellcheck disable=SC2046 # systemd splits them, too
"$work/dra/usr/sbin/vgpu-dra" $(cat "$work/options") --version >/dev/null || fail "vgpu-dra's example"
check_build_is_unknown "$build" "$readelf"
check_header "$cc"
check_run "$root/usr/$lib/libvgpu.so" "$version"
check_demo

sh "$source/tests/abi/exports.sh" "$source/api" "$root/usr/$lib/libvgpu.so" "$root/usr/$lib/sim/libcuda.so.1" \
    "$nm" "$readelf" || status=1

# CTest's own lists of the build's tests, but over the unpacked library and driver.
(cd "$build" && find . -name CTestTestfile.cmake) | while read -r list; do
    mkdir -p "$work/tests/$(dirname "$list")"
    sed -e "s|$build/libvgpu\.so|$root/usr/$lib/libvgpu.so|g" -e "s|$build/sim\([;\"]\)|$root/usr/$lib/sim\1|g" \
        "$build/$list" >"$work/tests/$list"
done
few='^sim\.(doors\.(link|procaddress)|memory\.(quota|paths|fork)|launch\.waits|pace\.words|nvml\.processes|life\.signals)$'
cd "$work/tests" || exit 1
"$ctest" -R "$few" -N >"$work/few"
[ "$(grep -c 'Test  *#' "$work/few")" -ge 8 ] || fail "few of the tests are found: $(cat "$work/few")"
grep -rqF "$root/usr/$lib/libvgpu.so" "$work/tests" || fail 'the tests do not use the unpacked library'
"$ctest" -R "$few" --output-on-failure --parallel 2 || status=1
exit "$status"
