#!/bin/sh
# Programs with the CUDA runtime on the simulated one, shared and static: what nvcc makes runs as it is.
set -u
: "${VGPU:?}" "${VGPU_LIBRARY:?}" "${SIM:?}" "${SOURCES:?}" # from CMakeLists.txt
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$nvcc" ] || {
    echo "skipped: there is no nvcc in \$NVCC, \$PATH or /usr/local/cuda/bin"
    exit 77
}
release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
[ "${release:-0}" -eq 13 ] || {
    echo "skipped: the simulated runtime is that of CUDA 13, and $nvcc is of CUDA $release"
    exit 77
}
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
export VGPU_STATE="$root/state" VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=2x4G
unset LD_PRELOAD VGPU_POLICY CUDA_VISIBLE_DEVICES

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# make NAME OPTION...: calls.cu into the program NAME
make() {
    program=$1
    shift
    "$nvcc" "$@" -L"$SIM" -o "$root/$program" "$SOURCES/calls.cu" || fail "nvcc $*"
}

make shared -arch=sm_90 -cudart shared
make static -arch=sm_90
make per-thread -arch=sm_90 -default-stream per-thread -rdc=true
cases='vector_add devices streams graphs symbols functions pitch arrays pools host'
for program in shared static per-thread; do
    # shellcheck disable=SC2086 # CASES is a list
    "$root/$program" $cases || fail "$program $cases"
    "$root/$program" processes || fail "$program processes"
    "$root/$program" whole || fail "$program whole"
    # shellcheck disable=SC2086
    "$VGPU" run --memory 4G -- "$root/$program" $cases || fail "$program in a slice of 4 GiB"
    "$VGPU" run --memory 1G -- "$root/$program" slice || fail "$program slice"
    "$VGPU" run --memory 2G -- "$root/$program" processes || fail "$program processes in a slice"
done

# PTX alone: the driver compiles it.
make ptx -arch=compute_90 -code=compute_90
"$root/ptx" vector_add streams || fail "ptx"

readelf -d "$root/static" | grep -q libcudart && fail "the static program needs a libcudart.so"
exit 0
