#!/bin/sh
# podman.sh BUILD: slices in containers of Podman.
# shellcheck source=tests/container/lib.sh
. "$(dirname "$0")/lib.sh"
needs podman tar

# runc: the crun of Debian 12 wants cgroups of one version alone.
engine_command="podman --root $work/storage --runroot $work/runroot --tmpdir $work/libpod --events-backend none \
    --cgroup-manager cgroupfs --runtime runc"
engine() {
    $engine_command "$@"
}
has_cdi=yes
flags='--network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024'

make_driver
make_image
# shellcheck source=tests/container/engine_cases.sh
. "$(dirname "$0")/engine_cases.sh"
