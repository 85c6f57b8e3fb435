#!/bin/sh
# vgpud keeps the weights in its files of turns as the policies have them, whoever writes them. A slice whose weight is written
# again and again gets no turns, and the others have another file.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/sim/vgpud/turns_lib.sh
. "$(dirname "$0")/turns_lib.sh"
: "${SHARES:?}" # from CMakeLists.txt
export VGPU_LIBRARY="$LIBRARY"
corrections="vgpu_gpu_turns_corrections_total{device_uuid=\"$uuid0\"}"

configure
printf 'events = {\n    file = "%s"\n    journal = false\n}\n' "$events" >>"$config"
start liar --name liar --gpus 0 --memory 1G --cores 20-100 "$SHARES" --seconds=598 --kernel=2000
start honest --name honest --gpus 0 --memory 1G --cores 60-100 "$SHARES" --seconds=599 --kernel=2000
liar=$state/liar/region
honest=$state/honest/region
wait_for "$liar"
wait_for "$honest"
until [ "$(od -An -td4 -j $((at_slots + at_status)) -N4 "$liar")" -eq 1 ]; do
    sleep 0.05
done
put "$liar" $((at_slots + at_status)) '\0' # it seems to have no process, and its weight is checked all the same
start_vgpud VGPUD_TEST=1
asks until_known "$honest" "$uuid0"

# turn_time NAME: of its turns, in ms.
turn_time() {
    sample "vgpu_slice_turn_seconds_total$(of "$1" "$uuid0")" | awk '{ printf "%d", $1 * 1000 }'
}

# part: how long the liar's turns of some two seconds are, in percent of the other's.
part() {
    scrape
    liar_before=$(turn_time liar)
    honest_before=$(turn_time honest)
    sleep 2
    scrape
    honest_has=$(($(turn_time honest) - honest_before))
    if [ "$honest_has" -gt 200 ]; then
        echo $((($(turn_time liar) - liar_before) * 100 / honest_has))
    else
        echo 1000
    fi
}

# until_part: until the liar has less than two thirds of the other's, as 20 is to 60; by 100 to 60 it would have more than that.
until_part() {
    tries=0
    until [ "$(part)" -lt 67 ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 20 ] || fail "the liar has too much: $(cat "$log")"
    done
}

until_part
asks overwrite "$liar" "$uuid0" 20 100
until_part
asks overwrite "$liar" "$uuid0" 60 1 # of the other slice
until_part
scrape
[ "$(sample "$corrections")" -ge 4 ] || fail 'corrections are not counted'
asks doubled "$liar" "$uuid0" 20
asks nobody "$liar" "$uuid0"

# not_read SLICE WEIGHT UNCHECKED: the slice's region cannot be read. An entry that may be its own gets that weight, and so
# many entries are not checked; an entry that cannot be its own is checked all the same.
unchecked="vgpu_gpu_turns_unchecked_weights{device_uuid=\"$uuid0\"}"
not_read() {
    echo nonsense | dd of="$state/$1/region" conv=notrunc 2>/dev/null
    until_sample 'vgpu_slices{state="unreadable"}' 1
    python3 "$turns" not_read "$VGPU_SOCKET" "$liar" "$uuid0" "$state/$1/region" "$2" >"$root/right" 2>"$err" &
    entries=$!
    started="$started $entries"
    tries=0
    until [ -s "$root/right" ]; do
        kill -0 "$entries" || fail "the weights next to $1: $(cat "$log")"
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "no entries next to $1"
        sleep 0.1
    done
    until_sample "$unchecked" "$3"
    kill "$entries"
    wait "$entries"
    until_sample "$unchecked" 0
    rm -r "${state:?}/$1"
}
make_slice without --gpus 0 --memory 1G
make_slice elsewhere --gpus 1 --memory 1G
make_slice quota --gpus 0 --memory 1G --cores 30
not_read without 100 1
not_read elsewhere 1 0
not_read quota 30 0
same 'how often the region was named' 1 "$(grep -c "not checked: .*slice without, whose region $state/without/region" "$log")"
same 'how often weights were not checked' 1 "$(grep -c 'not checked' "$log")"
[ ! -e "$events" ] || same 'events of single writes' 0 "$(count turns_overwritten)"

before=$(file_of --seconds=598)
asks liar "$liar" "$uuid0" 20
until_event turns_overwritten 'e["slice"] == "liar" and e["device_uuid"]'
until_event turns_refused 'e["slice"] == "liar" and e["looks"] >= 10'
same 'who was refused' 1 "$(count turns_refused)"
tries=0
while [ "$(file_of --seconds=599)" = "$before" ] || [ -z "$(file_of --seconds=599)" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || fail 'the honest slice stays with the file of the liar'
    sleep 0.2
done
same "the liar's file" "$before" "$(file_of --seconds=598)"
asks refused "$liar" "$uuid0"
asks overwrite "$honest" "$uuid0" 60 100
stop_vgpud
