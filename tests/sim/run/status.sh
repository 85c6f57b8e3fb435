#!/bin/sh
# Exit statuses, and that nothing is printed but what the command prints.
. "$(dirname "$0")/lib.sh"

expect 0 --unlimited true
expect 1 --unlimited false
expect 7 --unlimited sh -c 'exit 7'
expect 255 --unlimited sh -c 'exit 255'
expect 137 --unlimited sh -c 'kill -9 $$'
expect 143 --unlimited sh -c 'kill -TERM $$'
expect 129 --unlimited sh -c 'kill -HUP $$'
expect 134 --unlimited sh -c 'ulimit -c 0; kill -ABRT $$'

refuse 127 'no-such-command: not found' --unlimited no-such-command
refuse 2 'no command to run' --unlimited ''
refuse 127 "$root/nothing: not found" --unlimited "$root/nothing"
refuse 126 "$root is a directory, not a program" --unlimited "$root"
echo text >"$root/text"
refuse 126 'cannot be run: Permission denied' --unlimited "$root/text"
# A file that PATH leads to and that is no program is named; a directory that may not be searched has none.
mkdir "$root/bin" && mv "$root/text" "$root/bin/plain"
path=$PATH PATH=$root/bin:$PATH
refuse 126 "$root/bin/plain cannot be run: Permission denied" --unlimited plain
chmod 000 "$root/bin"
[ "$(id -u)" -eq 0 ] || refuse 127 'plain: not found' --unlimited plain
chmod 755 "$root/bin"
PATH=$path
[ -z "$(slices)" ] || fail "a slice is left: $(slices)"

# A script without an interpreter's line is the shell's, as in execvp.
echo 'exit 9' >"$root/script" && chmod +x "$root/script"
expect 9 --unlimited "$root/script"

# The command's own options, and its three files, are its own.
expect 0 --unlimited printf '%s|' --memory -n --
same 'what it prints' '--memory|-n|--|' "$(cat "$out")"
expect 0 --unlimited -- printf '%s|' --help
same 'what it prints' '--help|' "$(cat "$out")"
expect 0 --memory 1G --name x -- sh -c 'echo "$0$*"' -- --name y
same 'what it prints' '----name y' "$(cat "$out")"
same 'its input' "$(echo words | "$VGPU" run --unlimited cat)" words
"$VGPU" run --unlimited sh -c 'echo out; echo err >&2; exit 3' >"$out" 2>"$err"
same 'its status' 3 "$?"
same 'its output' out "$(cat "$out")"
same 'its complaints' err "$(cat "$err")"

# Descriptors: none of ours.
expect 0 --unlimited sh -c 'ls /proc/$$/fd'
same 'its descriptors' "0 1 2 " "$(sh -c 'ls /proc/$$/fd' | grep -v '^[0-2]$' >"$root/more"
    grep -vxFf "$root/more" "$out" | tr '\n' ' ')"
