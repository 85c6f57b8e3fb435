#!/bin/sh
# header.sh cuda|nvml CC API DIRECTORY...: our tables and types in API against the toolkit's header,
# cuda.h or nvml.h, of the first DIRECTORY that has it.
set -u
library=$1 cc=$2 api=$3
shift 3
sources=$(dirname "$0")

skip() {
    echo "$*" >&2
    exit 77
}

fail() {
    echo "$*" >&2
    exit 1
}

found=
for directory; do
    [ -n "$found" ] || [ ! -e "$directory/$library.h" ] || found=$directory
done
[ -n "$found" ] || skip "no $library.h in $*"
if [ "$library" = cuda ]; then
    version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$found/cuda.h")
    [ "${version:-0}" -ge 13000 ] || skip "$found/cuda.h is of CUDA $version, older than the tables"
else
    version=$(sed -n 's/^#define NVML_API_VERSION *\([0-9]*\).*/\1/p' "$found/nvml.h")
    [ "${version:-0}" -ge 13 ] || skip "$found/nvml.h is version $version, older than the tables"
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# Every type is in the list, but for structures without contents.
awk '/^typedef struct [A-Za-z0-9_]+ [A-Za-z0-9_]+;/ { next }
    /^typedef .*;/ || /^}.*;/ {
        sub(/;.*/, "")
        sub(/^}/, "typedef *")
        sub(/\)\(.*/, "") # the parameters of a pointer to a function
        gsub(/,/, " ")
        for (i = ($1 $2 == "typedef*") ? 3 : NF; i <= NF; i++) { gsub(/[(*]/, "", $i); print $i }
    }' "$api/${library}_abi.h" >"$work/types"
[ -s "$work/types" ] || fail "found no types in ${library}_abi.h"
while read -r type; do
    grep -Eq "(TYPE|INTEGER)\($type\)" "$sources/${library}_types.def" ||
        fail "$type is not in ${library}_types.def"
done <"$work/types"

# cuda_values.def has rows; NVML's values are in the header itself.
sed -n -e 's/^\t\(NVML_[A-Z0-9_]*\) = \([0-9]*\),.*/NVML_VALUE(\1, \2)/p' \
    -e 's/^#define \(NVML_[A-Z0-9_]*BUFFER_SIZE\) *\([0-9]*\)$/NVML_VALUE(\1, \2)/p' \
    "$api/nvml_abi.h" >"$work/nvml_values.h"
[ -s "$work/nvml_values.h" ] || fail "found no values in nvml_abi.h"

# shellcheck disable=SC2086 # CC may have options
$cc -std=gnu11 -Wall -Werror -I"$sources" -I"$api" -I"$work" -isystem "$found" \
    "$sources/layout.c" "$sources/${library}_ours.c" "$sources/${library}_theirs.c" \
    -o "$work/compare" || fail "the tables and $found/$library.h differ"
"$work/compare" || fail "the types and $found/$library.h differ"
