#!/bin/sh
# vgpu pause and resume: the state of a slice, whoever is in it, and when.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/steer_lib.sh"
: "${STEERED:?}" "${LIBRARY:?}" # from CMakeLists.txt
export VGPU_LIBRARY="$LIBRARY"

# launcher NAME: a program of the slice live that launches, its file $root/NAME; its vgpu run's pid in $pid.
launcher() {
    start "$1" --name live "$STEERED" "$root/$1"
}

# is_held NAME: it has a slot, and launches nothing.
is_held() {
    until_it 'the program is not paused' in_state paused
    sleep 0.3
    [ ! -e "$root/$1" ] || fail "$1 launches in a paused slice"
}

# in_state STATE: some process of the slice is.
in_state() {
    "$VGPU" inspect "$state/live/region" | grep -q " $1\$"
}

# ends NAME: the launcher is killed, and gone.
ends() {
    child=$(cat "/proc/$pid/task/$pid/children")
    # shellcheck disable=SC2086 # one word
    kill -9 $child
    wait_gone "$pid"
}

# Nobody uses the GPU yet.
make_slice live --gpus 0 --memory 2G
vgpu 0 pause live
prints 'live: paused; no process uses the GPU'
vgpu 0 pause live
prints 'live: is paused already'
launcher one
is_held one
vgpu 0 pause live
prints 'live: is paused already'

# All of its processes die: it is paused still.
ends one
launcher two
is_held two
vgpu 0 resume live
prints 'live: 1 process resumed'
wait_for "$root/two"
vgpu 0 resume live
prints 'live: is not paused'
ends two

# Its region was lost: the pause makes a new one.
rm "$region"
vgpu 0 pause live
prints 'live: paused; no process uses the GPU'
launcher three
is_held three
vgpu 0 resume live
wait_for "$root/three"
ends three

# Paused while programs start: none of them launches.
for round in 1 2 3 4 5 6; do
    launcher "r$round" && a=$pid
    launcher "s$round" && b=$pid
    sleep "0.0$round"
    "$VGPU" pause live >/dev/null || fail 'pause fails'
    "$VGPU" resume live >/dev/null || fail 'resume fails'
    "$VGPU" pause live >/dev/null || fail 'pause fails'
    sleep 0.3 # the launches that were on their way
    before=$(cat "$root/r$round" "$root/s$round" 2>/dev/null)
    sleep 0.3
    same 'what paused programs launch' "$before" "$(cat "$root/r$round" "$root/s$round" 2>/dev/null)"
    vgpu 0 resume live
    wait_for "$root/r$round"
    wait_for "$root/s$round"
    for pid in $a $b; do
        ends
    done
done
