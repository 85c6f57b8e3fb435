#!/bin/sh
# errno.sh PROGRAM: what it prints, of errno, after each call is as without the library, or that errno
# is as it was before the call (4711).
. "$(dirname "$0")/slice.sh"
in_slice LD_PRELOAD= "$@" >"$directory/without" || fail "and that is without the library"
in_slice "$@" >"$directory/with" || exit
diff "$directory/without" "$directory/with" | grep '^>' | grep -v ': 4711$' >&2 && fail "is otherwise"
[ -s "$directory/with" ] || fail "prints nothing"
