#!/bin/sh
# same.sh [NAME=VALUE...] PROGRAM [ARGUMENT...]: prints the same and ends the same with the library as
# without it.
. "$(dirname "$0")/slice.sh"
in_slice LD_PRELOAD= "$@" >"$directory/without" 2>"$directory/without.err"
without=$?
[ "$without" -lt 128 ] || fail "is killed by signal $((without - 128)) without the library: nothing is compared"
in_slice "$@" >"$directory/with" 2>"$directory/with.err"
with=$?
[ "$with" -eq "$without" ] || fail "status $with with the library, $without without"
diff "$directory/without" "$directory/with" >&2 || fail "prints something else with the library"
diff "$directory/without.err" "$directory/with.err" >&2 || fail "says something else on stderr"
[ -s "$directory/without" ] || fail "prints nothing"
