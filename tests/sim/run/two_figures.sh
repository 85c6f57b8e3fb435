#!/bin/sh
# `vgpu run --cores 30-100`: alone, the slice takes nearly all of the GPU's time; next to a slice that
# always wants the GPU, about what it is assured.
#
# Seconds are looked at until one is as it should be, because a busy machine makes slices slower for a
# while. Without the two figures, no second would be: a limit of 30 % gives no more than 30 alone, and
# the driver divides the time in equal parts.
. "$(dirname "$0")/lib.sh"
: "${SHARES:?}" "${LIBRARY:?}" # from CMakeLists.txt
export VGPU_LIBRARY="$LIBRARY" VGPU_SIM_GPUS=80G

# begin NAME ARGUMENT...: a slice that always wants the GPU, and prints its share each second.
begin() {
    name=$1
    shift
    start "$name" --name "$name" --memory 2G "$@" "$SHARES" --kernel=1000 --seconds=600 --live
}

# last NAME: its share of the last second in percent.
last() {
    sed -n 's/^second=[0-9]* share=0*\([0-9]*\)\.\([0-9][0-9]\).*/\1\2/p' "$root/$1.out" | tail -n 1 | sed 's/^0*\(.\)/\1/'
}

# seconds NAME: how many it has printed.
seconds() {
    grep -c '^second=' "$root/$1.out"
}

# until_second WHAT NAME LEAST MOST [NAME LEAST MOST]: until one comes in which these slices have so much.
until_second() {
    what=$1 first=$2 looks=0
    shift
    while [ "$looks" -lt 60 ]; do
        looks=$((looks + 1))
        before=$(seconds "$first") tries=0
        while [ "$(seconds "$first")" -le $((before + 1)) ]; do # one that began after this
            tries=$((tries + 1))
            [ "$tries" -lt 600 ] || fail "$first prints no more seconds"
            sleep 0.05
        done
        is_so "$@" && return
    done
    fail "$what: no second is so, the last ones have $(tail -n 3 "$root"/*.out)"
}
is_so() {
    while [ $# -gt 0 ]; do
        share=$(last "$1")
        echo "$1: ${share:-no share} of 100, wanted $2 to $3"
        { [ "${share:-0}" -ge "$2" ] && [ "${share:-0}" -le "$3" ]; } || return 1
        shift 3
    done
}

begin ours --cores 30-100
wait_for "$root/ours.out"
until_second 'alone' ours 80 100
begin theirs
theirs=$pid
until_second 'next to a slice without a quota' ours 20 40 theirs 55 80
kill -TERM "$theirs"
wait_gone "$theirs"
until_second 'alone again' ours 80 100
begin theirs --cores 40
theirs=$pid
until_second 'next to a slice that may take 40' ours 50 70 theirs 30 42
"$VGPU" set --cores 30 ours >"$out" 2>"$err" || fail 'no other share'
until_second 'with one figure' ours 20 33
