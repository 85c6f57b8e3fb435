#!/bin/sh
# tested.sh API TESTS: every hook is used by a test, by its exact name in a .c of TESTS: a word
# outside comments; names that only token pasting makes do not count, nor do the tests of the
# simulated driver itself (selftest), which run without the library.
set -u
api=$1 tests=$2
# shellcheck source=tests/abi/lib.sh
. "$(dirname "$0")/lib.sh"
table rows
find "$tests" -name selftest -prune -o -name '*.c' -exec cat {} + |
    sed -e 's|//.*||' -e 's|/\*.*\*/||' -e '/\/\*/,/\*\//d' | tr -cs 'A-Za-z0-9_' '\n' |
    LC_ALL=C sort -u >"$work/words"
[ -s "$work/words" ] || { echo "no tests in $tests" >&2; exit 1; }
awk -F'\t' '$1 ~ /_HOOK$/ { print $2 }' "$work/rows" | LC_ALL=C sort >"$work/hooks"
[ -s "$work/hooks" ] || { echo "no hooks in $api" >&2; exit 1; }
LC_ALL=C comm -23 "$work/hooks" "$work/words" >"$work/bad"
complain "hooked, but no test in $tests uses"
exit "$status"
