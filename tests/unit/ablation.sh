#!/bin/sh
# ablation.sh BUILD: what each constant of gangs is worth. Builds src/pace and the model of tests/unit/pace_gang.c with one
# constant at half, at twice, or at a value that switches its rule off, and prints the table of docs/design/pacing.md: by
# how many points a job falls short of its quota and a device is above it at most, and how many runs of 42 are beyond
# the test's bounds. Needs cmocka.
set -eu
build=$(cd "${1:-build}" && pwd)
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# row LABEL NAME VALUE: a name of constants.h; none for all as they are.
row() {
    rm -rf "$work/src"
    mkdir "$work/src"
    cp "$top"/src/pace/*.[ch] "$top"/tests/unit/pace_gang.c "$top"/tests/unit/*.h "$work/src"
    if [ -n "$2" ]; then
        grep -q "^#define $2 " "$work/src/constants.h" || { echo "ablation.sh: no constant $2" >&2; exit 1; }
        sed -i "s/^#define $2 .*/#define $2 ($3)/" "$work/src/constants.h"
    fi
    (
        cd "$work/src"
        cc -std=gnu11 -D_GNU_SOURCE -O2 -w -I. -I"$top/src/base" -I"$top/src/region" -I"$top/include" -I"$top/tests/harness" pace_gang.c "$top"/tests/harness/unit*.c gang.c gang_table.c \
            holder.c bucket.c trace.c "$build/src/region/libvgpu_region.a" "$build/src/base/libvgpu_base.a" -lcmocka -o "$work/model"
    )
    timeout 120 "$work/model" 2>&1 | awk -v label="$1" '
        / quota [0-9]+: / {
            quota = got = busy = $0
            sub(/.* quota /, "", quota); sub(/:.*/, "", quota)
            sub(/.*: /, "", got); sub(/ %.*/, "", got)
            sub(/.*busy /, "", busy); sub(/ %.*/, "", busy)
            if (quota - got > short) short = quota - got
            if (busy - quota > above) above = busy - quota
        }
        /^beyond their bounds/ { beyond = $NF }
        END { printf "| %s | %.1f | %.1f | %s |\n", label, short, above, beyond == "" ? "none ends" : beyond }'
}

echo '| | short by | above by | beyond |'
echo '|---|---|---|---|'
row 'as it is' '' ''
row 'GANG_SHUT_NS: half of the debt' GANG_SHUT_NS '(int64_t)-10000000'
row 'twice' GANG_SHUT_NS '(int64_t)-40000000'
row 'GANG_CLOSING_TIMES: half' GANG_CLOSING_TIMES 4
row 'twice' GANG_CLOSING_TIMES 16
row 'off: the debt is always 20 ms' GANG_CLOSING_TIMES 0
row 'GANG_GRACE_NS: half' GANG_GRACE_NS 25000
row 'twice' GANG_GRACE_NS 100000
row 'off' GANG_GRACE_NS 0
row 'no member goes on while the gang closes' GANG_GRACE_NS '10 * NS_PER_S'
row 'GANG_CATCH_UP_NS: half' GANG_CATCH_UP_NS '100 * NS_PER_US'
row 'twice' GANG_CATCH_UP_NS '400 * NS_PER_US'
row 'off: members catch up launch by launch' GANG_CATCH_UP_NS 0
row 'GANG_CATCH_UP_FOR_NS: half' GANG_CATCH_UP_FOR_NS '10 * NS_PER_MS'
row 'twice' GANG_CATCH_UP_FOR_NS '40 * NS_PER_MS'
row 'GANG_AHEAD_LEAST_NS: half' GANG_AHEAD_LEAST_NS '2 * NS_PER_MS'
row 'twice' GANG_AHEAD_LEAST_NS '8 * NS_PER_MS'
row 'off: as far ahead as ever' GANG_AHEAD_LEAST_NS GANG_AHEAD_NS
row 'GANG_SOFT_NS: half' GANG_SOFT_NS '50 * NS_PER_MS'
row 'twice' GANG_SOFT_NS '200 * NS_PER_MS'
row 'off: members go on all the time' GANG_SOFT_NS '1000 * NS_PER_S'
row 'GANG_HARD_NS: half' GANG_HARD_NS '12 * NS_PER_MS'
row 'twice' GANG_HARD_NS '50 * NS_PER_MS'
row 'GANG_PATIENCE_NS: half' GANG_PATIENCE_NS '10 * NS_PER_MS'
row 'twice' GANG_PATIENCE_NS '40 * NS_PER_MS'
row 'off' GANG_PATIENCE_NS '1000 * NS_PER_S'
