#!/bin/sh
# comments.sh SOURCE: a table in a comment is a table.
#
# clang-format breaks a row that is longer than a line, and puts the rest at the comment's margin,
# where no reader finds it. So a line at the margin may follow an indented one only after an empty
# line. The cure for a broken row is to break it by hand, and to indent the rest.
set -u
cd "$1" || exit 1

# broken_rows FILE…
broken_rows() {
    # shellcheck disable=SC2016 # awk's variables
    awk 'FNR == 1 { indent = 0 }
        {
            before = indent
            indent = 0
            text = $0
            if (!sub(/^[ \t]*\*/, "", text) || text ~ /^\//)
                next
            indent = match(text, /[^ ]/) - 1
            if (indent == 1 && before >= 3)
                printf "%s:%d: the rest of a row at the margin:%s\n", FILENAME, FNR, text
        }' "$@"
}

# What the check must find.
sample=$(printf '/*\n *   name    a row that is too long\n * for its line\n */\n' | broken_rows -)
[ -n "$sample" ] || { echo 'comments.sh does not find a broken row' >&2; exit 1; }

found=$(find api bench demo include sim src tests -name '*.[ch]' | LC_ALL=C sort | while read -r file; do
    broken_rows "$file"
done)
[ -z "$found" ] || { echo "$found" >&2; exit 1; }
