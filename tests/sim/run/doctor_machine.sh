#!/bin/sh
# `vgpu doctor` on machines that are made of namespaces: device nodes, versions of the driver, /proc.
# shellcheck disable=SC2119 # doctor may have no arguments
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/doctor_lib.sh"
can_be_apart || {
    echo 'skipped: no user and mount namespaces here'
    exit 77
}

# machine SCRIPT: doctor on a machine with an empty /dev, that SCRIPT sets up.
machine() {
    {
        echo "mount -t tmpfs none /dev && : >/dev/null && chmod 666 /dev/null || exit 99"
        echo "$1"
        echo 'exec "$@"'
    } >"$root/machine"
    unshare -rm sh "$root/machine" "$VGPU" doctor >"$out" 2>"$err"
    status=$?
    [ "$status" -le 1 ] || fail "status $status"
}
machine ''
says note devices 'there is no /dev/nvidiactl, and NVML answers nevertheless'
machine ': >/dev/dxg'
says note devices 'WSL2'
machine ': >/dev/nvidiactl'
says FAIL devices '/dev/nvidia-uvm cannot be opened (No such file or directory). Make it'
machine ': >/dev/nvidiactl; : >/dev/nvidia-uvm; : >/dev/nvidia-modeset'
says FAIL devices 'there is no /dev/nvidia0'
machine ': >/dev/nvidiactl; : >/dev/nvidia-uvm; : >/dev/nvidia0; : >/dev/nvidia12'
says ok devices '/dev/nvidiactl, /dev/nvidia-uvm and 2 GPUs can be opened'
machine 'export LD_LIBRARY_PATH=/nonexistent'
grep -q '^FAIL  devices .*there is no /dev/nvidiactl' "$out" ||
    ldconfig -p | grep -q libnvidia-ml || fail 'no driver, and no node'

# The kernel's driver and the library, by version. The name of the library's file has its own.
mkdir "$root/driver"
cp "$LD_LIBRARY_PATH/libcuda.so.1" "$root/driver"
cp "$LD_LIBRARY_PATH/libnvidia-ml.so.1" "$root/driver/libnvidia-ml.so.580.159.03"
ln -s libnvidia-ml.so.580.159.03 "$root/driver/libnvidia-ml.so.1"
# kernel LINE: doctor, where the kernel's module says that.
kernel() {
    machine "export LD_LIBRARY_PATH='$root/driver'
        mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia || exit 99
        echo '$1' >/proc/driver/nvidia/version"
}
kernel 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue Nov 4 02:45:29 UTC 2025'
says ok driver 'driver 580.0.sim'
kernel 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build'
says FAIL driver "the kernel has driver 570.86.15, and $root/driver/libnvidia-ml.so.580.159.03 is of 580.159.03"
kernel 'nothing of the kind'
says ok driver 'driver 580.0.sim'

# Options of the module for unified memory.
# module HMM ATS: doctor, where it has these.
module() {
    machine "mount -t tmpfs none /sys && mkdir -p /sys/module/nvidia_uvm/parameters || exit 99
        echo '$1' >/sys/module/nvidia_uvm/parameters/uvm_disable_hmm
        echo '$2' >/sys/module/nvidia_uvm/parameters/uvm_ats_mode"
}
module N 1
says note host-memory 'the driver may move plain memory of the host to GPUs (HMM)'
module Y 0
says ok host-memory 'the driver moves no plain memory of the host'
machine 'mount -t tmpfs none /sys'
says ok host-memory 'the driver moves no plain memory of the host'

# The daemon, where it is installed.
machine 'mount -t tmpfs none /run; mount -t tmpfs none /etc'
says ok vgpud 'vgpud is not installed, and no slice needs it'
machine 'mount -t tmpfs none /run; mount -t tmpfs none /etc; mkdir -p /etc/systemd/system; : >/etc/systemd/system/vgpud.service'
says note vgpud 'vgpud is installed, and does not run. Start it by systemctl enable --now vgpud'
machine 'mount -t tmpfs none /run; mkdir -p /run/systemd/units; ln -s 0 /run/systemd/units/invocation:vgpud.service'
says ok vgpud 'vgpud runs'

# /proc
machine 'mount -t tmpfs none /proc'
says warn namespaces '/proc is not mounted'
unshare -rpf "$VGPU" doctor >"$out" 2>"$err"
says warn namespaces '/proc is of another pid namespace'
CUDA_MPS_PIPE_DIRECTORY=/nonexistent unshare -rpf --mount-proc "$VGPU" doctor >"$out" 2>"$err"
says ok namespaces 'pids are of a namespace, users are of a namespace'
says ok mps 'does not run'

# System calls that are denied. Without a driver: the simulated one's mutexes end in abort.
: "${DENYING:?}"
for call in setlk:FAIL:F_OFD_SETLK getlk:warn:F_OFD_GETLK futex:warn:futex; do
    through="env LD_LIBRARY_PATH=/nonexistent $DENYING ${call%%:*}"
    doctor
    rest=${call#*:}
    says "${rest%%:*}" system-calls "${rest#*:} does not work (Operation not permitted); a seccomp filter is on"
done
through="env LD_LIBRARY_PATH=/nonexistent CUDA_DEVICE_MEMORY_LIMIT=1g
    CUDA_DEVICE_MEMORY_SHARED_CACHE=$root/region $DENYING setlk"
doctor
says FAIL region "the region $root/region cannot be made: Operation not permitted"
exit 0
