#!/bin/sh
# The audit: who is on a GPU without a slice, which slice holds more than its ledger has, whose
# limits were lifted; and the end of such a process, where that is wanted.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
: "${SHARES:?}" "${LIBRARY:?}" # from CMakeLists.txt
export VGPU_LIBRARY="$LIBRARY"
at_limit=1600
at_sm_limit=1728

# configure_audit SETTING...
configure_audit() {
    {
        printf 'metrics = { listen = "127.0.0.1:0" }\nevents = { file = "%s"; journal = false }\naudit = {\n' "$events"
        for setting in "$@"; do
            printf '    %s\n' "$setting"
        done
        printf '}\n'
    } >"$config"
}

outside() {
    "$SHARES" --kernel=2000 --use=5 --seconds=600 >/dev/null &
    stranger=$!
    started="$started $stranger"
}

# Without a slice: told once, and nothing is done.
configure_audit 'excess = "100M"'
start_vgpud VGPUD_TEST=1
outside
first=$stranger
until_event process_outside "e['pid'] == $first and e['device_uuid'] == '$uuid0' and e['memory_used_bytes'] >= 500 << 20"
until_sample "vgpu_gpu_outside_processes{device_uuid=\"$uuid0\",index=\"0\"}" 1
[ "$(sample "vgpu_gpu_outside_memory_bytes{device_uuid=\"$uuid0\",index=\"0\"}")" -ge 524288000 ] || fail 'its memory'

# In a slice: no finding, until its ledger is made to say less than NVML.
start inside --name inside --gpus 1 --memory 2G "$SHARES" --kernel=2000 --use=5 --seconds=600
until_sample "vgpu_slice_processes$(of inside '' 'state="running"')" 1
until_sample "vgpu_slice_excess_bytes$(of inside "$uuid1")" 0
program=$(cat "/proc/$pid/task/$pid/children")
program=${program% }
kill -STOP "$program" # it would put its ledger right
region=$state/inside/region
put "$region" $((at_slots + 8)) '\0\0\0\0\0\0\0\0' # its contexts
until_event slice_excess "e['slice'] == 'inside' and e['device_uuid'] == '$uuid1' and e['excess_bytes'] > 100 << 20 and e['pid'] == $program"
scrape
[ "$(sample "vgpu_slice_excess_bytes$(of inside "$uuid1")")" -gt 104857600 ] || fail 'no excess in the metrics'

# A limit that is written into the region counts for nothing, and is told.
make_slice lifted --gpus 0 --memory 2G --cores 30
member one lifted 4096
until_sample "vgpu_slice_policy_lifted$(of lifted)" 0
put "$region" "$at_limit" '\0\0\0\0\1\0\0\0'
until_event policy_lifted "e['slice'] == 'lifted'"
until_sample "vgpu_slice_policy_lifted$(of lifted)" 1
"$VGPU" set lifted --memory 8G --cores 50 >/dev/null || fail 'set'
until_sample "vgpu_slice_policy_lifted$(of lifted)" 0
put "$region" "$at_sm_limit" '\0'
until_sample "vgpu_slice_policy_lifted$(of lifted)" 1
same 'how often it was told' 2 "$(count policy_lifted)"
# A GPU that the region does not name for a moment has the same policy afterwards.
put "$region" "$at_first_uuid" X
until_sample "vgpu_slice_policy_lifted$(of lifted)" 0
put "$region" "$at_first_uuid" G
until_sample "vgpu_slice_policy_lifted$(of lifted)" 1

same 'who is outside' 1 "$(count process_outside)"
same 'how often the excess was told' 1 "$(count slice_excess)"
same 'who was ended' 0 "$(count process_ended)"
kill -0 "$first" || fail 'it was ended'
stop_vgpud

# Outside the machine's first PID namespace, NVML's pids may be other processes' pids there: then no
# program is known by its pid, and none is ended.
[ "$(stat -L -c %i /proc/self/ns/pid)" = "$((0xeffffffc))" ] || exit 0

# Some programs may.
configure_audit "allow = [\"/bin/true\", \"$SHARES\"]"
rm "$events"
start_vgpud VGPUD_TEST=1
until_sample "vgpu_gpu_outside_processes{device_uuid=\"$uuid0\",index=\"0\"}" 1
sleep 5
same 'who is outside' 0 "$(count process_outside)"
stop_vgpud

configure_audit 'end_outside = true' 'grace = 1' 'end_excess = true' 'excess = "100M"'
rm -f "$events"
sh -c 'trap "" TERM; exec "$0" --kernel=2000 --use=5 --seconds=600' "$SHARES" >/dev/null &
stubborn=$!
started="$started $stubborn"
start_vgpud VGPUD_TEST=1
until_event process_ended "e['pid'] == $first and e['signal'] == 'SIGTERM' and e['reason'] == 'process_outside'"
wait_gone "$first"
until_event process_ended "e['pid'] == $stubborn and e['signal'] == 'SIGTERM'"
until_event process_ended "e['pid'] == $program and e['signal'] == 'SIGTERM' and e['reason'] == 'slice_excess'"
wait_gone "$stubborn"
until_event process_ended "e['pid'] == $stubborn and e['signal'] == 'SIGKILL'"
kill -0 "$vgpud" || fail 'vgpud ended itself'

# A program of a slice writes the pid of another slice's program into its region, and that it holds nothing: the other is not ended.
start victim --name victim --gpus 1 --memory 2G "$SHARES" --kernel=2000 --use=5 --seconds=600
until_sample "vgpu_slice_processes$(of victim '' 'state="running"')" 1
victim=$(cat "/proc/$pid/task/$pid/children")
victim=${victim% }
make_slice false --gpus 1 --memory 2G
member two false 4096
python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<ii", *[int(sys.argv[1])] * 2) + bytes(1024))' "$victim" |
    dd of="$region" bs=1 seek="$at_slots" conv=notrunc 2>/dev/null
until_event slice_excess "e['slice'] == 'false' and e['pid'] == $victim"
scrape
looks=$(sample vgpud_looks_total)
until [ "$(sample vgpud_looks_total)" -ge $((looks + 4)) ]; do
    sleep 0.2
    scrape
done
same 'who is ended for it' 0 "$(grep '"event":"process_ended"' "$events" | grep -c "\"pid\":$victim,")"
kill -0 "$victim" || fail 'the program of another slice was ended'
stop_vgpud
