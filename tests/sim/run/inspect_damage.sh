#!/bin/sh
# `vgpu inspect` on files that are damaged, or no regions: it says what they are, and changes none.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"

make_slice x --gpus 0 --memory 2G
cp "$region" "$root/whole"
inspect 0 "$root/whole"
says whole

# damage OFFSET BYTES LINE...: a copy with these bytes is wrong in these lines, and stays so.
damage() {
    cp "$root/whole" "$root/copy"
    put "$root/copy" "$1" "$2"
    cksum <"$root/copy" >"$root/before"
    shift 2
    inspect 1 "$root/copy"
    says "$@"
    cksum <"$root/copy" | cmp -s - "$root/before" || fail "looking changed it: $*"
}
damage "$at_used" '\1' 'wrong: device 0: its total is 1, its slots are 0'
damage "$at_lock" '\3' 'wrong: a dead process, of slot 2, holds the lock'
damage "$at_slot_count" '\377\377\377\377' 'wrong: -1 slots: 1024 is the most'
damage "$at_share_count" '\1\2' 'wrong: 513 shares: 480 is the most'
damage "$at_first_uuid" '\33[31m' 'wrong: device 0: its uuid is none'
grep -q '?\[31m1300000' "$out" || fail "the uuid is not printed safely: $(cat "$out")"
cp "$root/whole" "$root/copy"
put "$root/copy" "$at_device_count" '\21'
inspect 1 "$root/copy"
grep -qFx 'wrong: 17 devices: 16 is the most' "$out" || fail "17 devices: $(cat "$out")"
grep -qFx 'wrong: device 15: its uuid is none' "$out" || fail "17 devices: $(cat "$out")"
put "$root/copy" "$at_device_count" '\1'
put "$root/copy" $((at_slots + 3 * 1960 + 8)) '\7' # in a slot that nobody has
inspect 0 "$root/copy"
says whole

# A process that died with memory, and one that died with the lock.
member dead x 4096
kill -9 "$pid"
wait_gone "$pid"
cp "$region" "$root/whole"
damage "$at_lock" '\1' 'wrong: a dead process, of slot 0, holds the lock'
damage $((at_slots + 8 + 32)) '\1' \
    'wrong: slot 0, device 0: its total is 4097, its classes are 4096' \
    'wrong: device 0: its total is 4096, its slots are 4097'

# What is no region, or none that can be read.
head -c 2097152 /dev/urandom >"$root/noise"
refuse_file 125 'it holds something else' "$root/noise"
head -c 100 "$root/whole" >"$root/cut"
refuse_file 125 'another version made it' "$root/cut"
head -c 2097151 "$root/whole" >"$root/cut"
refuse_file 125 'another version made it' "$root/cut"
head -c 2008952 "$root/whole" >"$root/hami"
refuse_file 125 'HAMi-core made it' "$root/hami"
cp "$root/whole" "$root/newer"
put "$root/newer" "$at_version" '\11'
refuse_file 125 'is of version 9 (HAMi 1.2), and this is version 1' "$root/newer"
: >"$root/empty"
refuse_file 125 'it is empty; start a program in the slice first' "$root/empty"
head -c 2097152 /dev/zero >"$root/zeros"
refuse_file 125 'it is empty' "$root/zeros"
refuse_file 125 'it is a directory' "$root"
refuse_file 125 'there is no such file' "$root/nothing"
mkfifo "$root/fifo"
refuse_file 125 'it is not a regular file' "$root/fifo"
ln -s whole "$root/link"
refuse_file 125 'it is a symbolic link' "$root/link"
[ ! -s "$root/empty" ] && [ ! -e "$root/nothing" ] || fail 'a file was made'

# In a file that may only be read, all the same.
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$root"
    chmod 444 "$root/whole"
    as_nobody="setpriv --reuid $(id -u nobody) --clear-groups"
    if $as_nobody test -x "$VGPU"; then
        $as_nobody "$VGPU" inspect "$root/whole" >"$out"
        same 'the status for another user' 0 "$?"
        says whole
        chmod 0 "$root/whole"
        $as_nobody "$VGPU" inspect "$root/whole" >"$out" 2>"$err"
        same 'the status without permission' 125 "$?"
        grep -q 'permission denied' "$err" || fail 'does not say permission denied'
    fi
fi

# Command lines.
refuse_file 2 'no slice to inspect'
refuse_file 2 'no slice to inspect' --json
refuse_file 2 'one slice at a time' "$root/whole" "$root/whole"
refuse_file 2 '--nonsense is no option of vgpu inspect' --nonsense "$root/whole"
refuse_file 2 '-x is no option of vgpu inspect' -x "$root/whole"
refuse_file 2 '--json takes no value' --json=yes "$root/whole"
inspect 0 --help
grep -q '^Usage: vgpu inspect ' "$out" || fail 'inspect --help has no usage'
"$VGPU" help inspect | cmp -s - "$out" || fail '"help inspect" is not "inspect --help"'
if [ -w /dev/full ]; then
    "$VGPU" inspect "$root/whole" >/dev/full 2>"$err"
    same 'the status on a full disk' 125 "$?"
fi
