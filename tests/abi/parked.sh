#!/bin/sh
# parked.sh API TESTS: a test parks each call that takes memory, gives it back or refers to it, by
# its exact name in a parked_*.c of TESTS. Nodes of graphs make the driver load code at some later
# time, and only a comparison with NVML sees that.
set -u
api=$1 tests=$2
# shellcheck source=tests/abi/lib.sh
. "$(dirname "$0")/lib.sh"
table names
awk -F'\t' '$2 ~ /^(allocate|free|context|module)$/ && $1 !~ /^cuGraph.*Node/ { print $1 }' \
    "$work/names" | LC_ALL=C sort >"$work/calls"
[ -s "$work/calls" ] || { echo "no such calls in $api" >&2; exit 1; }
cat "$tests"/parked_*.c | grep -oE '"cu[A-Za-z0-9_]+[@"]' | tr -d '"@' |
    LC_ALL=C sort -u >"$work/parked"
LC_ALL=C comm -23 "$work/calls" "$work/parked" >"$work/bad"
complain "no test in $tests parks"
exit "$status"
