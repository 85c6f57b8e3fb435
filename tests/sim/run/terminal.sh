#!/bin/sh
# In a terminal: its keys reach the command once, and stopping it stops `vgpu run` as well.
. "$(dirname "$0")/lib.sh"

"$TERMINAL" "$VGPU" run --name x "$SIGNALS" "$root/ready" "$root/end" || fail "status $?"
same 'what is left' '' "$(slices)"
