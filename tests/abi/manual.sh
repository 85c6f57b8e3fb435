#!/bin/sh
# manual.sh PAGE MANUAL CC INCLUDE: vgpu-region(5) says what the header in INCLUDE does, by MANUAL
# (manual.c): each field with its offset and size, no number besides, and examples that work.
set -u
page=$1 manual=$2 cc=$3 include=$4
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

fail() {
    echo "$*" >&2
    status=1
}

# Fields: the rows of the tables, each of the structure that a comment before it names.
"$manual" rows >"$work/header" || exit 1
awk '/^\.\\" struct / { structure = $3 }
    /^\.It [0-9,]+ Ta [0-9,]+ Ta Va / {
        gsub(/,/, "")
        print structure, $2, $4, $7
    }' "$page" >"$work/page"
diff "$work/page" "$work/header" >"$work/diff" ||
    fail "the page (<) and the header (>) differ: $(cat "$work/diff")"

# Numbers of three digits and more, wherever they stand. Not from the header are a percentage, a
# file's mode, and two times.
{
    "$manual" numbers
    printf '%s\n' 100 0660 0666 140 250
} | sort -u >"$work/known"
sed -e '/^\.Dd/d' -e 's/\([0-9]\),\([0-9]\)/\1\2/g' "$page" | grep -owE '[0-9]{3,}' | sort -u >"$work/used"
[ -s "$work/used" ] || fail 'no numbers found'
unknown=$(comm -23 "$work/used" "$work/known")
[ -z "$unknown" ] || fail "the header has no such numbers: $unknown"

# example LANGUAGE N: the N-th example in that language.
example() {
    awk -v want="$1" -v n="$2" '
        /^\.\\" example: / { left = ($3 == want) ? n - ++seen[want] : -1; next }
        /^\.Bd/ { next }
        /^\.Ed/ { left = -1 }
        seen[want] && left == 0' "$page" |
        sed 's/\\e/\\/g'
}

region=$work/region
for n in 1 2; do
    example shell $n | sed "s|^region=.*|region=$region|" >"$work/$n.sh"
    [ "$(grep -c '^region=' "$work/$n.sh")" -eq 1 ] || fail "shell example $n is not found"
done
{
    echo "echo \$PPID >'$work/pid'"
    for n in 1 2; do
        echo "sh '$work/$n.sh' >'$work/$n.out'"
    done
    echo "'$work/example' '$region' >'$work/3.out'"
} >"$work/all.sh"
example C 1 >"$work/example.c"
# shellcheck disable=SC2086 # CC may have options
$cc -std=gnu11 -Wall -Wextra -Werror -I"$include" "$work/example.c" -o "$work/example" || exit 1
"$manual" hold "$region" "exec sh '$work/all.sh'" || fail 'an example ends with an error'

# expect FILE LINES: what an example printed, but for blanks.
expect() {
    got=$(sed -e 's/^ *//' -e 's/  */ /g' "$work/$1")
    [ "$got" = "$2" ] || fail "$1: \"$got\" instead of \"$2\""
}

pid=$(cat "$work/pid")
expect 1.out '14680064
1073741824'
expect 3.out "$pid 7340032"
dead=$(sed -n '2s/ .*//p' "$work/2.out")
expect 2.out "$pid 7340032
$dead 7340032"
[ "${dead:-$pid}" != "$pid" ] || fail 'the second example lacks the dead'
exit "$status"
