#!/bin/sh
# --json of the commands that change slices, --all of pause and resume, and --json of top --batch.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/json_lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"
. "$(dirname "$0")/steer_lib.sh"

vgpu 0 pause --all
prints 'no slice is here'
wrong 2 'names and --all at once: vgpu pause NAME..., or vgpu pause --all' pause -a web
wrong 2 'no slice to resume: vgpu resume NAME..., or vgpu resume --all' resume
make_slice web --gpus 1 --memory 2G
x=$region
member one web 1048576
make_slice two --gpus 0 --unlimited
vgpu 0 pause --all
prints 'two: paused; no process uses the GPU' 'web: 1 process paused'
vgpu 0 resume -a
prints 'two: resumed; no process uses the GPU' 'web: 1 process resumed'

json pause --json web nobody
same 'the status' 125 "$status"
same 'the line' 'vgpu: there is no slice "nobody" here: vgpu ps lists those there are' "$(cat "$err")"
same 'the document' "{\"slices\": [{\"name\": \"web\", \"kind\": \"run\", \"region\": \"$x\", \
\"owner_uid\": $(id -u), \"user\": \"$(id -un)\", \"done\": true, \"error\": null, \"changed\": true, \"processes\": 1}, \
{\"name\": \"nobody\", \"kind\": null, \"region\": null, \"owner_uid\": null, \"user\": null, \"done\": false, \
\"error\": \"there is no slice \\\"nobody\\\" here: vgpu ps lists those there are\", \"changed\": false, \"processes\": 0}]}" \
    "$(found d)"
vgpu 0 pause -j web
same 'paused already' '[true, false, 0]' "$(found '[d["slices"][0][k] for k in ("done", "changed", "processes")]')"
vgpu 0 resume -j --all
same 'resumed' '[["two", false], ["web", true]]' "$(found '[[s["name"], s["changed"]] for s in d["slices"]]')"

vgpu 0 set --json -m 1G -c 40 --burst 0 web
same 'no burst' 0 "$(found 'd["slices"][0]["gpus"][0]["burst_ns"]')"
vgpu 0 set --json --burst default web
same 'the default' null "$(found 'd["slices"][0]["gpus"][0]["burst_ns"]')"
vgpu 0 set --json --burst 1.5ms web
same 'set' "{\"index\": 1, \"uuid\": \"$uuid1\", \"memory_used_bytes\": 1048576, \
\"memory_limit_bytes\": 1073741824, \"cores_limit_pct\": 40, \"cores_assured_pct\": 40, \"burst_ns\": 1500000}
[true, null, true]" "$(found 'd["slices"][0]["gpus"][0]' '[d["slices"][0][k] for k in ("done", "error", "changed")]')"
same 'gangs' '"found"' "$(found 'd["slices"][0]["gang_policy"]')"
vgpu 0 set --json --gang yes web
same 'gangs' '["yes", true]' "$(found '[d["slices"][0][k] for k in ("gang_policy", "changed")]')"
vgpu 0 set --json --gang train-8 web
same 'gangs' '["train-8", true]' "$(found '[d["slices"][0][k] for k in ("gang_policy", "changed")]')"
vgpu 0 set --json --gang yes web
vgpu 0 inspect --json web
same 'gangs' '"yes"' "$(found 'd["gang_policy"]')"
wrong 125 'there is no slice "nobody"' set --json -m 1G nobody

vgpu 0 top --batch --json -n 2 -i 0.1 web
same 'lines' 2 "$(wc -l <"$out")"
head -n 1 "$out" >"$root/first" && mv "$root/first" "$out"
same 'a look' '["gpus", "slices", "others", "time_s"]
["web"]' "$(found 'list(d)' '[s["name"] for s in d["slices"]]')"
wrong 2 '--json goes with --batch' top --json

json rm --json web
same 'a slice that lives' '[false, "the slice web is not removed: a vgpu run has it: end its command first, or use vgpu rm --force", false]' \
    "$(found '[d["slices"][0][k] for k in ("done", "error", "changed")]')"
vgpu 0 rm --json --force web
same 'removed' '[true, null, true, 2]' "$(found '[d["slices"][0][k] for k in ("done", "error", "changed", "processes")]')"

# What is left of a slice is neither paused nor set.
kill -9 "$holder" "$sleeper"
wait_gone "$holder"
wait_gone "$sleeper"
wrong 125 'nothing lives in the slice two, and the next vgpu run removes it: there is nothing to pause' pause two
wrong 125 'there is nothing to set' set -m 1G two
vgpu 0 pause --all --json
same 'all of none' '{"slices": []}' "$(found d)"
vgpu 0 rm --json --all
same 'all' '["two"]' "$(found '[s["name"] for s in d["slices"]]')"
