#!/bin/sh
# What the tests of `vgpu ps` and `vgpu top` share beside lib.sh and inspect_lib.sh, to be sourced
# after them: a directory for HAMi's containers, and what ps says.
# shellcheck disable=SC2034,SC2154 # the tests use what is set here, and lib.sh has set the rest

hami=$root/hami
mkdir -p "$hami/containers"
export VGPU_HAMI="$hami"
logs=$root/pods # the kubelet's
export VGPU_POD_LOGS="$logs"
[ ! -e /tmp/cudevshr.cache ] || {
    echo 'skipped: somebody uses /tmp/cudevshr.cache, a slice that would be listed as well'
    exit 77
}
unset COLUMNS NO_COLOR LC_ALL LANG LC_CTYPE

at_switch=2008900
at_recent_kernel=2008904
at_paused=$((2011136 + 32))
at_status=1928 # in a slot

# ps STATUS ARGUMENT...: vgpu ps ends with STATUS, silent on stderr; it prints into $out, and as
# words with one blank between them into $root/words.
ps() {
    expected=$1
    shift
    "$VGPU" ps "$@" >"$out" 2>"$err"
    status=$?
    [ "$status" -eq "$expected" ] || fail "ps $*: status $status instead of $expected: $(cat "$out")"
    [ ! -s "$err" ] || fail "ps $*: not silent"
    sed -e 's/  */ /g' -e 's/^ //' -e 's/ $//' <"$out" >"$root/words"
}

# line WORDS...: such a line was printed.
line() {
    grep -qFx -- "$*" "$root/words" || fail "no line \"$*\": $(cat "$out")"
}

# no_line PATTERN: and none such.
no_line() {
    ! grep -q -- "$1" "$root/words" || fail "a line \"$1\": $(cat "$out")"
}

# refuse_ps STATUS WORDS ARGUMENT...: it ends with STATUS and one line on stderr that has WORDS.
refuse_ps() {
    expected=$1 words=$2
    shift 2
    "$VGPU" "$@" >"$out" 2>"$err" </dev/null
    status=$?
    [ "$status" -eq "$expected" ] || fail "$*: status $status instead of $expected"
    [ ! -s "$out" ] || fail "$*: prints on stdout"
    [ "$(grep -c '^vgpu: ' "$err")-$(wc -l <"$err")" = 1-1 ] || fail "$*: not one line"
    grep -qF -- "$words" "$err" || fail "$*: does not say \"$words\""
}

# container NAME REGION: a container's directory, with a copy of that region; its path in $cache.
container() {
    mkdir -p "$hami/containers/$1"
    cache=$hami/containers/$1/$uuid0.cache
    cp "$2" "$cache"
}

# screen ACTION...: what is done at the terminal (screen.c).
screen() {
    "$SCREEN" "$VGPU" top -- "$@" 2>"$err"
    status=$?
    if grep -q 'built without ncurses' "$err"; then
        echo 'skipped: vgpu was built without ncurses'
        exit 77
    fi
    [ "$status" -ne 77 ] || { cat "$err"; exit 77; }
    [ "$status" -eq 0 ] || fail "screen $*: status $status"
}
