#!/bin/sh
# hooked.sh API: every name is hooked that must be: those of classes that say so in classes.txt,
# but for what these except, and what other classes ask for also.
set -u
api=$1
# shellcheck source=tests/abi/lib.sh
. "$(dirname "$0")/lib.sh"
table names classes rows
awk -F'\t' '
    FILENAME ~ /classes$/ {
        hook[$1] = $2
        n = split($3, part, " ")
        for (i = 1; i <= n; i++) excepted[part[i]] = 1
        n = split($4, part, " ")
        for (i = 1; i <= n; i++) also[part[i]] = 1
        next
    }
    FILENAME ~ /rows$/ { if ($1 == "CU_HOOK") hooked[$2] = 1; next }
    $1 in hooked { next }
    (hook[$2] == "must" && !($3 in excepted)) || $3 in also { print $1 ", which is " $2 }
    ' "$work/classes" "$work/rows" "$work/names" >"$work/bad"
complain "not hooked"
exit "$status"
