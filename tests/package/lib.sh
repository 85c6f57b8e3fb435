#!/bin/sh
# What the package tests share, to be sourced: a scratch root, and checks of what was installed there.
# shellcheck disable=SC2034 # the tests use what is set here
set -u

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
root=$work/root
status=0

fail() {
    echo "FAILED: $*" >&2
    status=1
}

# stranger COMMAND...: as from a shell that knows the prefix and nothing else; what it prints is in $work/out.
stranger() (
    cd / && env -i PATH="$root/usr/bin:/usr/bin:/bin" VGPU_DEMO=simulated "$@" </dev/null >"$work/out" 2>&1
)

# there PATH...: files below the root.
there() {
    for file; do
        [ -e "$root/usr/$file" ] || fail "/usr/$file is not installed"
    done
}

# check_build_is_unknown BUILD READELF: no program or library looks for others in the build directory.
check_build_is_unknown() {
    find "$root" -type f \( -perm -u+x -o -name '*.so*' \) >"$work/binaries"
    while read -r file; do
        "$2" -d "$file" 2>/dev/null | grep -E 'R(UN)?PATH' >"$work/paths" &&
            fail "$file has a search path: $(cat "$work/paths")"
    done <"$work/binaries"
    find "$root" -type l >"$work/links"
    while read -r link; do
        case $(readlink -f "$link") in
        "$root"/*) [ -e "$link" ] || fail "$link leads nowhere" ;;
        *) fail "$link leads to $(readlink "$link")" ;;
        esac
    done <"$work/links"
    grep -rlF --include='*.sh' "$1" "$root" && fail 'and that names the build directory'
}

# check_header CC: the installed header compiles alone, and strictly.
check_header() {
    echo '#include <vgpu_region.h>' | "$1" -std=c11 -pedantic-errors -Wall -Wextra -Werror -fsyntax-only \
        -nostdinc -isystem "$("$1" -print-file-name=include)" -isystem "$root/usr/include" \
        -isystem /usr/include -isystem "/usr/include/$("$1" -dumpmachine)" -xc - || fail 'vgpu_region.h'
}

# check_run LIBRARY VERSION: `vgpu run` finds it by itself, and the program in the slice is held.
check_run() {
    home=$(dirname "$1")
    [ "$(stranger vgpu --version; cat "$work/out")" = "vgpu $2" ] ||
        fail "vgpu --version says: $(cat "$work/out")"
    stranger env LD_LIBRARY_PATH="$home/sim" VGPU_SIM_STATE="$work/gpu" VGPU_STATE="$work/slices" \
        vgpu run --memory 1G -- sh -c "echo \"\$LD_PRELOAD\"; exec $home/demo/hog" ||
        fail "vgpu run: status $?"
    [ "$(head -n 1 "$work/out")" = "$1" ] || fail "vgpu run preloads $(head -n 1 "$work/out")"
    grep -q 'one byte more: CUDA_ERROR_OUT_OF_MEMORY' "$work/out" ||
        fail "what runs in the slice is not held: $(cat "$work/out")"
}

check_demo() {
    stranger vgpu-demo || fail "vgpu-demo ends with $?"
    [ "$(grep -c 'one byte more: CUDA_ERROR_OUT_OF_MEMORY' "$work/out")" -eq 2 ] || fail 'tenants are not held'
    grep -q 'delivered, second 5' "$work/out" || fail "vgpu-demo prints: $(cat "$work/out")"
}
