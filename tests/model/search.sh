# shellcheck shell=sh
# search.sh: searches a model with spin, to be sourced by the script of a model. The script names the
# file by $model, and has set these, each of which may be empty:
#   compiled   flags of the compiler for all searches        cycles     further ones for cycles
#   searched   limits of the search, as spin's pan has them
#   sleepers_defines, cycles_defines   -D… that such searches need
#   memory     MB that a search may take, 2000 if it is not set
# A script exits with "$failed": 1 if anything is not as it must be; and with 77 where spin is missing.
# shellcheck disable=SC2034,SC2154 # the script sets some of these, and uses others
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
cp "$here/$model" . || exit 1

# search asserts|sleepers|cycles DEFINE…: all that the model can do; what spin says of it is in
# the file found. Time limits end every sleep, so sleepers are searched for without them.
search() {
    what=$1 cflags=-DSAFETY flags='' defines=''
    shift
    case $what in
    cycles) cflags="-DNP $cycles" flags='-l -f' defines=$cycles_defines ;;
    sleepers) defines="-DNO_TIMEOUTS $sleepers_defines" ;;
    esac
    defines="$defines $*"
    rm -f pan* ./*.trail
    # shellcheck disable=SC2086 # several flags each
    {
        spin -a $defines "$model" &&
            ${CC:-cc} $optimize $compiled -w $cflags -DMEMLIM="${memory:-2000}" -o pan pan.c &&
            ./pan $flags -n $searched
    } >found 2>&1
}

# report STATUS: of the search $name, which was as it must be if STATUS is 0.
report() {
    if [ "$1" = 0 ]; then
        echo "ok    $name"
        return
    fi
    echo "FAIL  $name"
    cat found
    show_trail
    failed=1 # the script's exit status
}

# What led to an error: process, line, statement.
show_trail() {
    [ -e "$model.trail" ] || return 0
    # shellcheck disable=SC2086 # several defines
    spin -t -p $defines "$model" | sed -n 's/.*proc *\([0-9]*\) (.*:\([0-9]* \)(/\1 \2(/p' |
        sed -n 's/(state[^[]*\[\(.*\)]$/\1/p' |
        grep -v -e '(goto)$' -e ' (1)$' -e ' else$' -e ' assert('
}

# holds NAME asserts|sleepers|cycles DEFINE…: spin finds nothing.
holds() {
    name=$1 optimize=-O2
    shift
    search "$@"
    # A search that was cut short has "errors: 0", too.
    grep -q 'errors: 0$' found && ! grep -Eq '^error|not completed' found
    report $?
}

# breaks NAME PHRASE asserts|sleepers|cycles DEFINE…: spin finds the mistake, and says PHRASE.
breaks() {
    name="found: $1" phrase=$2 optimize=-O0 # most of the time is the compiler's
    shift 2
    search "$@"
    grep -q "^pan:1: $phrase" found
    report $?
}
