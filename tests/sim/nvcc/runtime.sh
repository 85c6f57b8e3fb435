#!/bin/sh
# Programs with the CUDA runtime on the simulated one, shared and static: what nvcc makes runs as it is.
# shellcheck source=tests/sim/nvcc/lib.sh
. "$(dirname "$0")/lib.sh"
: "${SIM:?}" # from CMakeLists.txt
release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
[ "${release:-0}" -eq 13 ] || skip "the simulated runtime is that of CUDA 13, and $nvcc is of CUDA $release"
export VGPU_SIM_GPUS=2x4G

compile calls.cu shared -L"$SIM" -arch=sm_90 -cudart shared
compile calls.cu static -L"$SIM" -arch=sm_90
compile calls.cu per-thread -L"$SIM" -arch=sm_90 -default-stream per-thread -rdc=true
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
compile calls.cu ptx -L"$SIM" -arch=compute_90 -code=compute_90
"$root/ptx" vector_add streams || fail "ptx"

readelf -d "$root/static" | grep -q libcudart && fail "the static program needs a libcudart.so"
exit 0
