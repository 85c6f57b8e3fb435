# What the scripts here share, to be sourced: a slice of 1 GiB of a simulated GPU of 8 GiB, with
# files in a directory of the test's own.
# shellcheck shell=sh
set -u

: "${DOORS_LIBRARY:?}" "${DOORS_SIM:?}" # from CMakeLists.txt

directory=$(mktemp -d) || exit 1
trap 'rm -rf "$directory"' EXIT
region=$directory/region

fail() {
    echo "$*" >&2
    exit 1
}

# in_slice [NAME=VALUE...] PROGRAM [ARGUMENT...]: with nothing else in the environment.
in_slice() {
    env -i PATH="$PATH" LD_PRELOAD="$DOORS_LIBRARY" LD_LIBRARY_PATH="$DOORS_SIM" \
        VGPU_SIM_STATE="$directory/sim" VGPU_SIM_GPUS=1x8G \
        CUDA_DEVICE_MEMORY_SHARED_CACHE="$region" CUDA_DEVICE_MEMORY_LIMIT=1g "$@"
}

# What gives a process a slice without its asking would be in the way of tests that must have none.
need_no_slice() {
    for file in /tmp/cudevshr.cache /usr/local/vgpu/*.cache /etc/vgpu/policy; do
        [ ! -e "$file" ] || { echo "$file exists on this machine" >&2; exit 77; }
    done
}
