#!/bin/sh
# `vgpu inspect --json`: one document, with the members that vgpu-inspect(1) names.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/json_lib.sh"
. "$(dirname "$0")/inspect_lib.sh"

make_slice x --memory 2G
json inspect --json "$region"
inspect 0 --json "$region"
same 'the document of an idle slice' \
    "[\"path\", \"version\", \"hami_version\", \"paused\", \"gang_policy\", \"lock\", \"devices\", \"processes\", \"whole\", \"wrong\", \"gang\"]
\"$region\"
[1, \"1.2\", false, null, {\"slot\": null, \"takeovers\": 0}, [], true, []]
2
{\"device\": 0, \"uuid\": \"$uuid0\", \"memory_used_bytes\": 0, \
\"memory_limit_bytes\": 2147483648, \"cores_limit_pct\": null, \"cores_assured_pct\": null, \"burst_ns\": null, \
\"nr_throttled\": 0, \"throttled_ns\": 0, \"launches_held\": 0, \"charged_ns\": 0, \"corrected_ns\": 0, \
\"turns\": 0, \"turn_ns\": 0, \"turn_waited_ns\": 0, \
\"gang_members\": 0, \"allocations_refused\": 0}
{\"members\": 0, \"used_ns\": 0, \"shut\": false, \"joint_processes\": 0, \"joint_used_ns\": 0}" \
    "$(found 'list(d)' 'd["path"]' \
        '[d[k] for k in ("version", "hami_version", "paused", "gang_policy", "lock", "processes", "whole", "wrong")]' \
        'len(d["devices"])' 'd["devices"][0]' 'd["gang"]')"

inspect 0 --json x
same 'what its policy does not say' '"found"' "$(found 'd["gang_policy"]')"

member one x 3000000001
inspect 0 --json "$region"
same 'its process' "[0, $pid, \"running\"]
true
2
{\"device\": 0, \"context_bytes\": 0, \"module_bytes\": 0, \"data_bytes\": 3000000001, \
\"offset_bytes\": 0, \"total_bytes\": 3000000001}" \
    "$(found '[d["processes"][0][k] for k in ("slot", "pid", "state")]' \
        "d['processes'][0]['host_pid'] in ($pid, None)" \
        'len(d["processes"][0]["held"])' 'd["processes"][0]["held"][0]')"

# Wrong, with figures that a double or a signed integer does not hold, and a path that is no UTF-8.
damaged=$root/$(printf 'caf\303\251')
cp "$region" "$damaged"
put "$damaged" "$at_used" '\376\377\377\377\377\377\377\377'
put "$damaged" "$at_first_uuid" '\377\42'
inspect 1 --json "$damaged"
same 'the document of a damaged one' '18446744073709551614
true
"caf\u00e9"
false
true' "$(found 'd["devices"][0]["memory_used_bytes"]' 'd["devices"][0]["uuid"].startswith("?\"U-")' \
    'd["path"].split("/")[-1]' 'd["whole"]' '"device 0: its uuid is none" in d["wrong"]')"
mv "$damaged" "$root/$(printf 'a\377b')"
inspect 1 --json "$root/$(printf 'a\377b')"
same 'a path of other bytes' '"a?b"' "$(found 'd["path"].split("/")[-1]')"

refuse_file 125 'there is no such file' --json "$root/nothing"
