#!/bin/sh
# coverage.sh: docs/coverage.md, from the tables of api/. `make docs` puts it there.
set -u
api=$(dirname "$0")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for table in classes names rows paths; do
    sh "$api/symbols/tables.sh" "$table" >"$work/$table" && [ -s "$work/$table" ] || exit 1
done

cat <<'TEXT'
# Functions of the driver

This page lists every function that libcuda exports in CUDA 13.0, and says what the library does about
it. The CUDA runtime and all libraries above it use these functions. The page is generated from
`api/` by `make docs`: change the tables there.

*Hooked* means that the application gets a hook of the library instead of the function. Memory that is
taken in another way is *charged by comparison*: the library compares what NVML counts for the process
with what is charged, and charges the difference
([memory.md](design/memory.md#the-comparison-with-nvml)). Such memory cannot be refused, but later
allocations, loads and kernels' first launches are.

*v1* and *v2* are versions of a function; an application calls the newest that it knows. *ptsz* and
*ptds* are flavours for programs that are compiled with a default stream per thread. A *name* is one
version or flavour.
TEXT
cd "$work" && awk -F'\t' '
function add(list, item) { return (list == "") ? item : list ", " item }

# `cuMemAlloc` (v1, v2)
function shown(base) {
    return "`" base "`" ((versions[base] == "v1") ? "" : " (" versions[base] ")")
}

function version(name, base) {
    name = substr(name, length(base) + 1)
    if (name == "") return "v1"
    sub(/^_/, "", name)
    sub(/_/, " ", name)
    return name
}

# Whether the names of a function are hooked.
function state(base) {
    if (hooked[base] == count[base]) return "yes"
    if (hooked[base] > 0) return hooked[base] " of " count[base]
    return needed(base) ? "not yet" : "no"
}

function needed(base) {
    return (rule[class[base]] == "must" && !(base in excepted)) || base in also
}

FILENAME == "classes" {
    order[++classes] = $1
    rule[$1] = $2
    means[$1] = $6
    does[$1] = $7
    n = split($3, part, " ")
    for (i = 1; i <= n; i++) excepted[part[i]] = 1
    n = split($4, part, " ")
    for (i = 1; i <= n; i++) also[part[i]] = 1
    next
}
FILENAME == "names" {
    if (!($3 in class)) {
        base[++bases] = $3
        class[$3] = $2
        reason[$3] = ($4 == "-") ? "" : $4
        functions[$2]++
    }
    versions[$3] = add(versions[$3], version($1, $3))
    count[$3]++
    names[$2]++
    base_of[$1] = $3
    next
}
FILENAME == "rows" {
    if ($1 == "CU_HOOK") { hooked[base_of[$2]]++; hooks[$3]++; all_hooks++ }
    if ($1 == "NVML_HOOK") nvml = add(nvml, "`" $2 "`")
    next
}
FILENAME == "paths" { path[++paths] = $1; through[paths] = $2 }

END {
    print "\n## By path\n"
    print "| what programs use | covered | hooks still missing |"
    print "|---|---|---|"
    for (i = 1; i <= paths; i++) {
        missing = ""
        met = 0
        n = split(through[i], part, " ")
        for (j = 1; j <= n; j++) {
            if (!needed(part[j])) continue
            if (state(part[j]) == "yes") met++
            else missing = add(missing, "`" part[j] "`")
        }
        printf "| %s | %s | %s |\n", path[i], \
            (missing == "") ? "yes" : (met ? "partly" : "by comparison only"), missing
    }

    print "\n## By class\n"
    print "| class | what belongs to it | functions | names | names hooked |"
    print "|---|---|---|---|---|"
    for (i = 1; i <= classes; i++) {
        c = order[i]
        all_functions += functions[c]
        all_names += names[c]
        printf "| [%s](#%s) | %s | %d | %d | %d |\n", c, c, means[c], functions[c], names[c], \
            hooks[c]
    }
    printf "| all | | %d | %d | %d |\n", all_functions, all_names, all_hooks

    for (i = 1; i <= classes; i++) section(order[i])

    print "\n## NVML\n"
    print "Hooked, so that `nvidia-smi` and others in the slice see the slice: " nvml "."
}

# A row for each family with the same reason: the same words if there is one, else the same first
# word of the name.
function section(c,    i, key, kind, rows, row, list, line) {
    printf "\n## %s\n\n%s %s\n\n", c, means[c], does[c]
    print (rule[c] == "never") ? "| functions | why |\n|---|---|" \
        : "| functions | hooked | why |\n|---|---|---|"
    for (i = 1; i <= bases; i++) {
        if (class[base[i]] != c) continue
        key = reason[base[i]]
        if (key == "") {
            match(base[i], /^cu[A-Z][a-z]*/)
            key = substr(base[i], 1, RLENGTH)
        }
        key = key SUBSEP state(base[i])
        if (!(key in list)) {
            row[++rows] = key
            line[key] = ((rule[c] == "never") ? "" : state(base[i]) " | ") reason[base[i]]
        }
        list[key] = add(list[key], shown(base[i]))
    }
    # Those with a reason first: they are what people look for.
    for (kind = 1; kind >= 0; kind--)
        for (i = 1; i <= rows; i++)
            if ((row[i] ~ /^cu/) != kind)
                printf "| %s | %s |\n", list[row[i]], line[row[i]]
}' classes names rows paths
