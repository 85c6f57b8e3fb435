#!/bin/sh
# slices.sh [OPTION...]: `ranks` with these options, each rank in a slice of its own. With one gang
# named in both slices' policies they get about half of bare's steps at 50 %. Without, they get less,
# as one rank spins while the other is held back: that is printed only. The bounds are wide, as a busy
# machine delays hosts.
set -u
: "${VGPU:?}" "${RANKS:?}"
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset CUDA_VISIBLE_DEVICES LD_PRELOAD VGPU_POLICY VGPU_GANGS VGPU_TURNS CUDA_DEVICE_MEMORY_SHARED_CACHE
export VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=8x80G VGPU_STATE="$root/state"

pid0='' pid1=''

# Whether `vgpu ps --json` shows the gang while its ranks run; yes where there is no --json.
shows() {
    "$VGPU" ps --json >/dev/null 2>&1 || { echo yes; return; }
    while [ ! -e "$root/over" ]; do
        "$VGPU" ps --json >"$root/ps" 2>/dev/null
        if grep -q '"joint_processes": *1' "$root/ps" && grep -q '"joint_used_ns": *[1-9]' "$root/ps"; then
            echo yes
            return
        fi
        sleep 0.1
    done
    echo no
}

# rate NAME COMMAND...: of the two ranks of a job, each by `COMMAND... ranks`; %r is the rank.
rate() {
    name=$1
    shift
    for rank in 0 1; do
        # shellcheck disable=SC2046,SC2086
        $(echo "$command" | sed "s/%r/$rank/g") "$RANKS" --job "$root/$name" --rank "$rank" "$@" \
            >"$root/$name.$rank" 2>"$root/$name.$rank.err" &
        eval "pid$rank=$!"
    done
    wait "$pid0" || { cat "$root/$name.0.err" >&2; exit 1; }
    wait "$pid1" || { cat "$root/$name.1.err" >&2; exit 1; }
    [ -s "$root/$name.0.err" ] || [ -s "$root/$name.1.err" ] && {
        cat "$root/$name".*.err >&2
        exit 1
    }
    sed -n 's/.*rate \([0-9.]*\).*/\1/p' "$root/$name.0"
}

for turn in 1 2 3; do
    command='env'
    bare=$(rate "bare$turn" "$@") || exit 1
    command="$VGPU run --name t$turn-%r --cores 50 --gang train-8 --"
    rm -f "$root/over"
    shows >"$root/shown" &
    watcher=$!
    gang=$(rate "gang$turn" "$@") || exit 1
    touch "$root/over"
    wait "$watcher"
    [ "$(cat "$root/shown")" = yes ] || { echo 'FAILED: vgpu ps does not show the gang' >&2; exit 1; }
    [ -s "$root/state/gangs/train-8" ] || { echo 'FAILED: no file for the gang' >&2; exit 1; }
    command="$VGPU run --name n$turn-%r --cores 50 --gang no --"
    apart=$(rate "apart$turn" "$@") || exit 1
    echo "bare $bare steps a second; two slices of 50 %: in one gang $gang, apart $apart"
    awk "BEGIN { part = $gang / $bare; exit !(part > 0.35 && part < 0.6) }" && exit 0
done
echo 'FAILED: not half of bare in three turns' >&2
exit 1
