#!/bin/sh
# make deb: Debian's packages of this tree, in build/deb/, and what lintian says of them where it is
# installed. They are built from a copy, so that nothing is left in the tree. Tests are `make test`'s:
# without DEB_BUILD_OPTIONS=nocheck, as `dpkg-buildpackage` has it by itself, they are run here as well.
set -eu
cd "$(dirname "$0")/.."
out=$PWD/build/deb

for tool in dpkg-buildpackage:dpkg-dev dh:debhelper; do
    if ! command -v "${tool%%:*}" >/dev/null 2>&1; then
        echo "make deb: there is no ${tool%%:*}: apt-get install ${tool#*:}, or ./dev deb, which installs all" >&2
        exit 1
    fi
done
dpkg-checkbuilddeps -P nocheck || {
    echo "make deb: apt-get install the packages named above, or ./dev deb, which installs them" >&2
    exit 1
}

version=$(dpkg-parsechangelog --show-field Version)
rm -rf "$out"
mkdir -p "$out/vgpu-${version%-*}"
if [ -e .git ] && command -v git >/dev/null; then
    git ls-files -z --cached | tar --null --files-from=- -cf -
else
    tar --exclude='./build*' --exclude=./.git -cf - .
fi | tar -C "$out/vgpu-${version%-*}" -xf -

cd "$out/vgpu-${version%-*}"
# The profile drops what only the tests need from the build's dependencies; the option drops the tests.
options=${DEB_BUILD_OPTIONS-nocheck}
case " $options " in
*' nocheck '*) export DEB_BUILD_PROFILES="${DEB_BUILD_PROFILES:-} nocheck" ;;
esac
DEB_BUILD_OPTIONS="$options parallel=$(nproc)" \
    dpkg-buildpackage --build=binary --no-sign >"$out/log" 2>&1 || {
    tail -n 40 "$out/log" >&2
    echo "make deb: this is the end of $out/log" >&2
    exit 1
}
cd ..
rm -rf "vgpu-${version%-*}"
ls ./*.deb
if command -v lintian >/dev/null 2>&1; then
    lintian --allow-root --fail-on error,warning ./*.changes
    echo 'lintian: no errors, no warnings'
else
    echo 'make deb: not looked at by lintian, which is not installed'
fi
