#!/bin/sh
# /metrics: the machine's GPUs, slices and their processes, whatever a tenant writes in its region.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"

start_vgpud VGPUD_TEST=1
scrape
same 'the GPUs' 85899345920 "$(sample "vgpu_gpu_memory_size_bytes{device_uuid=\"$uuid1\",index=\"1\"}")"
same 'NVML' 1 "$(sample vgpud_nvml_up)"
same 'no slice' 0 "$(sample 'vgpu_slices{state="running"}')"

# A slice, and what it may have and holds.
make_slice x --gpus all --memory 2G --cores 30
member one x 1610612736
until_sample "vgpu_slice_memory_used_bytes$(of x "$uuid0")" 1610612736
same 'the limit' 2147483648 "$(sample "vgpu_slice_memory_limit_bytes$(of x "$uuid0")")"
same 'its data' 1610612736 "$(sample "vgpu_slice_memory_held_bytes$(of x "$uuid0" 'class="data"')")"
same 'no contexts' 0 "$(sample "vgpu_slice_memory_held_bytes$(of x "$uuid0" 'class="context"')")"
same 'the other GPU' 0 "$(sample "vgpu_slice_memory_used_bytes$(of x "$uuid1")")"
same 'the compute limit' 0.3 "$(sample "vgpu_slice_compute_limit_ratio$(of x "$uuid0")")"
same 'its processes' 1 "$(sample "vgpu_slice_processes$(of x '' 'state="running"')")"
same 'what holds it' 1 "$(sample "vgpu_slice_enforcement_info$(of x '' 'level="policy"')")"
same 'one slice' 1 "$(sample 'vgpu_slices{state="running"}')"
same 'no launch' '' "$(sample "vgpu_slice_last_launch_timestamp_seconds$(of x)")"

# How it was throttled, as its region counts. The sample that the test waits for is written last.
put "$region" "$at_throttled_ns" '\0\312\232\073\0\0\0\0' # a second
put "$region" "$at_held" '\7'
put "$region" $((at_shut + 4)) '\5' # refused
put "$region" "$at_throttled" '\3'
until_sample "vgpu_slice_throttles_total$(of x "$uuid0")" 3
same 'for how long' 1 "$(sample "vgpu_slice_throttled_seconds_total$(of x "$uuid0")")"
same 'held' 7 "$(sample "vgpu_slice_launches_held_total$(of x "$uuid0")")"
same 'refused' 5 "$(sample "vgpu_slice_allocations_refused_total$(of x "$uuid0")")"

"$VGPU" pause x >/dev/null || fail 'pause'
until_sample "vgpu_slice_paused$(of x)" 1
same 'a paused process' 1 "$(sample "vgpu_slice_processes$(of x '' 'state="paused"')")"
"$VGPU" resume x >/dev/null || fail 'resume'
until_sample "vgpu_slice_paused$(of x)" 0

# A region that lists a GPU twice, by a name that would break a line; and one that is no region.
container odd "$region"
put "$cache" "$at_first_uuid" 'a"b\\c\12\0'
put "$cache" $((at_first_uuid + 96)) 'a"b\\c\12\0'
put "$cache" "$at_used" '\377\377\377\377\377\377\377\377'
container noise "$region"
head -c 2097152 /dev/urandom >"$cache"
until_sample 'vgpu_slices{state="unreadable"}' 1
grep -qF 'device_uuid="a\"b\\c?"' "$out" || fail "the odd GPU: $(cat "$out")"

kill -9 "$pid" "$holder" "$sleeper"
wait_gone "$holder"
rm -r "$state/x"
until_sample 'vgpu_slices{state="running"}' 0
stop_vgpud

# A tenant that makes slices without end does not hide others', and vgpud stays small.
python3 - "$hami/containers" <<'PYTHON'
import os, sys
os.makedirs(sys.argv[1] + "/greedy")
for i in range(3000):
    open(sys.argv[1] + "/greedy/%d.cache" % i, "w").close()
os.makedirs(sys.argv[1] + "/modest")
open(sys.argv[1] + "/modest/0.cache", "w").close()
PYTHON
start_vgpud VGPUD_TEST=1
wait_log '2744 slices are not looked at: a user or container has more than 256 of them'
scrape
same 'left out' 2744 "$(sample vgpu_slices_left_out)"
grep -q '^vgpu_slice_paused{slice="modest",' "$out" || fail 'the other one is hidden'
[ "$(sample process_resident_memory_bytes)" -lt 33554432 ] || fail "large: $(grep resident "$out")"
rm -r "$hami/containers/greedy"
until_sample vgpu_slices_left_out 0
stop_vgpud

# Without NVML all but the GPUs is there.
start_vgpud VGPU_SIM_FAULTS=nvmlInit_v2=999
grep -q 'the GPUs are not looked at: NVML does not start' "$log" || fail "silent: $(cat "$log")"
scrape
same 'NVML' 0 "$(sample vgpud_nvml_up)"
grep -q '^vgpu_gpu_info{' "$out" && fail 'a GPU'
stop_vgpud
