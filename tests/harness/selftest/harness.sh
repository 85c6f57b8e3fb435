#!/bin/sh
# The harness reports what its tests do. SAMPLE is the program of sample.c, and UNIT_SAMPLE that of
# unit_sample.c; without cmocka there is none of the latter.
set -u

failures=0

# expect STATUS PATTERN ARGUMENT…: the program's exit status, and a line of its output.
expect() {
    status=$1 pattern=$2
    shift 2
    output=$("$SAMPLE" "$@" 2>&1)
    got=$?
    if [ "$got" -ne "$status" ] || ! printf '%s\n' "$output" | grep -Eq -- "$pattern"; then
        printf 'sample %s: status %d, not %d, or no "%s" in:\n%s\n' "$*" "$got" "$status" \
            "$pattern" "$output"
        failures=$((failures + 1))
    fi
}

unset VGPU_TEST_VERBOSE
expect 0 '^passes: [0-9]+ ms$' passes
expect 0 '^without_fixture: ' without_fixture passes
expect 1 '^there is no test "mispelt" in this program$' passes mispelt
expect 77 '^skipped: no device$' is_skipped
expect 0 '^skipped: no device$' is_skipped passes
expect 1 "sample.c:[0-9]+: made\[0\] == 'b'$" fails
expect 1 '^fails: failed, status 0x100$' fails passes
expect 1 'sample.c:[0-9]+: 2 \+ 2 == 5: 4 and 5$' is_not_equal
expect 1 'sample.c:[0-9]+: 5 <= 4: 5 and 4$' is_more
expect 1 'sample.c:[0-9]+: "this" == "that": "this" and "that"$' is_other
expect 1 'sample.c:[0-9]+: a place is not b$' says_why
expect 0 '^row_that_passes: ' row_that_passes
expect 1 'sample.c:[0-9]+: row->a == row->b: 1 and 2$' row_that_fails
expect 1 '^row_that_fails: failed' # all of them
expect 0 '^no place word$' as echo word
expect 2 '^there is no role "mispelt" in this program$' as mispelt

names=$("$SAMPLE" --list | tr '\n' ' ')
expected='without_fixture passes is_skipped fails is_not_equal is_more is_other says_why row_that_passes row_that_fails '
if [ "$names" != "$expected" ]; then
    printf 'the names are: %s\n' "$names"
    failures=$((failures + 1))
fi

if "$SAMPLE" passes 2>&1 | grep -q measured; then
    echo 'a note without VGPU_TEST_VERBOSE'
    failures=$((failures + 1))
fi
export VGPU_TEST_VERBOSE=1
expect 0 '^measured 17$' passes

SAMPLE=${UNIT_SAMPLE:-}
if [ "$SAMPLE" ]; then
    expect 0 'PASSED +\] 3 test' passes without_fixture alone
    expect 1 'FAILED +\] fails$' fails passes
    expect 1 'FAILED +\] fails$' # all of them
    expect 0 'PASSED +\] 1 test' 'row that passes'
    expect 1 'FAILED +\] row that fails$' 'row that passes' 'row that fails'
    expect 1 '^there is no test "mispelt" in this program$' passes mispelt
    expect 0 '^alone$' --list
fi

exit $((failures > 0))
