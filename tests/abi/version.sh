#!/bin/sh
# version.sh VERSION SOURCE: what CMake says is the version, debian/changelog and CHANGELOG.md say as well.
set -u
version=$1 source=$2
status=0

# same FILE WHAT-IT-SAYS
same() {
    [ "$2" = "$version" ] && return
    echo "$1 begins with version \"$2\", and CMakeLists.txt says $version" >&2
    status=1
}

# The Debian revision, and ~rc1 and the like, are Debian's own.
same debian/changelog "$(sed -n '1s/^vgpu (\([0-9.]*\)[-~][^)]*).*/\1/p' "$source/debian/changelog")"
same CHANGELOG.md "$(sed -n 's/^## \([0-9.]*\).*/\1/p' "$source/CHANGELOG.md" | head -n 1)"
exit "$status"
