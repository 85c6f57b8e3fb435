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

# Measured without a limit, which would make kernels seem longer.
calibrated=$("$SHARES" --calibrate | sed -n 's/^iters_per_us=/--iters-per-us=/p')
[ -n "$calibrated" ] || fail 'shares measures nothing'

# begin NAME ARGUMENT...: a slice that always wants the GPU, and prints its share each second.
begin() {
    name=$1
    shift
    start "$name" --name "$name" --memory 2G "$@" "$SHARES" "$calibrated" --kernel=1000 --seconds=600 --live
}

# last NAME: its share of the last second in percent.
last() {
    sed -n 's/^second=[0-9]* share=0*\([0-9]*\)\.\([0-9][0-9]\).*/\1\2/p' "$root/$1.out" | tail -n 1 | sed 's/^0*\(.\)/\1/'
}

# seconds NAME: how many it has printed.
seconds() {
    grep -c '^second=' "$root/$1.out"
}

# until_second WHAT LEAST MOST SLICE [OTHER]: until one comes in which SLICE has so many percent of the
# GPU's time, or of what it and OTHER have together.
until_second() {
    what=$1 least=$2 most=$3 looks=0
    shift 3
    while [ "$looks" -lt 60 ]; do
        looks=$((looks + 1))
        before=$(seconds "$1") tries=0
        while [ "$(seconds "$1")" -le $((before + 1)) ]; do # one that began after this
            tries=$((tries + 1))
            [ "$tries" -lt 600 ] || fail "$1 prints no more seconds"
            sleep 0.05
        done
        part=$(part_of "$@")
        echo "$what: $part % (from $least to $most)"
        [ "$part" -lt "$least" ] || [ "$part" -gt "$most" ] || return 0
    done
    fail "$what: no second is so, the last ones have $(tail -n 3 "$root"/*.out)"
}
part_of() {
    share=$(last "$1") of=100
    [ $# -eq 1 ] || { other=$(last "$2"); of=$((${share:-0} + ${other:-0})); }
    echo $((100 * ${share:-0} / (of > 0 ? of : 1)))
}

begin ours --cores 30-100
wait_for "$root/ours.out"
until_second 'alone' 45 100 ours
begin theirs
theirs=$pid
until_second 'next to a slice without a quota' 20 42 ours theirs
kill -TERM "$theirs"
wait_gone "$theirs"
until_second 'alone again' 45 100 ours
begin theirs --cores 40
theirs=$pid
until_second 'next to a slice that may take 40' 52 75 ours theirs
"$VGPU" set --cores 30 ours >"$out" 2>"$err" || fail 'no other share'
until_second 'with one figure' 10 33 ours
