#!/bin/bash
# run.sh BUILD [NAME…]: breaks one rule of the sources at a time, and says which of the breaks the
# tests notice.
# run.sh --check [NAME…]: breaks nothing, needs no build, and says which records of rules.txt do
# not fit the sources any more. The test abi.mutants does this.
#
# rules.txt has the rules. A record is five lines and an empty one:
#
#     NAME FILE      a name for the rule, and the file that keeps it
#     a comment of the file, or of a header in its directory, that states the rule
#     a Perl expression that changes the file's whole text so that the rule is broken
#     the targets that are built after that
#     the tests that should fail, a regular expression for ctest
#
# The second line may be a part of the comment. Line breaks, capital letters and a full stop at the
# end make no difference.
#
# Without --check, the script changes the sources in the working tree and puts them back. A file
# with uncommitted changes is left alone. A rule takes some ten seconds, so the script is run by
# hand. It returns 0 if nine in ten breaks are noticed.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${1:?run.sh BUILD [NAME…], or run.sh --check [NAME…]}
shift
changed='' text=$(mktemp)
killed=0 survived=0 broken=0

restore()
{
    [ -z "$changed" ] || cp -p "$text" "$changed" || exit 2
    changed=''
}
trap 'restore; rm -f "$text"' EXIT
trap 'exit 1' INT TERM

is_wanted() # NAME, of those that the caller asked for
{
    local name=$1 wanted
    shift
    [ $# = 0 ] && return 0
    for wanted; do
        [ "$wanted" = "$name" ] && return 0
    done
    return 1
}

# The file's text after the expression; false where that changed nothing.
break_rule() # FILE EXPRESSION
{
    cp -p "$1" "$text" || exit 2
    changed=$1
    perl -0pi -e "$2" "$1" && touch "$1" && ! cmp -s "$1" "$text"
}

say() # RESULT NAME RULE
{
    printf '%-9s %-28s %s\n' "$@"
}

build_targets() # TARGET…
{
    nice cmake --build "$build" ${1:+--target} "$@" >"$text.log" 2>&1
}

run_tests() # EXPRESSION
{
    nice timeout 120 ctest --test-dir "$build" -R "$1" --no-tests=error --stop-on-failure \
        >"$text.log" 2>&1
}

try_rule() # NAME FILE RULE EXPRESSION TARGETS TESTS
{
    local targets
    read -ra targets <<<"$5"
    if ! git diff --quiet -- "$2"; then
        say 'skipped' "$1" "$2 has changes of its own"
        return
    fi
    if ! break_rule "$2" "$4" || ! build_targets "${targets[@]}"; then
        broken=$((broken + 1))
        say 'broken' "$1" 'the expression changes nothing, or what it makes does not compile'
    elif run_tests "$6"; then
        survived=$((survived + 1))
        say 'survived' "$1" "$3"
    else
        killed=$((killed + 1))
        say 'killed' "$1" "$3"
    fi
    restore
    touch "$2"
}

# For each rule that is wanted.
for_each_rule() # FUNCTION [NAME…]
{
    local function=$1 name file rule expression targets tests
    shift
    while read -r name file && read -r rule && read -r expression && read -r targets &&
        read -r tests; do
        read -r _ || true
        is_wanted "$name" "$@" && "$function" "$name" "$file" "$rule" "$expression" "$targets" "$tests"
    done < <(grep -v '^#' tests/mutants/rules.txt)
}

# -- the check of the records -----------------------------------------------------------------

# Whether a comment of one of the files has the rule.
has_rule() # RULE FILE…
{
    # shellcheck disable=SC2016 # Perl's variables
    RULE=$1 perl -0ne 'BEGIN { $rule = lc $ENV{RULE}; $rule =~ s/\.$// }
        while (m{/\*(.*?)\*/}gs) {
            $comment = lc $1;
            $comment =~ s/\n[ \t]*\*/ /g;
            $comment =~ s/\s+/ /g;
            $found = 1 if index($comment, $rule) >= 0;
        }
        END { exit !$found }' "${@:2}"
}

# The names of all tests, by the names of their files or as CMake files have them.
test_names()
{
    local file
    for file in tests/unit/*.c; do
        file=${file##*/}
        echo "unit.${file%.c}"
    done
    for file in tests/sim/*/*.c; do
        file=${file#tests/sim/}
        file=${file%.c}
        echo "sim.${file%%/*}.${file##*/}"
    done
    grep -rohE --include='*.cmake' --include=CMakeLists.txt \
        '\<(unit|sim|crash|abi|fuzz|container|package)\.[a-z0-9_.]+' tests
}

# Prints each alternative of the regular expression that no test has as its name.
unknown_tests() # EXPRESSION, of names, (…|…), (…)?, ^ and $
{
    # shellcheck disable=SC2016 # Perl's variables
    EXPRESSION=$1 perl -ne 'chomp; $name{$_} = 1;
        END {
            $braces = $ENV{EXPRESSION};
            $whole = $braces =~ s/\$$//;
            $braces =~ s/^\^//;
            $braces =~ s/\(([^()]*)\)\?/($1|)/g;
            $braces =~ tr/(|)/{,}/;
            for $wanted (glob($braces)) {
                print "$wanted\n"
                    unless grep { $whole ? $_ eq $wanted : index($_, $wanted) == 0 } keys %name;
            }
        }' <"$text"
}

has_target() # TARGET
{
    [ -f "tests/unit/${1#unit_}.c" ] && return
    [ -f "tests/sim/${1%%_*}/${1#*_}.c" ] && return
    grep -rqw --include=CMakeLists.txt -- "$1" src sim tests
}

# Prints a line for all that does not fit in a record.
check_rule() # NAME FILE RULE EXPRESSION TARGETS TESTS
{
    local target targets unknown
    [ -f "$2" ] || { echo "$1: there is no file $2"; return; }
    has_rule "$3" "$2" "$(dirname "$2")"/*.h || echo "$1: no comment of $2 or its headers has: $3"
    perl -0pe "$4" "$2" | cmp -s - "$2" && echo "$1: the expression changes nothing in $2"
    read -ra targets <<<"$5"
    for target in "${targets[@]}"; do
        has_target "$target" || echo "$1: there is no target $target"
    done
    unknown=$(unknown_tests "$6")
    [ -z "$unknown" ] || echo "$1: there are no tests ${unknown//$'\n'/ }"
}

# What the check must find: of these three records, one and four and none of their lines.
check_itself()
{
    local file=src/region/ledger.c rule='A charge is refused if the' good='s/static/extern/'
    [ "$(check_rule a src/none.c - - - - | wc -l)" = 1 ] &&
        [ "$(check_rule b $file 'no such rule' s/no_such_text/x/ unit_no_such_target \
            '^unit.(region_ledger|no_such_test)$' | wc -l)" = 4 ] &&
        [ -z "$(check_rule c $file "$rule" $good unit_region_ledger '^unit.region_(ledger|slot)$')" ]
}

if [ "$build" = --check ]; then
    command -v perl >/dev/null || { echo 'skipped: the check of the mutants needs perl'; exit 77; }
    test_names >"$text"
    check_itself || { echo "run.sh does not find what is wrong in a record" >&2; exit 1; }
    found=$(for_each_rule check_rule "$@")
    [ -z "$found" ] || { echo "$found" >&2; exit 1; }
    exit
fi

# -- the rules, one at a time -----------------------------------------------------------------

# A test that fails anyway notices nothing.
needed=() watching=()
need()
{
    local targets
    read -ra targets <<<"$5"
    needed+=("${targets[@]}")
    watching+=("$6")
}

for_each_rule need "$@"
[ ${#needed[@]} -gt 0 ] || { echo "there is no such rule" >&2; exit 2; }
all_pass()
{
    local tests
    build_targets memory_onlooker "${needed[@]}" || return
    while read -r tests; do
        run_tests "$tests" || return
    done < <(printf '%s\n' "${watching[@]}" | sort -u)
}

if ! all_pass; then
    tail -n 20 "$text.log" >&2
    echo 'the sources as they are do not build, or fail' >&2
    exit 2
fi
for_each_rule try_rule "$@"
build_targets vgpu_preload
rm -f "$text.log"
echo "$killed killed, $survived survived, $broken cannot be made"
[ "$broken" = 0 ] && [ $((killed * 10)) -ge $(((killed + survived) * 9)) ]
