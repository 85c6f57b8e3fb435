#!/bin/sh
# Memory pressure begins when the slices of a GPU hold more than it has, and ends when one of them ends.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
export VGPU_LIBRARY="$LIBRARY"
program=$(dirname "$0")/pressure.py
labels="{device_uuid=\"$uuid0\"}"

# holds NAME: starts a slice that holds three quarters of the GPU.
holds() {
    start "$1" --name "$1" --gpus 0 --memory 70G --oversubscribe python3 "$program" "$root/$1.held" 64424509440
    wait_for "$root/$1.held"
    started="$started $(cat "$root/$1.held")"
}

configure
printf 'events = {\n    file = "%s"\n    journal = false\n}\n' "$events" >>"$config"
start_vgpud VGPUD_TEST=1
holds one
until_sample "vgpu_gpu_pressure_turn_seconds$labels" 0
holds two
until_sample "vgpu_gpu_pressure_turn_seconds$labels" 4
until_event memory_pressure 'e["held_bytes"] > e["size_bytes"] and e["turn_ms"] == 4000'
kill -9 "$(cat "$root/one.held")"
until_sample "vgpu_gpu_pressure_turn_seconds$labels" 0
until_event memory_pressure_over 'e["held_bytes"] < e["size_bytes"]'
stop_vgpud
