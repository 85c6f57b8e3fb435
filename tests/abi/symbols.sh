#!/bin/sh
# symbols.sh API NM STUB...: the lists of api/symbols against each other, cuda.def and the toolkit:
# each name of a driver has a class that is known, the same in all its versions and in cuda.def,
# and a reason where the class says so. The first STUB that exists is compared; without one that
# part is left out. What must be hooked is asked by hooked.sh.
set -u
api=$1 nm=$2
shift 2
# shellcheck source=tests/abi/lib.sh
. "$(dirname "$0")/lib.sh"
list=$api/symbols/cuda-13.0.txt
table names classes paths rows

# -- the list by itself --
cut -f1 "$work/names" | LC_ALL=C sort >"$work/sorted"
uniq -d "$work/sorted" >"$work/bad"
complain "listed twice"
awk '!/^#/ && !/^$/ && !/^cu[A-Za-z0-9_]+ +[a-z]+( +# [^ ].*)?$/' "$list" >"$work/bad"
complain "not a name, a class and perhaps a reason"
grep ' # ?' "$list" >"$work/bad"
complain "a class that is only suggested"
awk '/^cu/ && /[][;]/' "$list" >"$work/bad"
complain "CMake cannot read"
awk -F'\t' '{
        if ($3 in class && class[$3] != $2)
            print $1 " is " $2 ", but " first[$3] " is " class[$3]
        if (!($3 in class)) { class[$3] = $2; first[$3] = $1 }
    }' "$work/names" >"$work/bad"
complain "versions of one name"

# Reasons stand with the first name of a family, and "as" leads to one that says it.
awk '
    / # / {
        base = $1
        sub(/_pt(sz|ds)$/, "", base)
        sub(/_v[0-9]+$/, "", base)
        if (base != $1) print $1 ": belongs to " base
        text = $0
        sub(/.* # /, "", text)
        reason[$1] = text
    }
    /^cu/ { class[$1] = $2 }
    END {
        for (name in reason) {
            if (reason[name] !~ /^as cu/) continue
            to = substr(reason[name], 4)
            if (!(to in reason) || reason[to] ~ /^as cu/) print name ": nothing to read at " to
            else if ((class[to] == "neutral") != (class[name] == "neutral"))
                print name ": " class[name] " as the " class[to] " " to
        }
    }' "$list" >"$work/bad"
complain "a reason"

# -- the list and the classes --
awk -F'\t' 'NR == FNR { known[$1] = 1; next } !($2 in known) { print $1 ": " $2 }
    ' "$work/classes" "$work/names" >"$work/bad"
complain "no known class"
awk -F'\t' '$2 !~ /^(must|may|never)$/ || $6 == "-" || $7 == "-" { print $1 }' "$work/classes" \
    >"$work/bad"
complain "a class without hook, means or does"
awk -F'\t' '
    FILENAME ~ /classes$/ {
        doubtful[$1] = $5
        n = split($3 " " $4, part, " ")
        for (i = 1; i <= n; i++) if (part[i] != "-") special[part[i]] = $1
        next
    }
    $4 == "-" && doubtful[$2] != "-" && $1 ~ doubtful[$2] { print $1 ", which is " $2 }
    $3 in special {
        if ($4 == "-") print $1 ", an exception of " special[$3]
        if ($2 == special[$3]) met[$3] = 1
    }
    END { for (name in special) if (!(name in met)) print name ", which is not " special[name] }
    ' "$work/classes" "$work/names" >"$work/bad"
complain "needs a reason and its class"
awk -F'\t' 'NR == FNR { known[$3] = 1; next }
    { split($2, part, " "); for (i in part) if (!(part[i] in known)) print $1 ": " part[i] }
    ' "$work/names" "$work/paths" >"$work/bad"
complain "paths.txt has no name of the list"

# -- the list and cuda.def --
[ "$(wc -l <"$work/rows")" -eq "$(cat "$api/cuda.def" "$api/nvml.def" |
    grep -cE '^ *(CU|NVML)_[A-Z]+ *\(')" ] || {
    echo "some rows of cuda.def or nvml.def are not understood" >&2
    status=1
}
awk -F'\t' 'NR == FNR { class[$1] = $2; next }
    $1 ~ /^CU_/ && class[$2] != $3 {
        print $2 " is " $3 ", but " (class[$2] ? class[$2] : "nothing") " in the list"
    }' "$work/names" "$work/rows" >"$work/bad"
complain "cuda.def"
awk -F'\t' '
    FILENAME ~ /classes$/ { hook[$1] = $2; next }
    $1 == "CU_HOOK" && hook[$3] == "never" { print $2 ", which is " $3 }
    ' "$work/classes" "$work/rows" >"$work/bad"
complain "hooked, and must not be"

# -- the list and the toolkit --
for stub; do
    [ -e "$stub" ] || continue
    sh "$api/symbols/exported.sh" "$stub" "$nm" >"$work/stub" || exit 1
    LC_ALL=C comm -13 "$work/sorted" "$work/stub" >"$work/bad"
    complain "exported by $stub, but has no class (api/symbols/new_names.sh suggests one)"
    exit "$status"
done
echo "no stub of the driver in $*: not compared" >&2
exit "$status"
