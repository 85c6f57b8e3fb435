#!/bin/sh
# `vgpu doctor COMMAND`: scripts, what is no program, and files that are damaged.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/doctor_lib.sh"
cd "$root" || exit 1

echo 'int main(void) { return 0; }' | program plain || fail "no compiler: $(cat cc.err)"
echo 'int main(void) { return 0; }' | program musl -Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1

# Scripts.
script() {
    printf '%b' "$2" >"$1"
    chmod +x "$1"
}
script one '#!/bin/sh\necho'
held ./one
says ok command './one is a script, which /bin/sh runs'
script two "#! $root/one -x\n"
held ./two
says ok command './two is a script, which /bin/sh runs'
script env "#!/usr/bin/env -S A=b plain -c\n"
PATH=$root:$PATH held ./env
says ok command "./env is a script, which $root/plain runs"
script env_again "#!/usr/bin/env -S env -u HOME env plain\n"
PATH=$root:$PATH held ./env_again
says ok command "./env_again is a script, which $root/plain runs"
script cleared "#!/usr/bin/env -S -i $root/plain\n"
not_held 'env takes it out of the slice by "-i"' ./cleared
held env -u HOME FOO=1 ./plain
says ok command '/env starts ./plain'
script bare 'echo\n'
held ./bare
says ok command './bare is a script, which /bin/sh runs'
script of_musl "#!$root/musl\n"
not_held 'it is for musl' ./of_musl
script round "#!$root/round\n"
unusable "./round is no program: it is a script, and scripts interpret each other" ./round
script lost '#!/no/such/interpreter\n'
unusable '/no/such/interpreter, the interpreter of the script ./lost, is not found' ./lost
script nothing '#!\n'
held ./nothing
says ok command './nothing is a script, which /bin/sh runs'
script returns '#!/bin/sh\r\necho\n'
unusable 'the first line of the script ./returns ends with a carriage return' ./returns
script control "#!/bin/\033sh\n"
unusable 'the interpreter of the script ./control, is not found' ./control

# No programs.
unusable 'nosuchcommand: not found' nosuchcommand
unusable ': not found' ''
unusable './none: not found' ./none
unusable '/ is a directory, not a program' /
cp plain closed
chmod 644 closed
unusable './closed cannot be run: Permission denied' ./closed
mkfifo fifo
chmod +x fifo
unusable './fifo is a special file, not a program' ./fifo
mkdir directory
unusable 'directory' ./directory
script "$(printf 'a\033b')" '\177ELF'
doctor "./$(printf 'a\033b')"
grep -q "$(printf '\033')" "$out" && fail 'a name is not printed safely'

# Cut off anywhere, or noise: said, and survived.
size=$(wc -c <plain)
for at in 1 16 20 63 64 100 500 800 1000 2000 "$((size / 2))" "$((size - 1))"; do
    head -c "$at" plain >short
    chmod +x short
    doctor ./short
    grep -q '^[^ ]*  *command ' "$out" || fail "cut at $at: $(cat "$out")"
done
for at in 100 5000; do
    {
        head -c 20 plain
        head -c "$at" /dev/urandom
    } >noise
    chmod +x noise
    doctor ./noise
    grep -q '^[^ ]*  *command ' "$out" || fail "noise: $(cat "$out")"
done
exit 0
