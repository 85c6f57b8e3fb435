#!/bin/sh
# selftest.sh BUILD [NAME...]: runs the simulated driver's own tests with the machine's real driver, and
# says where the two differ. It reports, and fails only where nothing ran. sim/README.md has what was seen.
#
# The tests of what the simulation alone has are left out (faults, its configuration, its processes).
set -eu
build=$(cd "${1:-build}" && pwd)
[ $# -eq 0 ] || shift
seconds=30
libraries=$(ldconfig -p | sed -n 's|.*libcuda\.so\.1 .*=> \(.*\)/libcuda\.so\.1$|\1|p' | head -n 1)
if [ -z "$libraries" ] || ! nvidia-smi -L >/dev/null 2>&1; then
    echo "selftest: skipped: no NVIDIA GPU on this machine"
    exit 77
fi
[ $# -gt 0 ] || set -- array capture context fork graph green host image ipc ipc_pools library memory pages pool \
    procaddress share timeline utilization variable virtual visible
log=$(mktemp)
trap 'rm -f "$log"' EXIT
same=0 differ=0
for name; do
    status=0
    LD_LIBRARY_PATH=$libraries setsid timeout "$seconds" "$build/tests/sim/selftest/sim_selftest_$name" >"$log" 2>&1 &
    group=$!
    wait "$group" || status=$?
    kill -KILL -- "-$group" 2>/dev/null || : # processes that the test did not end
    if [ "$status" -eq 0 ]; then
        same=$((same + 1))
        printf 'same     %s\n' "$name"
    else
        differ=$((differ + 1))
        printf 'differs  %-12s status %s  %s\n' "$name" "$status" "$(tail -n 1 "$log")"
    fi
done
echo "$same the same, $differ differ, on $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)"
