#!/bin/sh
# Two slices that hold more than a GPU has, on a simulated driver that moves their memory at each change of turns: with the long
# turns of vgpud they get much more done than with short ones. Where their memory fits, vgpud leaves turns short.
#
# A busy machine delays both, so the best of three is looked at.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/sim/vgpud/turns_lib.sh
. "$(dirname "$0")/turns_lib.sh"
export VGPU_LIBRARY="$LIBRARY"
export VGPU_SIM_GPUS=1x8G VGPU_SIM_COPY_MB_S=1 VGPU_SIM_PAGE_MB_S=20000
program=$(dirname "$0")/pages.py
labels="{device_uuid=\"$uuid0\"}"

# begin NAME GIBIBYTES: a slice that holds so much and always has work of 4 ms for the GPU.
begin() {
    start "$1" --name "$1" --gpus 0 --memory 7G --oversubscribe python3 -B "$program" "$root/$1.done" $(($2 << 30))
    wait_for "$root/$1.done"
    started="$started $(cut -d ' ' -f 1 "$root/$1.done")"
}

# end NAME: its program and the slice.
end() {
    ended=$(cut -d ' ' -f 1 "$root/$1.done")
    kill -9 "$ended"
    wait_gone "$ended"
}

# done_in SECONDS NAME...: how often they have done their work in that time.
done_in() {
    seconds=$1
    shift
    sum=0
    for name in "$@"; do
        sum=$((sum - $(cut -d ' ' -f 2 "$root/$name.done")))
    done
    sleep "$seconds"
    for name in "$@"; do
        sum=$((sum + $(cut -d ' ' -f 2 "$root/$name.done")))
    done
    echo "$sum"
}

# turns_of NAME: how many it has had.
turns_of() {
    sample "vgpu_slice_turns_total$(of "$1" "$uuid0")"
}

# pressed N: with both programs at work on 12 GiB of 8, what they do without vgpud, and with it.
pressed() {
    begin "a$1" 6
    begin "b$1" 6
    sleep 2
    short=$(done_in 8 "a$1" "b$1")
    start_vgpud VGPUD_TEST=1
    tries=0
    until scrape && [ "$(sample "vgpu_gpu_pressure_turn_seconds$labels" | cut -d . -f 1)" -ge 2 ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "turns are $(sample "vgpu_gpu_pressure_turn_seconds$labels") s long"
        sleep 0.2
    done
    sleep 6 # the programs move to vgpud's file
    long=$(done_in 12 "a$1" "b$1")
    end "a$1"
    end "b$1"
    stop_vgpud
}

configure
for attempt in 1 2 3; do
    pressed $attempt
    echo "done in 8 s with short turns: $short; in 12 s with long ones: $long"
    [ $((long * 2)) -lt $((short * 9)) ] || break
done
[ $((long * 2)) -ge $((short * 9)) ] || fail 'long turns are not three times as good as short ones'

start_vgpud VGPUD_TEST=1
begin c 3
begin d 3
sleep 4
scrape
c=$(turns_of c)
d=$(turns_of d)
sleep 6
scrape
same 'the least length' 0 "$(sample "vgpu_gpu_pressure_turn_seconds$labels")"
echo "turns in 6 s where memory fits: $(($(turns_of c) - c)) and $(($(turns_of d) - d))"
[ "$(turns_of c)" -ge $((c + 10)) ] || fail 'the first slice has few turns'
[ "$(turns_of d)" -ge $((d + 10)) ] || fail 'the second slice has few turns'
end c
end d
stop_vgpud
