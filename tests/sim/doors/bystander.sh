#!/bin/sh
# bystander.sh FILES: programs that have nothing to do with GPUs, in a container without a driver, run
# as if the library were not there; they open no file because of it, and make no region. FILES prints
# what it has open.
. "$(dirname "$0")/slice.sh"

# run LABEL PROGRAM...: in an environment to which $preload and $bind_now belong.
run() {
    label=$1
    shift
    in_slice LD_LIBRARY_PATH= LD_PRELOAD="$preload" LD_BIND_NOW="$bind_now" "$@" \
        >"$directory/$label" 2>"$directory/$label.err"
    echo "status $?" >>"$directory/$label"
}

compare() {
    for bind_now in '' 1; do
        preload=
        run without "$@"
        preload=$DOORS_LIBRARY
        run with "$@"
        diff "$directory/without" "$directory/with" >&2 || fail "$*: something else happens"
        [ ! -s "$directory/with.err" ] || fail "$*: $(cat "$directory/with.err")"
        [ ! -e "$region" ] || fail "$*: a region was made"
    done
}

compare "$1"
compare sh -c 'echo word; exit 3'
compare ls -d /
compare awk 'BEGIN { print 1 }'
compare sort /dev/null
compare env -i "$1"
