#!/bin/sh
# Exit statuses, and that nothing is printed but what the command prints.
. "$(dirname "$0")/lib.sh"

expect 0 true
expect 1 false
expect 7 sh -c 'exit 7'
expect 255 sh -c 'exit 255'
expect 137 sh -c 'kill -9 $$'
expect 143 sh -c 'kill -TERM $$'
expect 129 sh -c 'kill -HUP $$'
expect 134 sh -c 'ulimit -c 0; kill -ABRT $$'

refuse 127 'no-such-command: not found' no-such-command
refuse 127 "$root/nothing: not found" "$root/nothing"
refuse 126 "$root cannot be run: Permission denied" "$root"
echo text >"$root/text"
refuse 126 'cannot be run: Permission denied' "$root/text"
[ -z "$(slices)" ] || fail "a slice is left: $(slices)"

# A script without an interpreter's line is the shell's, as in execvp.
echo 'exit 9' >"$root/script" && chmod +x "$root/script"
expect 9 "$root/script"

# The command's own options, and its three files, are its own.
expect 0 printf '%s|' --memory -n --
same 'what it prints' '--memory|-n|--|' "$(cat "$out")"
expect 0 -- printf '%s|' --help
same 'what it prints' '--help|' "$(cat "$out")"
expect 0 --memory 1G --name x -- sh -c 'echo "$0$*"' -- --name y
same 'what it prints' '----name y' "$(cat "$out")"
same 'its input' "$(echo words | "$VGPU" run cat)" words
"$VGPU" run sh -c 'echo out; echo err >&2; exit 3' >"$out" 2>"$err"
same 'its status' 3 "$?"
same 'its output' out "$(cat "$out")"
same 'its complaints' err "$(cat "$err")"

# Descriptors: none of ours.
expect 0 sh -c 'ls /proc/$$/fd'
same 'its descriptors' "0 1 2 " "$(sh -c 'ls /proc/$$/fd' | grep -v '^[0-2]$' >"$root/more"
    grep -vxFf "$root/more" "$out" | tr '\n' ' ')"
