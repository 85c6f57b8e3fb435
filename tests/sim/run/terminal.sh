#!/bin/sh
# In a terminal: its keys reach the command once, and stopping it stops `vgpu run` as well.
. "$(dirname "$0")/lib.sh"

"$TERMINAL" "$VGPU" run --unlimited --name x "$SIGNALS" "$root/ready" "$root/end" || {
    status=$?
    [ "$status" -eq 77 ] && exit 77
    fail "status $status"
}
same 'what is left' '' "$(slices)"
