#!/bin/sh
# What the tests of `vgpu run` share, to be sourced: a machine with two simulated GPUs, directories
# of the test's own, and checks that say what they found.
# shellcheck disable=SC2034 # the tests use what is set here
set -u

# Debian's python3 comes first: ./dev installs modules for it, and another one in PATH may be a wrapper that takes half a second.
PATH=/usr/bin:$PATH
export PATH

uuid0=GPU-51300000-0000-4000-8000-000000000000
uuid1=GPU-51300000-0000-4000-8000-000000000001

root=$(mktemp -d) || exit 1
state=$root/state
out=$root/out
err=$root/err
: "${VGPU:?}" "${NOTHING:?}" "${MEMBER:?}" "${SIGNALS:?}" "${IGNORING:?}" "${TERMINAL:?}" # from CMakeLists.txt
export VGPU_STATE="$state" VGPU_CONTAINERS="$root/containers" VGPU_KUBERNETES="$root/kubernetes" VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=2x80G VGPU_LIBRARY="$NOTHING"
export VGPU_SOCKET="$root/vgpud.sock" # where there is no vgpud, but in the tests that start one
unset LD_PRELOAD VGPU_POLICY VGPU_TURNS CUDA_VISIBLE_DEVICES CUDA_DEVICE_MEMORY_SHARED_CACHE

# What a slice's file of its policy has besides, where root made the slice.
root_group=
[ "$(id -u)" -ne 0 ] || root_group='
group = 0'

started= # processes to be killed at the end
finish() {
    for pid in $started; do
        kill -9 "$pid" 2>/dev/null
    done
    rm -rf "$root"
}
trap finish EXIT

fail() {
    echo "FAILED: $*" >&2
    [ ! -s "$err" ] || sed 's/^/    stderr: /' "$err" >&2
    exit 1
}

# vgpu_run ARGUMENT...: its status in $status, what it printed in the files $out and $err.
vgpu_run() {
    "$VGPU" run "$@" >"$out" 2>"$err"
    status=$?
}

# expect STATUS ARGUMENT...: vgpu run ends with STATUS and prints nothing on stderr.
expect() {
    expected=$1
    shift
    vgpu_run "$@"
    [ "$status" -eq "$expected" ] || fail "run $*: status $status instead of $expected"
    [ ! -s "$err" ] || fail "run $*: not silent"
}

# refuse STATUS WORDS ARGUMENT...: it ends with STATUS and one line on stderr that has WORDS.
refuse() {
    expected=$1 words=$2
    shift 2
    vgpu_run "$@"
    [ "$status" -eq "$expected" ] || fail "run $*: status $status instead of $expected"
    [ ! -s "$out" ] || fail "run $*: prints on stdout"
    [ "$(wc -l <"$err")" -eq 1 ] || fail "run $*: not one line"
    grep -q '^vgpu: ' "$err" || fail "run $*: the line does not start with vgpu:"
    grep -qF -- "$words" "$err" || fail "run $*: does not say \"$words\""
}

# same WHAT EXPECTED FOUND
same() {
    [ "$2" = "$3" ] || fail "$1 is \"$3\" instead of \"$2\""
}

# wait_for FILE: until it is there.
wait_for() {
    tries=0
    until [ -e "$1" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 5000 ] || fail "$1 does not come"
        sleep 0.05
    done
}

# wait_gone PID: until no such process runs (ours or not; a zombie counts as gone).
wait_gone() {
    tries=0
    while grep -qs '^State:.[^Z]' "/proc/$1/status"; do
        tries=$((tries + 1))
        [ "$tries" -lt 5000 ] || fail "process $1 does not end"
        sleep 0.05
    done
}

# wait_for_none: until the last slice has been removed.
wait_for_none() {
    tries=0
    until [ -z "$(slices)" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 5000 ] || fail "there is still $(slices)"
        sleep 0.05
    done
}

# start NAME ARGUMENT...: vgpu run in the background, its pid in $pid. NAME is for its output.
start() {
    label=$1
    shift
    "$VGPU" run "$@" >"$root/$label.out" 2>"$root/$label.err" &
    pid=$!
    started="$started $pid"
}

# slices: what there is in the state directory.
slices() {
    # Directories for gangs and turns may stay.
    find "$state" -mindepth 1 -maxdepth 1 ! -name gangs ! -name turns ! -name '.*' -printf '%f\n' | sort | tr '\n' ' ' | sed 's/ $//'
}
