#!/bin/sh
# gang_turns.sh: searches the model of a gang's turns (gang_turns.pml) for what must never be, as
# turns.sh does for the turns of slices. It takes a minute, so `make check` leaves it out. Exits
# with 1 if anything is not as it must be, and with 77 where spin is missing.
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
    [ "$what" != cycles ] || set -- -DPATIENT "$@"
    [ "$what" != sleepers ] || set -- -DNO_TIMEOUTS "$@"
    rm -f pan*
    # shellcheck disable=SC2086 # several flags each
    {
        spin -a "$@" gang_turns.pml &&
            ${CC:-cc} -O2 -w $cflags -DMEMLIM=2000 -o pan pan.c &&
            ./pan $flags -n -w22 -m1000000
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

cp "$here/gang_turns.pml" . || exit 1

holds 'a gang and a slice never work at once, but for the bound' \
    asserts -DGANGS=1 -DWHO=4 -DDEATHS=1 -DSTOPS=1
holds 'no grant is lost between a gang and a slice' sleepers -DGANGS=1
holds 'two gangs neither work at once nor wait for each other' sleepers -DSLICES=0
holds 'a slice gets its turns, whether the gang lives, has died or has stopped' \
    cycles -DGANGS=1 -DDEATHS=1 -DSTOPS=1
holds 'a gang gets its turns, whether the slice lives, has died or has stopped' \
    cycles -DGANGS=1 -DWHO=2 -DDEATHS=1 -DSTOPS=1

breaks 'a wish that is withdrawn without a count' 'invalid end state' \
    sleepers -DGANGS=1 -DBREAK=NO_COUNT
breaks 'a gang that submits with one word' 'assertion violated' asserts -DGANGS=1 -DBREAK=HALF
breaks 'a gang that submits before its turn begins' 'assertion violated' \
    asserts -DGANGS=1 -DBREAK=NO_BEGIN
breaks 'gangs that keep what they have' 'invalid end state' sleepers -DSLICES=0 -DBREAK=KEEPS
breaks 'a look for sleepers before the word changes' 'invalid end state' \
    sleepers -DGANGS=1 -DBREAK=RING_BEFORE
breaks 'wishes that nobody heeds' 'non-progress cycle' cycles -DGANGS=1 -DWHO=2 -DBREAK=NO_WISH
exit "$failed"
