#!/bin/sh
# What the tests of vgpud's files of turns share, to be sourced after lib.sh.
# shellcheck disable=SC2154 # lib.sh sets it
: "${STEERED:?}" "${LIBRARY:?}" # from CMakeLists.txt
turns=$(dirname "$0")/turns.py

# asks COMMAND ARGUMENT...: turns.py.
asks() {
    command=$1
    shift
    python3 "$turns" "$command" "$VGPU_SOCKET" "$@" >"$out" 2>"$err" || fail "$command: $(cat "$log")"
}
