#!/bin/sh
# Programs, and the commands that steer them, do not notice whether vgpud is stopped, killed or gone.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
: "${STEERED:?}" "${LIBRARY:?}" "${NO_LOCKS:?}" # from CMakeLists.txt
export VGPU_LIBRARY="$LIBRARY"

# goes_on WHAT: the program launches, and obeys.
goes_on() {
    before=$(cut -d ' ' -f 2 "$root/seen")
    tries=0
    until [ "$(cut -d ' ' -f 2 "$root/seen")" -gt $((before + 20)) ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 500 ] || fail "$1: it launches no more"
        sleep 0.05
    done
}

# steers MIB WHAT: the slice's limit is changed, other slices are made and removed.
steers() {
    "$VGPU" set x --memory "$1M" >/dev/null || fail "$2: set"
    tries=0
    until [ "$(cut -d ' ' -f 1 "$root/seen")" = "$1" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 500 ] || fail "$2: the program sees $(cat "$root/seen")"
        sleep 0.05
    done
    timeout 60 "$VGPU" run --name other --gpus 1 --memory 1G true || fail "$2: run"
    mkdir -p "$state/leftover"
    : >"$state/leftover/lock"
    timeout 60 "$VGPU" run --name leftover --gpus 1 --memory 1G true || fail "$2: a leftover"
    goes_on "$2"
}

start x --name x --gpus 0 --memory 2G "$STEERED" "$root/seen"
wait_for "$root/seen"
goes_on 'without vgpud'

configure 'hami = true'
start_vgpud VGPUD_TEST=1
until_sample "vgpu_slice_processes$(of x '' 'state="running"')" 1
steers 3072 'with vgpud'

# Stopped at any moment.
for round in 1 2 3 4 5 6 7 8 9 10; do
    kill -STOP "$vgpud"
    steers $((3072 + round)) "stopped, round $round"
    kill -CONT "$vgpud"
    sleep "0.0$round"
done
scrape
kill -9 "$vgpud"
wait "$vgpud"
steers 2048 'killed'
start_vgpud VGPUD_TEST=1
until_sample "vgpu_slice_memory_limit_bytes$(of x "$uuid0")" 2147483648
steers 1024 'started again'
stop_vgpud
goes_on 'ended'

# It locks nothing, not even what nobody holds: who is stopped with a lock holds up others.
mkdir "$state/idle"
: >"$state/idle/lock"
start_vgpud LD_PRELOAD="$NO_LOCKS"
until_sample 'vgpu_slices{state="leftover"}' 1
stop_vgpud
