#!/bin/sh
# Slices that are assured more than 100 % of a GPU in all: a metric and events say so, until they fit again.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
ratio="vgpu_gpu_compute_assured_ratio{device_uuid=\"$uuid0\",index=\"0\"}"

configure
printf 'events = {\n    file = "%s"\n    journal = false\n}\n' "$events" >>"$config"
make_slice one --gpus 0 --cores 70
start_vgpud VGPUD_TEST=1
until_sample "$ratio" 0.7
make_slice two --gpus 0 --cores 60-100
until_sample "$ratio" 1.3
same 'the other GPU' 0 "$(sample "vgpu_gpu_compute_assured_ratio{device_uuid=\"$uuid1\",index=\"1\"}")"
until_event assured_exceeds_gpu 'e["cores_assured_pct"] == 130 and e["slices"] == 2'
"$VGPU" set --cores 40 one >"$out" 2>"$err" || fail 'no other share'
until_sample "$ratio" 1
until_event assured_fits_gpu 'e["cores_assured_pct"] == 100'
kill -9 "$holder" "$sleeper" # a leftover has no share
until_sample "$ratio" 0.4
same 'how often it was said' '1 1' "$(count assured_exceeds_gpu) $(count assured_fits_gpu)"
stop_vgpud
