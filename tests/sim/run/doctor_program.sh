#!/bin/sh
# `vgpu doctor COMMAND`: whether it would be held, and by which doors it comes to CUDA.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/doctor_lib.sh"
sim=$LD_LIBRARY_PATH
cd "$root" || exit 1

# held COMMAND: it would be.
held() {
    doctor -- "$@"
    says ok held "would be held"
}
# not_held WORDS COMMAND...: it would not, for that reason, and its doors are no matter.
not_held() {
    words=$1
    shift
    doctor -- "$@"
    says FAIL held "would not be held: $words"
    silent doors
}
# unusable WORDS COMMAND...
unusable() {
    words=$1
    shift
    doctor -- "$@"
    says FAIL command "$words"
    silent held
    silent doors
}

echo 'int main(void) { return 0; }' | program plain || fail "no compiler: $(cat cc.err)"
held ./plain
says ok command ./plain
says ok doors 'none in the program itself'
PATH=$root:$PATH held plain
says ok command "$root/plain"
held ./plain --json -x

# Doors.
echo 'extern int cuInit(unsigned); int main(void) { return cuInit(0); }' |
    program linked -L"$sim" -l:libcuda.so.1 || fail "not linked: $(cat cc.err)"
held ./linked
says ok doors 'it is linked with libcuda.so.1'
echo '#include <dlfcn.h>
int main(void) { return !dlopen("libcuda.so.1", RTLD_NOW); }' | program loading -ldl || fail "$(cat cc.err)"
held ./loading
says ok doors 'it names libcuda.so, to load it itself, may load libraries (dlopen)'
echo '#define _GNU_SOURCE
#include <dlfcn.h>
int main(void) { return !dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW); }' | program apart -ldl || fail "$(cat cc.err)"
held ./apart
says warn doors 'namespaces of their own (dlmopen)'
echo 'const char error[] = "cudaErrorInsufficientDriver"; int main(void) { return 0; }' | program runtime
held ./runtime
says ok doors "it has CUDA's runtime in it"
cp plain python3.11
held ./python3.11
says ok doors 'it loads what its modules need'

# Other loaders, or none.
echo 'int main(void) { return 0; }' | program musl -Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1
not_held 'it is for musl' ./musl
echo 'int main(void) { return 0; }' | program missing -Wl,--dynamic-linker=/no/ld-linux.so
not_held 'its loader is not here' ./missing
cp plain strange.so
echo 'int main(void) { return 0; }' | program strange "-Wl,--dynamic-linker=$root/strange.so"
doctor ./strange
says warn held "a loader that vgpu does not know: $root/strange.so"
if echo 'int main(void) { return 0; }' | program static -static; then
    not_held 'it is linked statically' ./static
fi
if echo 'int main(void) { return 0; }' | program static_pie -static-pie; then
    not_held 'it is linked statically' ./static_pie
fi

# Other machines.
# shellcheck disable=SC2059 # bytes, as printf has them
header() {
    printf "\\177ELF\\$1\\$2\\1"
    head -c 9 /dev/zero
    printf "$3"
    head -c 44 /dev/zero
}
header 1 1 '\2\0\3\0' >i386
header 2 2 '\0\2\0\25' >ppc64
header 2 1 '\2\0\377\1' >other
chmod +x i386 ppc64 other
not_held 'it is for another machine, 32-bit x86' ./i386
not_held 'it is for another machine, 64-bit PPC64' ./ppc64
not_held 'it is for another machine, 64-bit machine 511' ./other

# Rights of its own.
cp plain owned
chmod u+s owned
doctor ./owned # with which nothing changes for this user
if [ "$(id -u)" -eq 0 ] && ! grep -qs vgpu /etc/ld.so.preload && chown nobody owned 2>/dev/null; then
    says warn held './owned would not be held for other users than this: it has the set-user-id bit'
    says ok doors none
    chmod u+s owned
    doctor ./owned
    says FAIL held './owned would not be held: it has the set-user-id bit, with which the loader drops'
    silent doors
    chmod u-s owned
    chgrp "$(id -g nobody)" owned && chmod g+s owned
    doctor ./owned
    says FAIL held 'it has the set-group-id bit'
    chmod g-s owned
    held ./owned
    if command -v setcap >/dev/null && setcap cap_net_raw+ep owned 2>/dev/null; then
        doctor ./owned
        says warn held 'for other users than this: it has capabilities'
    fi
    if can_be_apart; then
        chown root owned
        chmod u+s owned
        cat >"$root/everywhere" <<'END'
mount -t tmpfs none /etc && echo "$1" >/etc/ld.so.preload && shift && exec "$@"
END
        unshare -m sh "$root/everywhere" "$library" "$VGPU" doctor ./owned >"$out"
        says ok held './owned would be held, by /etc/ld.so.preload, though it has the set-user-id bit'
    fi
fi

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
script bare 'echo\n'
held ./bare
says ok command './bare is a script, which /bin/sh runs'
script of_musl "#!$root/musl\n"
not_held 'it is for musl' ./of_musl
script round "#!$root/round\n"
unusable "$root/round is no program" ./round
script lost '#!/no/such/interpreter\n'
unusable './lost is no program' ./lost
script nothing '#!\n'
unusable './nothing is no program' ./nothing
script control "#!/bin/\033sh\n"
unusable './control is no program' ./control

# No programs.
unusable 'nosuchcommand: not found' nosuchcommand
unusable ': not found' ''
unusable './none: not found' ./none
unusable '/ is not a file' /
cp plain closed
chmod 644 closed
unusable './closed: Permission denied' ./closed
mkfifo fifo
chmod +x fifo
unusable './fifo is not a file' ./fifo
mkdir directory
unusable 'directory' ./directory
script "$(printf 'a\033b')" '\177ELF'
doctor "./$(printf 'a\033b')"
grep -q "$(printf '\033')" "$out" && fail 'a name is not printed safely'

# Cut off anywhere, or noise: said, and survived.
size=$(wc -c <plain)
for at in 1 4 15 16 19 20 63 64 65 100 200 500 600 800 1000 2000 "$((size / 2))" "$((size - 1))"; do
    head -c "$at" plain >short
    chmod +x short
    doctor ./short
    grep -q '^[^ ]*  *command ' "$out" || fail "cut at $at: $(cat "$out")"
done
for at in 10 100 5000; do
    {
        head -c 20 plain
        head -c "$at" /dev/urandom
    } >noise
    chmod +x noise
    doctor ./noise
    grep -q '^[^ ]*  *command ' "$out" || fail "noise: $(cat "$out")"
done
exit 0
