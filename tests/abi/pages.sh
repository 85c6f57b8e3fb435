#!/bin/sh
# pages.sh SOURCE PAGES: the manual pages and the completions say what the commands' tables do, by
# PAGES (src/cli/pages.c), and there is a page for each command.
set -u
source=$1 pages=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

fail() {
    echo "$*" >&2
    status=1
}

"$source/docs/pages.sh" "$pages" "$work" || exit 1
for file in "$work"/docs/* "$work"/completions/*; do
    name=${file#"$work/"}
    diff "$source/$name" "$file" >"$work/diff" ||
        fail "$name (<) is not what the tables say (>), run make docs: $(cat "$work/diff")"
done
for command in $("$pages" commands | sed -n 's/^\.It Cm \([a-z]*\).*/\1/p'); do
    grep -q "^\.Nm vgpu-$command$" "$source/docs/vgpu-$command.1" || fail "vgpu-$command(1) is missing"
    for part in synopsis options exits examples; do
        grep -qF "table: $part $command" "$source/docs/vgpu-$command.1" ||
            fail "vgpu-$command(1) has no $part of the table"
    done
done
exit "$status"
