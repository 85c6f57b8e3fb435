# Read by the scripts of this directory, which set $api: a place to work, complaints, the tables.
# shellcheck shell=sh disable=SC2034,SC2154 # status is the reader's, api too
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
status=0

# complain WHAT: for every line of $work/bad.
complain() {
    [ ! -s "$work/bad" ] || {
        sed "s|^|$1: |" "$work/bad" >&2
        status=1
    }
}

# table NAME…: as $work/NAME, from tables.sh. An empty one is no table.
table() {
    for table; do
        if ! sh "$api/symbols/tables.sh" "$table" >"$work/$table" || [ ! -s "$work/$table" ]; then
            echo "cannot read the table of $table" >&2
            exit 1
        fi
    done
}
