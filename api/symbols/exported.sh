#!/bin/sh
# exported.sh STUB [NM]: the names of a toolkit's stub of libcuda that the list should have, sorted.
# Some stubs have the interop with OpenGL, EGL and VDPAU and the debugger's entries as well, which
# vgpu has nothing to do with, but for those that make contexts.
set -u
[ $# -ge 1 ] || { echo "usage: exported.sh STUB [NM]" >&2; exit 2; }
"${2:-nm}" -D --defined-only "$1" | awk '{ print $3 }' | grep -v '^cudbg' |
    grep -vE '(GL|EGL|Egl|VDPAU)([^C]|C[^t])' | LC_ALL=C sort -u | grep . || {
    echo "$1 exports nothing" >&2
    exit 1
}
