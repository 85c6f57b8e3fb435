#!/bin/sh
# `vgpu doctor --json`: one list, of what vgpu-doctor(1) names.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/json_lib.sh"
. "$(dirname "$0")/doctor_lib.sh"

json doctor --json
prepare='assert all(list(f) == ["check", "verdict", "found", "advice"] for f in d), d
assert all(f["verdict"] in ("ok", "note", "warn", "fail") for f in d), d
assert all((f["advice"] is None) == (f["verdict"] == "ok") for f in d), d
assert all(f["found"] for f in d), d
by = {f["check"]: f for f in d}'
same 'the checks' '["kernel", "libc", "devices", "driver", "functions", "compute-mode", "mig", "persistence", "host-memory", "mps", "vgpud", "library", "preload", "policy", "slice", "region", "turns", "state", "assured", "namespaces", "nvml-pids", "system-calls"]' \
    "$(found 'list(by)')"
same 'the driver' '{"check": "driver", "verdict": "ok", "found": "driver 580.0.sim, CUDA 13.0, 2 GPUs", "advice": null}' \
    "$(found 'by["driver"]')"

VGPU_SIM_NVML_COMPUTE_MODE=2 "$VGPU" doctor --json -- "$(printf '/caf\303\251\377')" >"$out" 2>"$err"
same 'the status when something fails' 1 "$?"
same 'what fails' '["compute-mode", "compute-mode", "command"]
"/caf???: not found"' "$(found '[f["check"] for f in d if f["verdict"] == "fail"]' 'by["command"]["found"]')"
"$VGPU" doctor --json true >"$out" 2>"$err"
same 'a command' '["ok", "ok", "ok"]' \
    "$(found '[by[c]["verdict"] for c in ("command", "held", "doors")]')"

# Each check has its entry in the manual page, and none is there besides.
page=$(dirname "$0")/../../../docs/vgpu-doctor.1
sed -n '/^\.Ss The checks/,/^\.Sh JSON/s/^\.It Cm //p' "$page" | sort >"$root/page"
found 'list(by)' | tr -d '[]" ' | tr , '\n' | sort | diff - "$root/page" >"$root/diff" ||
    fail "the checks (<) and their page (>) differ: $(cat "$root/diff")"
