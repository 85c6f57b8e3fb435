#!/bin/sh
# refused.sh WORD NAME=VALUE PROGRAM...: a slice that cannot be kept: CUDA is refused, with one line on
# stderr that has the WORD and the VALUE, and nothing on stdout.
. "$(dirname "$0")/slice.sh"
word=$1 value=${2#*=}
shift
in_slice "$@" >"$directory/out" 2>"$directory/err" || fail "status $?: $(cat "$directory/err")"
[ ! -s "$directory/out" ] || fail "prints on stdout: $(cat "$directory/out")"
[ "$(wc -l <"$directory/err")" -eq 1 ] || fail "not one line: $(cat "$directory/err")"
grep -qF -- "$value" "$directory/err" || fail "does not say $value: $(cat "$directory/err")"
grep -qF -- "$word" "$directory/err" || fail "does not say $word: $(cat "$directory/err")"
