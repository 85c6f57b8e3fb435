#!/bin/sh
# releases.sh BUILD ROOT: a slice in a container whose image is the root directory of another release, with gcc and musl-gcc in
# it. The programs and the simulated driver are built there, so they need no newer glibc than the root has.
# shellcheck disable=SC2046,SC2086 # flags
# shellcheck source=tests/container/lib.sh
. "$(dirname "$0")/lib.sh"
needs podman
root=$2
source=$(cd "$(dirname "$0")/../.." && pwd)

engine() {
    podman --root "$work/storage" --runroot "$work/runroot" --tmpdir "$work/libpod" --events-backend none \
        --cgroup-manager cgroupfs --runtime runc "$@"
}
flags='--network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --device vgpu.local/slice=alice'

# container WHAT COMMAND...
container() {
    what=$1
    shift
    engine run --rm $flags $(driver_volumes) $driver_flags --rootfs "$root:O" "$@" </dev/null >"$work/out" 2>&1
}

rm -rf "$root/opt/vgpu"
mkdir -p "$root/opt/vgpu"
cp -r "$source/api" "$source/sim" "$build/sim/gen" "$source/demo/hog.c" "$root/opt/vgpu"
# A program that says whether it has the library.
cat >"$root/opt/vgpu/held.c" <<'C'
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
# The options are those of sim/CMakeLists.txt.
# shellcheck disable=SC2016 # the inner shell expands them
chroot "$root" sh -euc '
    cd /opt/vgpu
    cc -o held-static -static held.c
    musl-gcc -o held-musl held.c
    cc -std=gnu11 -o hog -D_GNU_SOURCE -Iapi hog.c -ldl
    # library NAME EXPORTS SOURCE...
    library() {
        name=$1 exports=$2
        shift 2
        cc -std=gnu11 -O1 -fPIC -shared -fvisibility=hidden -pthread -D_GNU_SOURCE -DVGPU_ASSERTIONS=0 -Iapi -Isim -Igen -Igen/new \
            -o "$name" "$@" -Wl,-soname,"$name" -Wl,-Bsymbolic -Wl,-z,defs -Wl,-z,nodelete -Wl,--version-script="$exports" -ldl
    }
    library libnvidia-ml.so.1 gen/nvml.map sim/nvml*.c sim/config.c sim/faults.c sim/pids.c sim/machine*.c
    rm sim/nvml*.c
    library libcuda.so.1 gen/new/exports.map sim/*.c' >"$work/out" 2>&1 || fail 'the programs cannot be built'
driver_libraries="$root/opt/vgpu/libcuda.so.1 $root/opt/vgpu/libnvidia-ml.so.1"
vgpu cdi alice --memory 2G --gpus 0 >"$work/out" 2>&1 || fail 'vgpu cdi'

container 'the release' /usr/bin/ldd --version
sed -n 1p "$work/out"
container 'a program for glibc' /opt/vgpu/hog
sees 2048
container 'an empty environment' /usr/bin/env -i VGPU_SIM_STATE=/gpu/state /opt/vgpu/hog
sees 2048
container 'a static program' /opt/vgpu/held-static
says '^not held'
container 'a program for musl' /opt/vgpu/held-musl
says '^not held'
container 'what a static program starts' /bin/sh -c '/opt/vgpu/held-static; /opt/vgpu/hog'
says '^not held'
sees 2048
LD_LIBRARY_PATH=$build/sim "$build/vgpu" doctor "$root/opt/vgpu/held-static" >"$work/out" 2>&1
what='doctor, of a static program'
says 'FAIL *held.*linked statically'
LD_LIBRARY_PATH=$build/sim "$build/vgpu" doctor "$root/opt/vgpu/held-musl" >"$work/out" 2>&1
what='doctor, of a program for musl'
says 'FAIL *held.*musl'
exit 0
