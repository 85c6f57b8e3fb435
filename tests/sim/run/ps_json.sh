#!/bin/sh
# `vgpu ps --json`: one document, with the members that vgpu-ps(1) names.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/json_lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"

json ps --json
prepare='s = (d["slices"] or [None])[0]'
same 'the document of nothing' '["gpus", "slices", "others"]
[]
null
2' "$(found 'list(d)' 'd["slices"]' 'd["others"]' 'len(d["gpus"])')"

make_slice x --memory 2G --cores 30
x=$region
member one x 1610612736
one=$pid
ps 0 --json
same 'the GPU' "{\"index\": 1, \"uuid\": \"$uuid1\", \"name\": \"vgpu simulated GPU\", \
\"memory_used_bytes\": 0, \"memory_total_bytes\": 85899345920, \"busy_pct\": 0, \"cores_assured_pct\": 30, \"slices_held_bytes\": 0, \"turn_least_ns\": 0}" \
    "$(found 'd["gpus"][1]')"
same 'the slice' "[\"name\", \"kind\", \"region\", \"policy\", \"owner_uid\", \"user\", \"state\", \"error\", \
\"paused\", \"blocked\", \"cores_lifted\", \"launched_s\", \"devices\", \"processes\", \"gang\", \"namespace\", \"pod\", \"container\", \"pods\"]
[\"x\", \"run\", \"$x\", \"$state/x/policy\", $(id -u), \"$(id -un)\", \"running\", null, false, false, false, null]" \
    "$(found 'list(s)' 'list(s.values())[:12]')"
same 'its second GPU' "{\"device\": 1, \"uuid\": \"$uuid1\", \"index\": 1, \
\"memory_used_bytes\": 0, \"memory_limit_bytes\": 2147483648, \"context_bytes\": 0, \
\"module_bytes\": 0, \"data_bytes\": 0, \"offset_bytes\": 0, \"cores_used_pct\": 0, \
\"cores_used_by\": \"slice\", \"throttled_pct\": 0, \"turn_waited_pct\": 0, \"cores_limit_pct\": 30, \"cores_assured_pct\": 30, \"burst_ns\": null, \"nr_throttled\": 0, \"throttled_ns\": 0, \
\"launches_held\": 0, \"charged_ns\": 0, \"corrected_ns\": 0, \"turns\": 0, \"turn_ns\": 0, \"turn_waited_ns\": 0, \
\"gang_members\": 0, \"allocations_refused\": 0}
1610612736
1610612736" "$(found 's["devices"][1]' 's["devices"][0]["memory_used_bytes"]' \
    's["devices"][0]["data_bytes"]')"
same 'its process' "[0, $one, $one, \"running\"]
true
{\"device\": 0, \"context_bytes\": 0, \"module_bytes\": 0, \"data_bytes\": 1610612736, \
\"offset_bytes\": 0, \"total_bytes\": 1610612736}
[\"slot\", \"pid\", \"host_pid\", \"command\", \"state\", \"held_known\", \"held\"]" \
    "$(found '[s["processes"][0][k] for k in ("slot", "pid", "host_pid", "state")]' \
        "s['processes'][0]['command'].endswith('run_member $root/one.ready 1610612736')" \
        's["processes"][0]["held"][0]' 'list(s["processes"][0])')"

same 'its gang' '{"members": 0, "used_ns": 0, "shut": false, "joint_processes": 0, "joint_used_ns": 0}' "$(found 's["gang"]')"

# What the pacer says: of a device, and of the gang. A bucket that has been shut since long ago counts
# until it had recovered: 30 ms of debt at 30 % take 100 ms.
put "$x" "$at_burst_ns" '\100\102\017\0' # 1000000
put "$x" "$at_throttled_ns" '\100\102\017\0' # 1000000
put "$x" "$at_throttled" '\3'
put "$x" "$at_held" '\7'
put "$x" "$at_refilled" '\350\3\0\0\0\0\0\0' # 1000
put "$x" "$at_charged" '\201\303\311\1' # 30000001
put "$x" "$at_corrected" '\377\377\377\377\377\377\377\377'
put "$x" "$at_shut" '\1'
put "$x" "$at_shut_at" '\350\3\0\0\0\0\0\0' # 1000
put "$x" "$at_gang" '\100\102\017\0'
put "$x" "$at_gang_shut_at" '\1'
put "$x" "$at_gang_members" '\4'
put "$x" "$at_gang_member" "$(owner_of "$x")\0\0\0\0"                   # device 0
put "$x" "$((at_gang_member + 64))" "$(owner_of "$x")\1\0\0\0"           # device 1
put "$x" "$((at_gang_member + 96))" '\2\0\0\0'                         # nobody is in slot 1
ps 0 --json
same 'its burst' 1000000 "$(found 's["devices"][0]["burst_ns"]')"
same 'how it was throttled' '[3, 101000000, 7, 30000001, -1, 1]
[0, 0, 0, 0, 0, 1]
{"members": 2, "used_ns": 1000000, "shut": true, "joint_processes": 0, "joint_used_ns": 0}' \
    "$(found '[s["devices"][0][k] for k in ("nr_throttled", "throttled_ns", "launches_held", "charged_ns", "corrected_ns", "gang_members")]' \
        '[s["devices"][1][k] for k in ("nr_throttled", "throttled_ns", "launches_held", "charged_ns", "corrected_ns", "gang_members")]' \
        's["gang"]')"
put "$x" "$((at_charged + 5))" '\377\377' # so much that it does not recover
ps 0 --json
same 'for how long it is held back' '[100, 0]' "$(found '[s["devices"][0][k] for k in ("throttled_pct", "turn_waited_pct")]')"
put "$x" "$at_charged" '\201\303\311\1\0\0\0\0'
put "$x" "$at_shut" '\0'
put "$x" "$at_gang_shut_at" '\0'
ps 0 --json
same 'the bucket is open' '[1000000, false]' \
    "$(found '[s["devices"][0]["throttled_ns"], s["gang"]["shut"]]')"

# One that cannot be read, one whose name is no UTF-8, and figures beyond a double's.
container "$(printf 'a\377b')" "$x"
put "$cache" "$at_used" '\376\377\377\377\377\377\377\377'
container noise "$x"
head -c 2097152 /dev/urandom >"$cache"
VGPU_SIM_FAULTS=nvmlInit_v2=999 ps 1 --json
same 'the others' '[["x", "run"], ["a?b", "hami"], ["noise", "hami"]]
18446744073709551614
["unreadable", [], []]
true
true' "$(found '[[i["name"], i["kind"]] for i in d["slices"]]' \
    'd["slices"][1]["devices"][0]["memory_used_bytes"]' \
    '[d["slices"][2][k] for k in ("state", "devices", "processes")]' \
    '"it holds something else" in d["slices"][2]["error"]' 'd["slices"][2]["policy"] is None')"
rm -r "$hami/containers"

# What a monitor says, and when something was launched.
put "$x" "$at_recent_kernel" '\377\377\377\377'
put "$x" "$at_switch" '\0'
put "$x" 2008912 '\0\361\123\145' # 1700000000
ps 0 --json
same 'its words' '[true, true, 1700000000]
[null, 30]' "$(found '[s[k] for k in ("blocked", "cores_lifted", "launched_s")]' \
    '[s["devices"][0]["cores_used_by"] if s["devices"][0]["cores_used_by"] == "slice" else None, s["devices"][0]["cores_limit_pct"]]')"

# Without NVML.
VGPU_SIM_FAULTS=nvmlInit_v2=999 ps 0 --json
same 'without NVML' '[[], null, null]' \
    "$(found '[d["gpus"], s["devices"][0]["index"], s["devices"][0]["cores_used_by"]]')"
