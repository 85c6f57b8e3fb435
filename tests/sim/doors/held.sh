#!/bin/sh
# held.sh [NAME=VALUE...] PROGRAM [ARGUMENT...]: runs it without the library, when it must not be held
# (DOORS_CONTROL) and all else is the same, so that it is not the driver's limit that is found; then
# with it.
. "$(dirname "$0")/slice.sh"
in_slice LD_PRELOAD= DOORS_CONTROL=1 "$@"
status=$?
[ "$status" -ne 77 ] || exit 77
[ "$status" -eq 0 ] || fail "and that is without the library"
in_slice "$@"
