#!/bin/sh
# `vgpu top` in a terminal that changes its size, is stopped, or taken away.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"

make_slice aa --gpus 0 --memory 2G --cores 50
make_slice zz --gpus 1 --memory 4G
member in_zz zz 3221225472

# Windows of all sizes.
screen see zz size 5x20 see SLICE size 1x1 size 2x3 see vgp size 60x250 see HISTORY \
    size 8x80 see SLICE type j type G size 24x100 frame 'SLICE (by name)' type q ended 0

# Stopped and continued; and ended by each signal, the terminal is as it was.
screen see zz type "$(printf '\032')" stopped see SLICE frame 'SLICE aa' type "$(printf '\032')" stopped see SLICE \
    type q ended 0
for signal in 15 2 1 3; do
    screen see zz signal "$signal" ended $((128 + signal))
done
screen see zz type "$(printf '\003')" ended 130
screen see zz signal 18 see SLICE type q ended 0

# Terminals that cannot be drawn on.
if command -v script >/dev/null; then
    export VGPU
    for type in dumb nonsense; do
        TERM=$type script -qec '"$VGPU" top' /dev/null >"$out" </dev/null
        same "the status on a terminal of type $type" 2 "$?"
        grep -q "type \"$type\" (TERM) cannot be drawn on: use --batch" "$out" ||
            fail "a terminal of type $type: $(cat "$out")"
    done
fi
