#!/bin/sh
# `vgpu doctor COMMAND`: whether it would be limited, and by which doors it comes to CUDA.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/doctor_lib.sh"
sim=$LD_LIBRARY_PATH
cd "$root" || exit 1

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
! grep -q 'does not know' "$out" || fail "cuInit is new to it"

# A function of a driver newer than the library, which a program is linked with.
# Other libraries' functions may have such names, too.
mkdir other_libs
echo 'int cuFileDriverOpen(void) { return 0; }' | program other_libs/libcufile.so.0 -shared -fPIC || fail "$(cat cc.err)"
echo 'extern int cuMemAllocOfTomorrow(void), cuStreamOfTomorrow(void), cuFileDriverOpen(void);
int main(void) { return cuMemAllocOfTomorrow() + cuStreamOfTomorrow() + cuFileDriverOpen(); }' |
    program of_tomorrow -L"$sim/newer" -l:libcuda.so.1 -Lother_libs -l:libcufile.so.0 || fail "not linked: $(cat cc.err)"
LD_LIBRARY_PATH=$sim/newer:$sim:$root/other_libs
held ./of_tomorrow
cp "$out" of_tomorrow.out
# A program that is not linked with the driver has such a function from elsewhere.
echo 'int cuMemAllocOfTomorrow(void) { return 0; }' | program other_libs/libown.so.0 -shared -fPIC || fail "$(cat cc.err)"
echo 'extern int cuMemAllocOfTomorrow(void); int main(void) { return cuMemAllocOfTomorrow(); }' |
    program not_of_driver -Lother_libs -l:libown.so.0 || fail "not linked: $(cat cc.err)"
held ./not_of_driver
! grep -q 'it is linked with 1 function' "$out" || fail "takes another library's function for the driver's"
cp of_tomorrow.out "$out"
LD_LIBRARY_PATH=$sim
says warn doors \
    'it is linked with 1 function that may allocate and that this library does not know: cuMemAllocOfTomorrow. Update vgpu'
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
says warn held "it has a loader that vgpu does not know: $root/strange.so"
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
    says warn held './owned would not be limited for other users than this: it has the set-user-id bit'
    says ok doors none
    chmod u+s owned
    doctor ./owned
    says FAIL held './owned would not be limited: it has the set-user-id bit, with which the loader drops'
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
        says note held "./owned would be limited by this machine's own limits, by /etc/ld.so.preload"
    fi
fi
exit 0
