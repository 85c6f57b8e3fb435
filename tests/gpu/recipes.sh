#!/bin/bash
# recipes.sh [--list] BUILD [NAME…]: runs the recipes of docs/recipes.md, or those, and prints what they do. A recipe
# whose commands cannot all be run here (no such module, say) fails by itself, and the others go on.
# A block  ```LANGUAGE FILE  of the page is that file, a block  ```console NAME  a recipe: its lines that begin
# with "$ " are run by one shell.
set -u
page=$(cd "$(dirname "$0")/../.." && pwd)/docs/recipes.md

recipes() {
    sed -n 's/^```console //p' "$page"
}

if [ "${1:-}" = --list ]; then
    recipes
    exit
fi
build=$(cd "${1:?usage: recipes.sh [--list] BUILD [NAME...]}" && pwd)
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export VGPU_STATE=$scratch/state PATH=$build:$PATH
cd "$scratch" || exit 1

awk '
    /^```[a-z]+ [^ ]+$/ && $1 != "```console" { file = $2; next }
    /^```$/ { file = "" }
    file != "" { print >file }' "$page"

# commands NAME: those of the recipe.
commands() {
    awk -v name="$1" '
        /^```$/ { inside = 0 }
        inside && sub(/^\$ /, "")
        $0 == "```console " name { inside = 1 }' "$page"
}

failed=0
[ $# -gt 0 ] || mapfile -t all < <(recipes)
for name in "${@:-${all[@]}}"; do
    echo "== $name"
    commands "$name" >"$name.sh"
    [ -s "$name.sh" ] || { echo "there is no recipe $name" && failed=1 && continue; }
    # Each command is shown before what it prints.
    while IFS= read -r line; do
        printf 'echo %q\n%s\n' "\$ $line" "$line"
    done <"$name.sh" >"$name.shown.sh"
    timeout 120 bash -e "$name.shown.sh" 2>&1 </dev/null || { echo "recipe $name: failed, status $?" && failed=1; }
done
exit "$failed"
