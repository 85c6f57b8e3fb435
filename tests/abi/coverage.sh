#!/bin/sh
# coverage.sh API PAGE: PAGE is what api/coverage.sh prints now.
set -u
api=$1 page=$2
now=$(mktemp) || exit 1
trap 'rm -f "$now"' EXIT
sh "$api/coverage.sh" >"$now" || exit 1
diff -u "$page" "$now" && exit 0
echo "$page is stale: make docs" >&2
exit 1
