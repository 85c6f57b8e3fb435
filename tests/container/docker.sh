#!/bin/sh
# docker.sh BUILD: slices in containers of Docker, by a daemon of the test's own. CDI devices need Docker 25: an older one gets
# the same mounts as flags.
# shellcheck disable=SC2317 # until_it calls functions
# shellcheck source=tests/container/lib.sh
. "$(dirname "$0")/lib.sh"
needs dockerd docker tar

engine_command="docker --host unix://$work/docker.sock"
engine() {
    $engine_command "$@"
}
flags='--network none'

is_up() {
    engine info >/dev/null 2>&1
}

make_driver
make_image
echo '{"features": {"cdi": true}, "iptables": false, "ip6tables": false, "bridge": "none"}' >"$work/daemon.json"
dockerd --config-file "$work/daemon.json" --data-root "$work/docker" --exec-root "$work/docker.run" \
    --pidfile "$work/docker.pid" --host "unix://$work/docker.sock" >"$work/docker.log" 2>&1 &
what='dockerd starts'
until_it is_up
version=$(engine version --format '{{.Server.Version}}')
has_cdi=yes may_refuse=yes
[ "${version%%.*}" -ge 25 ] || has_cdi=no may_refuse=no
echo "Docker $version, CDI devices: $has_cdi"
# shellcheck source=tests/container/engine_cases.sh
. "$(dirname "$0")/engine_cases.sh"
exit 0
