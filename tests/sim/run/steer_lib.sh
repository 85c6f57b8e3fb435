#!/bin/sh
# What the tests of `vgpu set`, `pause` and `rm` share alongside lib.sh and inspect_lib.sh, to be sourced after them.
# shellcheck disable=SC2154 # lib.sh has set these

# vgpu STATUS ARGUMENT...: it ends with that, silent on stderr; what it prints is in $out.
vgpu() {
    expected=$1
    shift
    "$VGPU" "$@" >"$out" 2>"$err"
    status=$?
    same "the status of vgpu $*" "$expected" "$status"
    [ ! -s "$err" ] || fail "vgpu $*: not silent"
}

# prints LINE...: what vgpu has printed.
prints() {
    same 'what it prints' "$(printf '%s\n' "$@")" "$(cat "$out")"
}

# wrong STATUS WORDS ARGUMENT...: one line on stderr that has them, and nothing else.
wrong() {
    expected=$1 words=$2
    shift 2
    "$VGPU" "$@" >"$out" 2>"$err"
    same "the status of vgpu $*" "$expected" "$?"
    [ ! -s "$out" ] || fail "vgpu $*: prints on stdout"
    [ "$(grep -c '^vgpu: ' "$err")-$(wc -l <"$err")" = 1-1 ] || fail "vgpu $*: not one line"
    grep -qF -- "$words" "$err" || fail "vgpu $*: does not say \"$words\""
}

# until_it WHAT COMMAND...: until the command succeeds; WHAT is said where it does not.
until_it() {
    what=$1
    shift
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 1000 ] || fail "$what"
        sleep 0.05
    done
}
