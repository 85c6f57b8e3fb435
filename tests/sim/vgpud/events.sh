#!/bin/sh
# Events: slices that come, change and go, what they are refused, and processes that are killed.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
configure_events() {
    printf 'metrics = {\n    listen = "127.0.0.1:0"\n}\nevents = {\n    file = "%s"\n    journal = false\n}\n' "$1" >"$config"
}

make_slice old --gpus 0 --memory 1G
configure_events "$events"
start_vgpud VGPUD_TEST=1
make_slice x --gpus 0 --memory 2G --cores 30
until_event slice_made "e['slice'] == 'x' and e['kind'] == 'run' and e['region'] == '$region'"
grep -q 'vgpud: slice x was made$' "$log" || fail "no line: $(cat "$log")"
same 'of the slice that was there' 0 "$(grep -c '"slice":"old"' "$events")"

"$VGPU" set x --memory 3G --cores 40 >/dev/null || fail 'set'
until_event slice_changed "e['memory_limit_bytes'] == 3 << 30 and e['cores_limit_pct'] == 40 and e['device_uuid'] == '$uuid0'"
"$VGPU" set x --burst 50ms >/dev/null || fail 'set'
until_event slice_changed "e['burst_ns'] == 50000000 and e['message'].endswith('; burst 50ms, was default')"
"$VGPU" pause x >/dev/null || fail 'pause'
until_event slice_paused "e['slice'] == 'x'"
"$VGPU" resume x >/dev/null || fail 'resume'
until_event slice_resumed "e['slice'] == 'x'"
same 'how often it was paused' 1 "$(count slice_paused)"

# Refusals: the first at once, more of them in a minute.
put "$region" $((at_shut + 4)) '\3'
until_event allocation_refused "e['slice'] == 'x' and e['count'] == 3"
put "$region" $((at_shut + 4)) '\11'

# A region that is no more one.
head -c 2097152 /dev/urandom >"$root/noise"
dd if="$root/noise" of="$region" bs=4096 conv=notrunc 2>/dev/null
until_event slice_unreadable "e['slice'] == 'x' and 'region' in e['error']"
kill -9 "$holder" "$sleeper"
wait_gone "$holder"
rm -r "$state/x"
until_event slice_removed "e['slice'] == 'x'"
sleep 1.5
same 'how often it was refused' 1 "$(count allocation_refused)"
scrape
same 'how many were counted' 1 "$(sample 'vgpud_events_total{event="slice_removed"}')"

# The file is made again after it was rotated.
mv "$events" "$events.1"
kill -HUP "$vgpud"
wait_log "has read $config again"
mkdir "$state/odd"
until_event slice_made "e['slice'] == 'odd'"

# Too many at once: some are told, all are counted, and how many are not is told.
scrape
made=$(sample 'vgpud_events_total{event="slice_made"}')
(cd "$state" && seq -f 'flood%g' 250 | xargs mkdir)
until_event events_dropped "e['count'] >= 1"
until_sample 'vgpud_events_total{event="slice_made"}' $((made + 250))
[ "$(count slice_made)" -le 221 ] || fail "too many are told: $(count slice_made)"
[ "$(count slice_made)" -ge 10 ] || fail "few are told: $(count slice_made)"
rm -r "$state"/flood*

# One that cannot be written to.
configure_events /nowhere/events
kill -HUP "$vgpud"
wait_log 'keeps its present settings: events cannot be written to /nowhere/events (No such file or directory)'
sleep 3
rmdir "$state/odd"
until_event slice_removed "e['slice'] == 'odd'"
stop_vgpud

# On stdout.
configure_events -
start_vgpud VGPUD_TEST=1
mkdir "$state/odd"
events=$root/vgpud.out
until_event slice_made "e['slice'] == 'odd' and e['time'].endswith('Z') and e['message'] == 'slice odd was made'"
stop_vgpud

# A process is killed. Without NVML nobody can tell whether the GPU has its memory back.
rmdir "$state/odd"
events=$root/died
configure_events "$events"
start_vgpud VGPU_SIM_FAULTS=nvmlInit_v2=999
make_slice y --gpus 0 --memory 2G
member one y 4096
until_sample "vgpu_slice_processes$(of y '' 'state="running"')" 1
kill -9 "$pid"
until_event process_died "e['slice'] == 'y' and e['pid'] == $pid and e['memory_held_bytes'] == 4096 and 'run_member' in e['command']"
sleep 1.5
same 'how often it died' 1 "$(count process_died)"
stop_vgpud
