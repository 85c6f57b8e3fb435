#!/bin/sh
# For tests of --json, to be sourced after lib.sh: what a vgpu without json-c says, and reading.
# shellcheck disable=SC2154 # lib.sh has set these

# json ARGUMENT...: what vgpu prints is in $out, and its status in $status; ends the test, as skipped, where JSON cannot be
# had or read.
json() {
    "$VGPU" "$@" >"$out" 2>"$err"
    status=$?
    if grep -q 'built without --json' "$err"; then
        same 'the status without json-c' 125 "$status"
        echo 'skipped: vgpu was built without json-c'
        exit 77
    fi
    command -v python3 >/dev/null || {
        echo 'skipped: python3 is not here to read JSON'
        exit 77
    }
}

# found EXPRESSION...: what they are, of the document d in $out, a line each. $prepare may say more of d first.
prepare=
found() {
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
exec(sys.argv[2])
for expression in sys.argv[3:]:
    print(json.dumps(eval(expression)))' "$out" "$prepare" "$@" || fail "not as it should be: $(cat "$out")"
}
