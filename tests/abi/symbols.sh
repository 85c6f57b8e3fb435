#!/bin/sh
# symbols.sh API NM STUB...: the classes of api/symbols/cuda-13.0.txt: each one known, the same for all
# versions and flavours of a name and in cuda.def, and every name there that a driver has (the first
# STUB that exists; without one that part is left out).
set -u
api=$1 nm=$2
shift 2
list=$api/symbols/cuda-13.0.txt
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

# complain TEXT: for every line of $work/bad.
complain() {
    [ ! -s "$work/bad" ] || {
        sed "s|^|$1: |" "$work/bad" >&2
        status=1
    }
}

grep -v '^#' "$list" | grep -v '^ *$' >"$work/list"
awk '{ print $1 }' "$work/list" | LC_ALL=C sort >"$work/names"
[ -s "$work/names" ] || { echo "$list is empty" >&2; exit 1; }

uniq -d "$work/names" >"$work/bad"
complain "listed twice"
awk 'NF != 2' "$work/list" >"$work/bad"
complain "not a name and a class"
awk '$2 !~ /^(door|allocate|free|submit|query|context|module|device|neutral)$/' "$work/list" \
    >"$work/bad"
complain "no known class"
awk '{
        base = $1
        sub(/_pts?[zd]s?$/, "", base)
        sub(/_v[0-9]+$/, "", base)
        if (base in class && class[base] != $2)
            print $1 " is " $2 ", but " first[base] " is " class[base]
        if (!(base in class)) { class[base] = $2; first[base] = $1 }
    }' "$work/list" >"$work/bad"
complain "versions of one name"

# The rows of cuda.def: its name and class are on the row's first line.
sed -n 's/^CU_[A-Z]*(\([A-Za-z0-9_]*\), *\([a-z]*\),.*/\1 \2/p' "$api/cuda.def" >"$work/rows"
[ "$(wc -l <"$work/rows")" -eq "$(grep -c '^CU_[A-Z]*(' "$api/cuda.def")" ] || {
    echo "some rows of cuda.def are not understood" >&2
    status=1
}
awk 'NR == FNR { class[$1] = $2; next }
    class[$1] != $2 { print $1 " is " $2 ", but " (class[$1] ? class[$1] : "nothing") " in the list" }
    ' "$work/list" "$work/rows" >"$work/bad"
complain "cuda.def"

for stub; do
    [ -e "$stub" ] || continue
    # Some stubs have the interop with OpenGL, EGL and VDPAU and the debugger's entries as well.
    "$nm" -D --defined-only "$stub" | awk '{ print $3 }' | grep -v '^cudbg' |
        grep -vE '(GL|EGL|Egl|VDPAU)' | LC_ALL=C sort -u >"$work/stub"
    [ -s "$work/stub" ] || { echo "$stub exports nothing" >&2; exit 1; }
    LC_ALL=C comm -13 "$work/names" "$work/stub" >"$work/bad"
    complain "exported by $stub, but has no class"
    exit "$status"
done
echo "no stub of the driver in $*: not compared" >&2
exit "$status"
