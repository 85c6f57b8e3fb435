#!/bin/sh
# run.sh [SCENE...]: a Kubernetes cluster of this one machine, whose pods share a simulated GPU by vgpu's device
# plugin, and what is seen there; all scenes (scenes.sh), or some of them by name. README.md says more.
#
# It needs root, and Debian's etcd-server, containerd, runc, openssl and curl; build.sh, which it calls, says what it
# needs. Kubernetes' programs are built once. The build's directory is build/; VGPU_BUILD names another.
# The cluster lives in namespaces of its own and in a scratch directory, and is gone at the end; with
# VGPU_KEEP=1 the scratch directory stays, with the output of every part in logs/.
# Exits with 77 and a reason where it cannot run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${VGPU_BUILD:-$here/../../build}" && pwd)

skip() {
    echo "skipped: $*"
    exit 77
}

[ "$(id -u)" = 0 ] || skip 'a cluster needs root'
for tool in etcd containerd ctr runc openssl ip unshare nsenter curl; do
    command -v "$tool" >/dev/null 2>&1 || skip "there is no $tool"
done
unshare --mount --pid --net --uts --ipc --fork true 2>/dev/null || skip 'namespaces are not permitted here'
programs=$("$here/build.sh")

scratch=$(mktemp -d)
inside=''
# vgpud's manifest has the kubelet make HAMi's directory, in the machine's own file system.
hami=/usr/local/vgpu
[ ! -e "$hami" ] || hami=''
# shellcheck disable=SC2317 # called through trap
clean() {
    if [ -n "$inside" ]; then
        kill -KILL "$inside" 2>/dev/null || : # unshare ignores other signals while it waits
        wait "$inside" 2>/dev/null || :
    fi
    # containerd's cgroups; those of a cluster that runs are not empty, and stay.
    find /sys/fs/cgroup -mindepth 3 -depth -type d -path '*/k8s.io/*' -exec rmdir {} + 2>/dev/null || :
    [ -z "$hami" ] || rmdir "$hami" 2>/dev/null || :
    [ -z "${VGPU_KEEP:-}" ] || { echo "kept: $scratch" && return; }
    rm -rf --one-file-system "$scratch"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

# shellcheck disable=SC2016 # the inner shell expands it
unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc --propagation private sh -euc '
    mount --make-rshared /
    for directory in /run /var/lib /var/log; do mount -t tmpfs -o mode=755 tmpfs "$directory"; done
    exec "$@"' sh "$here/scenes.sh" "$build" "$programs" "$scratch" "$@" &
inside=$!
status=0
wait "$inside" || status=$?
inside=''
exit "$status"
