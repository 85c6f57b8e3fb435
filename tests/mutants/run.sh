#!/bin/bash
# run.sh BUILD [NAME…]: breaks one rule of the memory quota at a time, and says which of the breaks
# the tests notice.
#
# rules.txt has the rules. A record is five lines and an empty one:
#
#     NAME FILE      of the file that states the rule and keeps it
#     the rule, as a comment of the file has it
#     a Perl expression that changes the file's whole text so that it is broken
#     make's targets that are built after that
#     the tests that should fail, a regular expression for ctest
#
# The sources in the working tree are changed and put back; a file that has changes of its own is
# left alone. It takes some ten seconds a rule, and is run by hand: 0 if nine in ten are noticed.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${1:?run.sh BUILD [NAME…]}
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
    nice make -C "$build" "$@" >"$text.log" 2>&1
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
