#!/bin/sh
# vgpu rm --force: ends what lives in a slice, and nothing else.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/steer_lib.sh"
export VGPU_HAMI="$root/hami"

# lives PID: it still runs.
lives() {
    grep -qs '^State:.[^Z]' "/proc/$1/status"
}

# A process in the region, and a vgpu run whose command uses no GPU.
sleep 1000 &
bystander=$!
started="$started $bystander"
make_slice web --gpus 0 --memory 2G
member one web 1048576
make_slice other --gpus 0 --memory 2G
member two other
two=$pid
wrong 125 'the slice web is not removed: a vgpu run has it: end its command first, or use vgpu rm --force' rm web
"$VGPU" rm --force web >"$out" 2>"$err" </dev/null || fail 'rm --force fails'
prints 'web: 2 processes ended; removed'
[ ! -s "$err" ] || fail 'rm --force is not silent'
same 'what is left' other "$(slices)"
lives "$bystander" || fail 'a bystander was ended'
lives "$two" || fail 'a process of another slice was ended'

# A process that ignores SIGTERM is killed; one that does not use the GPU stays.
kill -9 "$holder" "$sleeper"
wait_gone "$holder"
kill -9 "$two"
wait_gone "$two"
start stubborn --name stubborn --unlimited sh -c 'trap "" TERM; "$0" "$1" & echo $! >"$1.pid"; wait' "$MEMBER" "$root/stubborn"
wait_for "$root/stubborn"
stubborn=$(cat "$root/stubborn.pid")
"$VGPU" rm -f stubborn >"$out" 2>"$err" </dev/null || fail 'rm --force fails'
wait_gone "$stubborn"
prints 'stubborn: 2 processes ended; removed'

# A pid that a tenant wrote into a slot: that process is not in the slice, and is left alone.
make_slice forged --gpus 0 --memory 2G
member three forged
put "$region" "$at_slots" "$(for shift in 0 8 16 24; do printf '\\%03o' $((bystander >> shift & 255)); done)"
"$VGPU" inspect "$region" | grep -q " $bystander " || fail 'the test did not write the pid'
wrong 125 'the slice forged is not removed: 1 process of it does not end' rm --force forged
lives "$bystander" || fail 'a forged pid was ended'
lives "$pid" || fail 'the process ended'
kill -9 "$pid"
wait_gone "$pid"

# The question on a terminal.
if command -v script >/dev/null; then
    make_slice asked --gpus 0 --memory 2G
    export VGPU
    echo n | script -qec '"$VGPU" rm --force asked' /dev/null >"$out"
    grep -q 'end 1 process of the slice asked, and remove it? \[y/N\]' "$out" || fail "no question: $(cat "$out")"
    grep -q 'the slice asked is not removed: the answer was no' "$out" || fail "no answer: $(cat "$out")"
    lives "$holder" || fail 'ended after a no'
    echo y | script -qec '"$VGPU" rm --force asked' /dev/null >"$out"
    grep -q 'asked: 1 process ended; removed' "$out" || fail "not removed: $(cat "$out")"
    script -qec '"$VGPU" rm --force nobody' /dev/null </dev/null >"$out"
    ! grep -q 'y/N' "$out" || fail 'a question about nothing'
fi

# From within: the vgpu run ends, and with it the slice.
start self --name self --unlimited sh -c '"$0" rm --force self' "$VGPU"
wait_gone "$pid"
wait_for_none

# All of them, and none.
make_slice last --gpus 0 --unlimited
make_slice least --gpus 0 --unlimited
"$VGPU" rm --all --force >"$out" 2>"$err" </dev/null || fail 'rm --all --force fails'
prints 'last: 1 process ended; removed' 'least: 1 process ended; removed'
vgpu 0 rm --all --force
prints 'no slice is here'
