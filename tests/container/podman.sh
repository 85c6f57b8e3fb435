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
has_cdi=yes may_refuse=no
flags='--network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024'

make_driver
make_image
# shellcheck source=tests/container/engine_cases.sh
. "$(dirname "$0")/engine_cases.sh"

# -- user namespaces --
bob=$(slice bob 1G) || exit 1
mapped='--uidmap 0:200000:65536 --gidmap 0:200000:65536'
# shellcheck disable=SC2086 # flags
container 'a user namespace' $mapped $bob -- sh -c 'cat /proc/self/uid_map; hog'
says ' 200000 '
sees 1024
# shellcheck disable=SC2086 # flags
container 'another user namespace, over the region of the first' --uidmap 0:300000:65536 --gidmap 0:300000:65536 $bob -- hog
sees 1024
exit 0
