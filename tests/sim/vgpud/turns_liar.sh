#!/bin/sh
# A slice whose program writes false words into the file of turns, and noise into its entry and its region: vgpud and another
# slice go on, vgpud says who it is, and the slice loses its turns.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/sim/vgpud/turns_lib.sh
. "$(dirname "$0")/turns_lib.sh"
: "${SHARES:?}" # from CMakeLists.txt
export VGPU_LIBRARY="$LIBRARY"

configure
printf 'events = {\n    file = "%s"\n    journal = false\n}\n' "$events" >>"$config"
start_vgpud VGPUD_TEST=1
start liar --name liar --gpus 0 --memory 1G --cores 20-100 "$SHARES" --seconds=598 --kernel=2000
start honest --name honest --gpus 0 --memory 1G --cores 60-100 "$STEERED" "$root/honest.seen"
honest_run=$pid
liar=$state/liar/region
wait_for "$liar"
wait_for "$root/honest.seen"
asks until_known "$liar" "$uuid0"
until_file honest '^/memfd:vgpu-turns-'
until_file --seconds=598 "^$(file_of honest)$"
before=$(file_of honest)

asks lies "$liar" "$uuid0" 20 60 "$root/honest.seen"
until_event turns_overwritten 'e["slice"] == "liar" and e["device_uuid"]'
until_event turns_refused 'e["slice"] == "liar" and e["looks"] >= 10'
same 'who was refused' 1 "$(count turns_refused)"
same 'who has written' 0 "$(grep '"event":"turns_' "$events" | grep -vc '"slice":"liar"')"
tries=0
while [ "$(file_of honest)" = "$before" ] || [ -z "$(file_of honest)" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || fail 'the honest slice stays with the file of the liar'
    sleep 0.2
done
asks refused "$liar" "$uuid0"

program=$(cat "/proc/$honest_run/task/$honest_run/children")
asks slot_noise "$liar" "$uuid0" "${program% }" "$root/honest.seen"
kill -0 "$honest_run" || fail "the honest program has ended: $(cat "$root/honest.err")"
scrape
[ "$(sample "vgpu_gpu_turns_corrections_total{device_uuid=\"$uuid0\"}")" -ge 1 ] || fail 'corrections are not counted'
same 'the honest processes' 1 "$(sample "vgpu_slice_processes$(of honest '' 'state="running"')")"
stop_vgpud
