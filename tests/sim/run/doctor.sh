#!/bin/sh
# `vgpu doctor`: the driver, how GPUs are set, MPS, and the program's command line.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/doctor_lib.sh"
sim=$LD_LIBRARY_PATH

doctor
for check in kernel libc devices driver functions compute-mode mig persistence host-memory mps library preload policy region \
    state namespaces nvml-pids system-calls; do
    grep -q "^[^ ]*  *$check " "$out" || fail "says nothing of $check: $(cat "$out")"
done
says ok kernel Linux
says ok driver 'driver 580.0.sim, CUDA 13.0, 2 GPUs'
says ok functions 'vgpu knows each function'
says ok compute-mode 'any number'
says ok mig 'no GPU'
says ok persistence 'stay started'
says ok nvml-pids 'lists no process'
says ok system-calls 'all that are needed work'
silent held
grep -q "$(printf '\033')" "$out" && fail 'colours in a file'

# with NAME=VALUE...: so is the machine then.
with() {
    (
        # shellcheck disable=SC2163 # they are assignments
        export "$@"
        doctor
    ) || exit 1
}
with VGPU_SIM_DRIVER_VERSION=10020
says warn driver 'CUDA 10.2, older than any'
with VGPU_SIM_DRIVER_VERSION=14010
says note driver 'CUDA 14.1, newer than the CUDA 13.0'
says ok functions 'vgpu knows each function'
with LD_LIBRARY_PATH="$sim/newer:$sim"
says warn functions \
    'exports 2 functions that may allocate and that this library does not know: cuArrayCreateOfTomorrow, cuMemAllocOfTomorrow. Update vgpu'
with LD_LIBRARY_PATH="$sim/old:$sim"
says ok functions 'vgpu knows each function'
with VGPU_SIM_FAULTS=nvmlInit_v2=18
says FAIL driver 'NVML is of another version'
silent mig
with VGPU_SIM_FAULTS=nvmlInit_v2=9
says FAIL driver 'NVML does not start (error 9)'
with VGPU_SIM_FAULTS=nvmlDeviceGetComputeMode=3,nvmlDeviceGetPersistenceMode=3,nvmlDeviceGetMigMode=3
says ok driver '2 GPUs'
with VGPU_SIM_NVML_COMPUTE_MODE=3
says warn compute-mode 'GPU 0 is one process'
says warn compute-mode 'GPU 1 is one process'
with VGPU_SIM_NVML_COMPUTE_MODE=2
says FAIL compute-mode 'GPU 1 lets no process compute'
with VGPU_SIM_NVML_MANY=2
says warn nvml-pids 'pids that are none here, as 10000000'
with VGPU_SIM_NVML_PERSISTENCE=0
says note persistence 'off on GPU 0 and others'
with VGPU_SIM_NVML_MIG=1
says note mig \
    'GPU 1 is in MIG mode, with MIG-51300000-0000-4000-8000-000000000011, MIG-51300000-0000-4000-8000-000000000012'
with VGPU_SIM_NVML_MIG=1 VGPU_SIM_FAULTS=nvmlDeviceGetMigDeviceHandleByIndex=6
says warn mig 'GPU 1 is in MIG mode, and has no instance'

# MPS: a daemon is known by its name, and by its pipes.
cp "$(command -v sleep)" "$root/nvidia-cuda-mps-control"
"$root/nvidia-cuda-mps-control" 1000 &
started="$started $!"
until grep -q '^nvidia-cuda-mps$' "/proc/$!/comm"; do sleep 0.05; done
mkdir "$root/pipes"
with CUDA_MPS_PIPE_DIRECTORY="$root/pipes"
says note mps "its pipes are not in $root/pipes"
mkfifo "$root/pipes/control"
with CUDA_MPS_PIPE_DIRECTORY="$root/pipes"
says warn mps "MPS is in use here, by the pipes in $root/pipes."

# Without the driver, or a part of it; a machine may have the real one besides.
mkdir "$root/half"
if ! ldconfig -p 2>/dev/null | grep -q 'libnvidia-ml\.so\.1\|libcuda\.so\.1'; then
    with LD_LIBRARY_PATH=/nonexistent
    says FAIL driver 'NVML is not found: libnvidia-ml.so.1'
    silent mig
    ln -s "$(realpath "$sim/libnvidia-ml.so.1")" "$root/half/libnvidia-ml.so.1"
    with LD_LIBRARY_PATH="$root/half"
    says FAIL driver "CUDA's driver is not found: libcuda.so.1"
    silent functions
fi

# Command lines.
refuse_line 2 '--nonsense is no option of vgpu doctor' --nonsense
refuse_line 2 '--json takes no value' --json=yes
doctor -- true
says ok held 'would be limited'
doctor true --nonsense
says ok held 'would be limited'
"$VGPU" doctor --help >"$out" || fail 'no help'
grep -q '^Usage: vgpu doctor ' "$out" || fail 'doctor --help has no usage'
if [ -w /dev/full ]; then
    "$VGPU" doctor >/dev/full 2>"$err"
    same 'the status on a full disk' 125 "$?"
fi

# Colours on a terminal, but where they are not wanted.
command -v script >/dev/null || exit 0
colours() {
    TERM=xterm script -qec "$*" /dev/null </dev/null >"$out" 2>&1
    grep -q "$(printf '\033\\[32mok')" "$out"
}
colours "$VGPU doctor" || fail 'no colours on a terminal'
colours "NO_COLOR=1 $VGPU doctor" && fail 'colours in spite of NO_COLOR'
exit 0
