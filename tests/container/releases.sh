#!/bin/sh
# releases.sh BUILD ROOT: a slice in a container whose image is the root directory of another release, with gcc and musl-gcc in
# it. The programs are built there: for its glibc, statically, and for musl.
# shellcheck disable=SC2086 # $flags holds several
# shellcheck source=tests/container/lib.sh
. "$(dirname "$0")/lib.sh"
needs podman
root=$2

engine() {
    podman --root "$work/storage" --runroot "$work/runroot" --tmpdir "$work/libpod" --events-backend none \
        --cgroup-manager cgroupfs --runtime runc "$@"
}
flags='--network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --device vgpu.local/slice=alice'

# container WHAT COMMAND...
container() {
    what=$1
    shift
    engine run --rm $flags --rootfs "$root:O" "$@" </dev/null >"$work/out" 2>&1
}

# A program that says whether it has the library, and the slice's error line where CUDA would be refused.
mkdir -p "$root/opt"
cat >"$root/opt/held.c" <<'C'
#include <stdio.h>
#include <string.h>

int main(void)
{
	char line[4096];
	int held = 0;
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof(line), maps))
		held |= strstr(line, "/libvgpu.so") != NULL;
	puts(held ? "held" : "not held");
	return 0;
}
C
chroot "$root" sh -c 'cd /opt && cc -o held held.c && cc -static -o held-static held.c && musl-gcc -o held-musl held.c' \
    >"$work/out" 2>&1 || fail 'the programs cannot be built'
vgpu cdi alice --memory 2G --gpus 0 >"$work/out" 2>&1 || fail 'vgpu cdi'

container 'the release' /usr/bin/ldd --version
sed -n 1p "$work/out"
container 'a program for glibc' /opt/held
says '^held'
container 'a static program' /opt/held-static
says '^not held'
container 'a program for musl' /opt/held-musl
says '^not held'
container 'what a static program starts' /bin/sh -c '/opt/held-static; /opt/held'
says '^held'
LD_LIBRARY_PATH=$build/sim "$build/vgpu" doctor "$root/opt/held-static" >"$work/out" 2>&1
what='doctor, of a static program'
says 'FAIL *held.*linked statically'
LD_LIBRARY_PATH=$build/sim "$build/vgpu" doctor "$root/opt/held-musl" >"$work/out" 2>&1
what='doctor, of a program for musl'
says 'FAIL *held.*musl'
exit 0
