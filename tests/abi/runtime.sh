#!/bin/sh
# runtime.sh CC API RUNTIME LIBRARY NM DIRECTORY...: the simulated runtime LIBRARY exports the names of
# RUNTIME/names.txt; and where a DIRECTORY is a toolkit of CUDA 13.0, its headers and its libcudart
# say the same as RUNTIME's tables.
set -u
cc=$1 api=$2 runtime=$3 library=$4 nm=$5
shift 5
sources=$(dirname "$0")

fail() {
    echo "$*" >&2
    exit 1
}

# exported LIBRARY: its functions, without the version
exported() {
    "$nm" -D --defined-only "$1" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
grep '^[a-z_]' "$runtime/names.txt" >"$work/names"
exported "$library" | diff "$work/names" - || fail "$library and names.txt differ"

found=
for directory; do
    [ -n "$found" ] || [ ! -e "$directory/include/cuda_runtime_api.h" ] || found=$directory
done
[ -n "$found" ] || { echo "no cuda_runtime_api.h in $*" >&2; exit 77; }
version=$(sed -n 's/^#define CUDART_VERSION *\([0-9]*\).*/\1/p' "$found/include/cuda_runtime_api.h")
[ "${version:-0}" -eq 13000 ] || {
    echo "$found is of CUDA $version, and the simulated runtime of 13000" >&2
    exit 77
}
if [ -e "$found/lib64/libcudart.so.13" ]; then
    exported "$found/lib64/libcudart.so.13" | diff "$work/names" - ||
        fail "names.txt and $found/lib64/libcudart.so.13 differ"
fi

# shellcheck disable=SC2086 # CC may have options
$cc -std=gnu11 -Wall -Werror -Wno-deprecated-declarations -I"$sources" -I"$runtime" \
    -c -I"$api" "$sources/runtime_ours.c" -o "$work/ours.o" || fail "our header does not compile"
# shellcheck disable=SC2086
$cc -std=gnu11 -Wall -Werror -Wno-deprecated-declarations -I"$sources" -I"$runtime" \
    -isystem "$found/include" "$work/ours.o" "$sources/layout.c" "$sources/runtime_theirs.c" \
    -o "$work/compare" || fail "the tables and $found/include differ"
"$work/compare" || fail "the types and $found/include differ"
