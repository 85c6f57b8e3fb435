#!/bin/sh
# Programs take turns by the file that vgpud hands out, move to it, and do not notice a vgpud that is
# stopped, killed or started again.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/sim/vgpud/turns_lib.sh
. "$(dirname "$0")/turns_lib.sh"
export VGPU_LIBRARY="$LIBRARY"

# launches NAME: starts a slice whose program launches, and waits for its first launch.
launches() {
    start "$1" --name "$1" --gpus 0 --memory 1G --cores 40 "$STEERED" "$root/$1.seen"
    wait_for "$root/$1.seen"
}

# goes_on NAME: its program launches.
goes_on() {
    launched=$(cut -d ' ' -f 2 "$root/$1.seen")
    tries=0
    until [ "$(cut -d ' ' -f 2 "$root/$1.seen")" -gt $((launched + 20)) ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 500 ] || fail "$1 launches no more"
        sleep 0.05
    done
}

# Without vgpud, by the directory; when vgpud comes, by its file.
launches first
until_file first "^$state/turns/$uuid0 "
start_vgpud VGPUD_TEST=1
until_file first '^/memfd:vgpu-turns-'
launches second
until_file second "^$(file_of first)$"
before=$(file_of first)

# What they have, and wait for: of both, as they use the GPU at the same time.
for name in first second; do
    tries=0
    scrape
    until [ "$(sample "vgpu_slice_turns_total$(of $name "$uuid0")")" != 0 ] &&
        [ "$(sample "vgpu_slice_turn_wait_seconds_count$(of $name "$uuid0")")" != 0 ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "$name has no turns: $(grep turn "$out")"
        sleep 0.2
        scrape
    done
done

# Stopped: programs go on, and one that starts waits for 0.2 s at most, and has the directory.
kill -STOP "$vgpud"
launches third
until_file third "^$state/turns/$uuid0 "
for name in first second third; do
    goes_on $name
done
kill -CONT "$vgpud"
until_file third "^$before$"

# Killed: the same. The next vgpud has another file.
kill -9 "$vgpud"
wait "$vgpud"
launches fourth
until_file fourth "^$state/turns/$uuid0 "
same 'the file after the death' "$before" "$(file_of first)"
goes_on first
start_vgpud VGPUD_TEST=1
for name in first second third fourth; do
    until_file $name '^/memfd:vgpu-turns-'
    tries=0
    while [ "$(file_of $name)" = "$before" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "$name stays with the file of the former vgpud"
        sleep 0.2
    done
    goes_on $name
done
same 'the file of all' "$(file_of first)" "$(file_of second)"
stop_vgpud
goes_on first
