#!/bin/sh
# contrib/: the dashboard and the alerts ask for metrics that there are.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
contrib=$(dirname "$0")/../../../contrib

configure 'hami = true'
start_vgpud VGPUD_TEST=1
scrape
sed -n 's/^# TYPE \([a-z_]*\) .*/\1/p' "$out" | sort >"$root/names"
stop_vgpud

python3 -m json.tool "$contrib/grafana/vgpu.json" >/dev/null 2>"$err" || fail 'the dashboard is no JSON'
for file in "$contrib/grafana/vgpu.json" "$contrib/prometheus/vgpud.rules.yml"; do
    grep -oE '\b(vgpu|vgpud)_[a-z_]+[{[ ]' "$file" | grep -oE '[a-z_]+' | sort -u >"$root/asked"
    [ "$(wc -l <"$root/asked")" -ge 7 ] || fail "few metrics in $file: $(cat "$root/asked")"
    comm -23 "$root/asked" "$root/names" >"$root/unknown"
    [ ! -s "$root/unknown" ] || fail "$file asks for what there is not: $(cat "$root/unknown")"
done

command -v promtool >/dev/null || exit 0
promtool check rules "$contrib/prometheus/vgpud.rules.yml" >"$out" 2>"$err" || fail "the alerts: $(cat "$out")"
promtool test rules "$contrib/prometheus/vgpud.rules.test.yml" >"$out" 2>"$err" || fail "the alerts' tests: $(cat "$out")"
