#!/bin/sh
# acyclic.sh LIBRARY NM: fails where object files of a static library use each other in a circle. Prints the circle. CMake
# runs it after it made the library, and deletes the library where it fails.
set -eu
library=$1 nm=$2
edges=$("$nm" -A "$library" | awk '
    { split($1, name, ":"); object = name[2]; type = $(NF - 1); symbol = $NF }
    type == "U" { used[object, symbol] = 1 }
    type ~ /[TDBRVW]/ { defined[symbol] = object }
    END {
        for (key in used) {
            split(key, pair, SUBSEP)
            by = defined[pair[2]]
            if (by != "" && by != pair[1])
                edge[pair[1] " " by] = 1
        }
        for (e in edge)
            print e
    }')
[ -n "$edges" ] || exit 0
if ! circle=$(echo "$edges" | tsort 2>&1 >/dev/null) || [ -n "$circle" ]; then
    echo "$library: files that use each other in a circle: $(echo "$circle" | sed -n 's/^tsort: \([^ ]*\.o\)$/\1/p' | tr '\n' ' ')" >&2
    rm -f "$library"
    exit 1
fi
