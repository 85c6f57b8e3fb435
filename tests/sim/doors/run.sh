#!/bin/sh
# run.sh [NAME=VALUE...] PROGRAM [ARGUMENT...]: runs it in the slice of slice.sh.
. "$(dirname "$0")/slice.sh"
in_slice "$@"
