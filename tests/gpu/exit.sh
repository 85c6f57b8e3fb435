#!/bin/sh
# make gpu-check: what a process that exits normally leaves on a real GPU, as HAMi's monitor sees it in
# the region, and what the monitor reads of a process that rests.
set -eu
. "$(dirname "$0")/lib.sh"

# What the monitor adds up, whoever lives: MiB.
shown() {
    ledger exit | awk '$1 == "slot" { sum += $3 + $7 } END { print sum + 0 }'
}

# The utilisation in the first slot of device 0, percent: 1856 + 1160 + 16 bytes into the file.
utilisation() {
    od -An -j3032 -N8 -t u8 "$scratch/slices/exit/region" | tr -d ' '
}

echo "A process that holds 2 GiB stays, one after the other with 4 GiB exits, 20 times:"
fill exit 1 --cores 30 -- "$build/tests/gpu/leave" 2048 work
wait_for "$scratch/out" '^works' 1
check "at work: utilisation, in percent, not" "$(utilisation)" 10 60
wait_for "$scratch/out" '^rests' 1
check "at rest: utilisation, in percent, not" "$(utilisation)" 0 0
alone=$(shown)
highest=0 slow=0
for round in $(seq 20); do
    "$build/vgpu" run --name exit -- "$build/tests/gpu/leave" 4096 </dev/null >"$scratch/left" 2>&1 9>&- ||
        { cat "$scratch/left"; slow=$((slow + 1)); }
    over=$(($(shown) - alone))
    [ "$over" -le "$highest" ] || highest=$over
    held=$(($(used) - baseline))
    [ "$held" -le $((quota + 4)) ] || check "round $round: the device holds" "$held" 0 $((quota + 4))
done
check "after each: the monitor sees of it" "$highest" 0 2
check "rounds in which 4 GiB were not to be had, in rounds, not" "$slow" 0 0
release
seen=0
[ ! -e "$scratch/slices/exit/region" ] || seen=$(shown)
check "the end: the monitor sees" "$seen" 0 0
left exit
echo "cuMemAllocAsync beyond the card: skipped, as the card would have to be full for it (sim.devices.oversubscribe)"

conclude "exit"
