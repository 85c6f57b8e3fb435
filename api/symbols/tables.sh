#!/bin/sh
# tables.sh names|classes|paths|rows: what the tables of this directory and the .def files above it
# say, a record a line, tab between fields, for the scripts that check and print them:
#
#   names    name, class, base, reason   base is the name without _v2, _ptsz and the like; the
#                                        reason is its family's, "as" followed to where it is
#   classes  class, hook, except, also, doubtful, means, does
#   paths    title, names
#   rows     kind (CU_HOOK, NVML_CALL ...), name, class (none for NVML)
#
# A field without contents is "-". Whether the tables are right is for tests/abi/ to say.
set -u
symbols=$(dirname "$0")

names() {
    awk '
    /^cu/ {
        name[++count] = $1
        class[$1] = (NF > 1) ? $2 : "-"
        base[$1] = $1
        sub(/_pt(sz|ds)$/, "", base[$1])
        sub(/_v[0-9]+$/, "", base[$1])
        if (match($0, / # /)) {
            text = substr($0, RSTART + 3)
            sub(/ +$/, "", text)
            if (!(base[$1] in reason))
                reason[base[$1]] = text
        }
    }
    # Not further than one step: a test holds that there are no chains.
    function resolved(of) {
        if (!(of in reason))
            return "-"
        if (reason[of] !~ /^as cu[A-Za-z0-9]+$/)
            return reason[of]
        of = substr(reason[of], 4)
        return (of in reason) ? reason[of] : "-"
    }
    END {
        for (i = 1; i <= count; i++)
            print name[i] "\t" class[name[i]] "\t" base[name[i]] "\t" resolved(base[name[i]])
    }' "$symbols/cuda-13.0.txt"
}

classes() {
    awk '
    function flush() {
        if (field["class"] != "") {
            for (i = 1; i <= keys; i++)
                printf "%s%s", (field[key[i]] == "") ? "-" : field[key[i]], (i < keys) ? "\t" : "\n"
        }
        for (i = 1; i <= keys; i++)
            field[key[i]] = ""
    }
    BEGIN { keys = split("class hook except also doubtful means does", key, " ") }
    /^#/ || /^$/ { next }
    /^class / { flush() }
    {
        gap = (last == "doubtful") ? "" : " "
        text = $0
        if (text ~ /^ /) {
            sub(/^ +/, "", text)
            field[last] = field[last] gap text
        } else {
            last = $1
            sub(/^[a-z]+ */, "", text)
            field[last] = text
        }
    }
    END { flush() }' "$symbols/classes.txt"
}

paths() {
    sed -n 's/^\([^#].*[^ ]\) *: *\(cu.*\)$/\1	\2/p' "$symbols/paths.txt"
}

# A row's kind, name and class are on its first line.
rows() {
    awk '/^(CU|NVML)_[A-Z]+\(/ {
        row = $0
        sub(/\(/, "\t", row)
        split(row, half, "\t")
        split(half[2], part, / *, */)
        printf "%s\t%s\t%s\n", half[1], part[1], (half[1] ~ /^CU_/) ? part[2] : "-"
    }' "$symbols/../cuda.def" "$symbols/../nvml.def"
}

case ${1-} in
names | classes | paths | rows) "$1" ;;
*)
    echo "usage: tables.sh names|classes|paths|rows" >&2
    exit 2
    ;;
esac
