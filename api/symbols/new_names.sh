#!/bin/sh
# new_names.sh STUB [NM]: the names of a toolkit's libcuda stub that the list lacks, as lines for
# it. A new version of a function that is known has its class. For others there is that of a
# function whose name begins with the same words, and a "?" which the tests refuse: read cuda.h and
# decide. First come names of the list that the stub lacks, as comments: they stay in it, for older
# drivers have them.
set -u
[ $# -ge 1 ] || { echo "usage: new_names.sh STUB [NM]" >&2; exit 2; }
symbols=$(dirname "$0")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
sh "$symbols/tables.sh" names >"$work/names" || exit 1
sh "$symbols/exported.sh" "$@" >"$work/stub" || exit 1
awk -F'\t' '
    function family(name) {
        sub(/_pt(sz|ds)$/, "", name)
        sub(/_v[0-9]+$/, "", name)
        return name
    }
    # How many words two names begin with together: cuMemPoolTrimTo and cuMemPoolCreate with three.
    function alike(a, b,    i, words) {
        for (i = 1; i <= length(a) && substr(a, i, 1) == substr(b, i, 1); i++)
            if (substr(a, i + 1, 1) !~ /[a-z]/ && substr(b, i + 1, 1) !~ /[a-z]/) words++
        return words
    }
    FILENAME ~ /names$/ { known[$1] = 1; class[$3] = $2; next }
    { there[$1] = 1 }
    !($1 in known) {
        base = family($1)
        if (base in class) { printf "%-53s %s\n", $1, class[base]; next }
        most = 2
        nearest = "~"
        for (other in class) {
            score = alike(base, other)
            if (score > most || (score == most && other < nearest)) {
                most = score
                nearest = other
            }
        }
        printf "%-53s %-8s  # ? like %s\n", $1, (nearest == "~") ? "neutral" : class[nearest], \
            (nearest == "~") ? "nothing" : nearest
    }
    END { for (name in known) if (!(name in there)) print "# not in the stub: " name }
    ' "$work/names" "$work/stub" | LC_ALL=C sort -k1,1
