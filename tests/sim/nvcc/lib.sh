# What the tests with nvcc share, to be sourced: a simulated machine and slices of the test's own, nvcc in
# $nvcc. Ends the test, as skipped, where there is no nvcc.
# shellcheck shell=sh
set -u
: "${VGPU:?}" "${VGPU_LIBRARY:?}" "${SOURCES:?}" # from CMakeLists.txt

skip() {
    echo "skipped: $*"
    exit 77
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
# shellcheck disable=SC2016 # the names of variables
[ -x "$nvcc" ] || skip 'there is no nvcc in $NVCC, $PATH or /usr/local/cuda/bin'
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
export VGPU_STATE="$root/state" VGPU_SIM_STATE="$root/sim"
unset LD_PRELOAD VGPU_POLICY CUDA_VISIBLE_DEVICES

# compile SOURCE FILE OPTION...: that of the tests' sources into the file.
compile() {
    source=$1 file=$2
    shift 2
    "$nvcc" "$@" -o "$root/$file" "$SOURCES/$source" || fail "nvcc $*"
}
