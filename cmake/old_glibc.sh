#!/bin/sh
# old_glibc.sh LIBRARY READELF: fails, with the symbols' names, if LIBRARY needs a symbol of glibc that
# is newer than 2.17. The build runs it after each link of libvgpu.so: a library that needs a newer
# symbol ends every program that preloads it in an older container.
set -u
library=$1 readelf=$2
newest=2.17
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

LC_ALL=C "$readelf" --dyn-syms -W "$library" >"$work/symbols" || exit 1

# Undefined symbols, as "strtol@GLIBC_2.38 (3)".
awk '$7 == "UND" && $8 ~ /@/ { print $8 }' "$work/symbols" >"$work/needed"
if [ ! -s "$work/needed" ]; then
    echo "$library: no needed symbol has a version, which cannot be true: $readelf --dyn-syms is not understood" >&2
    exit 1
fi
awk -F@ -v newest="$newest" '
    BEGIN { split(newest, most, ".") }
    $NF !~ /^GLIBC_[0-9]+\.[0-9]+(\.[0-9]+)?$/ { print; next }
    { split(substr($NF, 7), has, "."); if (has[1] > most[1] || (has[1] == most[1] && has[2] > most[2])) print }
' "$work/needed" >"$work/new"
[ -s "$work/new" ] || exit 0
while read -r symbol; do
    echo "$library needs $symbol; nothing newer than GLIBC_$newest may be used in src/, so that the library loads in old containers" >&2
done <"$work/new"
exit 1
