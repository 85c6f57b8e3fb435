#!/bin/sh
# turns.sh: searches the model of turns (turns.pml) for what must never be. It must not be found in
# the model as it is, and must be in each that has a mistake: half a minute. Exits with 1 if
# anything is not as it must be, and with 77 where spin is missing.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT PIPE TERM
cd "$scratch" || exit 1
failed=0

command -v spin >/dev/null || {
    echo 'skipped: spin is not installed'
    exit 77
}

# search asserts|sleepers|cycles DEFINE…: all that the model can do; what spin says of it is in
# the file found. Time limits end every sleep, so sleepers are searched for without them.
search() {
    what=$1
    shift
    case $what in
    cycles) cflags='-DNP -DNFAIR=3 -DNOREDUCE' flags='-l -f' ;;
    *) cflags=-DSAFETY flags= ;;
    esac
    [ "$what" != sleepers ] || set -- -DNO_TIMEOUTS -DDEATHS=0 "$@"
    rm -f pan*
    # shellcheck disable=SC2086 # several flags each
    {
        spin -a "$@" turns.pml &&
            ${CC:-cc} -O1 -w $cflags -DMEMLIM=2000 -o pan pan.c &&
            ./pan $flags -n -w20 -m1000000
    } >found 2>&1
}

report() {
    if [ "$1" = 0 ]; then
        echo "ok    $name"
        return 0
    fi
    echo "FAIL  $name"
    cat found
    failed=1
    return 1
}

# holds NAME asserts|sleepers|cycles DEFINE…
holds() {
    name=$1
    shift
    search "$@"
    # A search that was cut short has "errors: 0", too.
    grep -q 'errors: 0$' found && ! grep -Eq '^error|not completed' found
    report $?
}

# breaks NAME PHRASE asserts|sleepers|cycles DEFINE…
breaks() {
    name="found: $1" phrase=$2
    shift 2
    search "$@"
    grep -q "^pan:1: $phrase" found
    report $?
}

cp "$here/turns.pml" . || exit 1

holds 'two slices never work at once, but for the bound' asserts
holds 'the same where one may stop' asserts -DSTOPS=1
holds 'no grant and no wish is lost while all live' sleepers
holds 'a slice gets its turns, whether the other lives, has died or has stopped' \
    cycles -DSTOPS=1

breaks 'a hand-over by a store' 'assertion violated' asserts -DBREAK=NO_COMPARE
breaks 'a word without a count' 'assertion violated' asserts -DBREAK=NO_COUNT
breaks 'work before the turn begins' 'assertion violated' asserts -DBREAK=NO_BEGIN
breaks 'a word that is read once' 'assertion violated' asserts -DBREAK=WORD_ONCE
breaks 'a turn that is not shared any more, and no second look' 'invalid end state' \
    sleepers -DBREAK=NO_SECOND_LOOK
breaks 'a slice that is idle after it looked at the word' 'invalid end state' \
    sleepers -DBREAK=LOOK_BEFORE
breaks 'a bell before the word' 'invalid end state' sleepers -DBREAK=BELL_BEFORE
breaks 'a bell that is read after the word' 'invalid end state' sleepers -DBREAK=BELL_AFTER_WORD
breaks 'a wish of which the holder hears nothing' 'non-progress cycle' cycles -DBREAK=NO_SHARE
breaks 'a word that nobody takes' 'non-progress cycle' cycles -DBREAK=NO_TAKE
breaks 'a word that nobody takes from the stopped' 'non-progress cycle' \
    cycles -DBREAK=NO_OVERDUE -DDEATHS=0 -DSTOPS=1
exit "$failed"
