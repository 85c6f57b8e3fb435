#!/bin/sh
# Memory pressure begins when the slices of a GPU hold more than it has, and ends when they hold less than nine tenths. The file of
# turns says how long turns are.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/sim/vgpud/turns_lib.sh
. "$(dirname "$0")/turns_lib.sh"
export VGPU_LIBRARY="$LIBRARY"
program=$(dirname "$0")/pressure.py
labels="{device_uuid=\"$uuid0\"}"

# holds NAME GIBIBYTES: starts a slice that holds so much of the GPU's 80 GiB.
holds() {
    start "$1" --name "$1" --gpus 0 --memory 70G --oversubscribe python3 -B "$program" "$root/$1.held" $(($2 << 30))
    wait_for "$root/$1.held"
    started="$started $(cat "$root/$1.held")"
}

# until_published TEXT: the file next to the socket says it.
until_published() {
    tries=0
    until [ "$(cat "$root/pressure")" = "$1" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 1500 ] || fail "the file next to the socket says \"$(cat "$root/pressure")\" instead of \"$1\""
        sleep 0.05
    done
}

configure
printf 'events = {\n    file = "%s"\n    journal = false\n}\n' "$events" >>"$config"
start_vgpud VGPUD_TEST=1
wait_for "$root/pressure"
rm "$root/pressure"
mkdir "$root/pressure" # the file cannot take its place
holds one 60
holds two 14
until_sample "vgpu_gpu_pressure_turn_seconds$labels" 0
holds three 60
until_sample "vgpu_gpu_pressure_turn_seconds$labels" 4
asks least_length "$state/one/region" "$uuid0" 4000000000
wait_log 'vgpu ps does not see the length of turns: .*/pressure cannot be written: Is a directory'
rmdir "$root/pressure"
wait_for "$root/pressure"
same 'how often it was said' 1 "$(grep -c 'vgpu ps does not see' "$log")"
ps 0
grep -q '^GPU 0: slices at work hold 13[0-9.]* GiB, and it has 80 GiB; turns last for 4.0 s at least, as each moves memory$' "$out" ||
    fail "ps does not say so: $(cat "$out")"
until_event memory_pressure 'e["held_bytes"] > e["size_bytes"] and e["turn_ms"] == 4000'
cp "$config" "$root/former.conf"
sed -i "s|$VGPU_SOCKET|$root/moved/vgpud.sock|" "$config"
kill -HUP "$vgpud"
wait_for "$root/moved/pressure"
same 'the file next to the other socket' "$uuid0 4000000000" "$(cat "$root/moved/pressure")"
until_published ''
cp "$root/former.conf" "$config"
kill -HUP "$vgpud"
kill -9 "$(cat "$root/three.held")" # the others hold 94 %
until_sample "vgpu_gpu_pressure_turn_seconds$labels" 0.1
kill -9 "$(cat "$root/two.held")"
until_sample "vgpu_gpu_pressure_turn_seconds$labels" 0
asks least_length "$state/one/region" "$uuid0" 0
ps 0
no_line '^GPU 0: slices at work'
until_event memory_pressure_over 'e["held_bytes"] < e["size_bytes"]'
stop_vgpud

# between_events ONE OTHER SECONDS: at least so many lie between the first events of these names.
between_events() {
    python3 - "$events" "$@" <<'PYTHON' || fail "less than $3 s lie between $1 and $2: $(cat "$events")"
import datetime, json, sys
began = {}
for line in open(sys.argv[1]):
    e = json.loads(line)
    began.setdefault(e["event"], datetime.datetime.strptime(e["time"], "%Y-%m-%dT%H:%M:%S.%fZ"))
sys.exit((began[sys.argv[3]] - began[sys.argv[2]]).total_seconds() < float(sys.argv[4]))
PYTHON
}

# NVML is lost while turns are long: they stay so for ten looks, one a second, by the memory that the GPU had, and are short then.
# They are long again when NVML is back.
holds four 60
faults=$(seq -s , -f 'nvmlDeviceGetCount_v2@%g=999' 3 22)
rm "$events"
start_vgpud VGPUD_TEST=1 VGPU_SIM_FAULTS="$faults"
asks least_length "$state/one/region" "$uuid0" 4000000000
wait_log 'NVML reports no GPU any more'
asks least_length "$state/one/region" "$uuid0" 0
until_event memory_pressure_over 'e["held_bytes"] > e["size_bytes"] and e["turn_ms"] == 0'
between_events memory_pressure memory_pressure_over 9
until_published ''
asks least_length "$state/one/region" "$uuid0" 4000000000
same 'how often it was over' 1 "$(count memory_pressure_over)"
stop_vgpud
