#!/bin/sh
# inert.sh PROGRAM [ARGUMENT...]: runs it with the library, but without a slice.
. "$(dirname "$0")/slice.sh"
need_no_slice
in_slice CUDA_DEVICE_MEMORY_LIMIT= DOORS_CONTROL=1 "$@" || exit
[ ! -e "$region" ] || fail "a region was made"
