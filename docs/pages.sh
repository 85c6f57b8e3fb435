#!/bin/sh
# pages.sh PAGES TO: what the commands' tables say, by PAGES (src/cli/pages.c), put into copies of
# the manual pages, and the completions; in the directories docs/ and completions/ of TO. In a page
# it stands between the comments  .\" table: PART [COMMAND]  and  .\" end  of the table.
set -eu
pages=$1 to=$2
docs=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$to/docs" "$to/completions"

for page in "$docs"/vgpu*.1; do
    name=$(basename "$page")
    awk -v pages="$pages" '
        /^\.\\" end/ { skipping = 0 }
        !skipping { print }
        /^\.\\" table: / {
            skipping = 1
            fflush()
            if (system(pages " " $3 " " $4) != 0) exit 1
        }' "$page" >"$to/docs/$name.new"
    mv "$to/docs/$name.new" "$to/docs/$name"
done
for shell in bash zsh; do
    case $shell in
    bash) file=vgpu.bash ;;
    zsh) file=_vgpu ;;
    esac
    "$pages" "$shell" >"$to/completions/$file.new"
    mv "$to/completions/$file.new" "$to/completions/$file"
done
