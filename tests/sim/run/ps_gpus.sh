#!/bin/sh
# `vgpu ps` with programs that use the (simulated) GPU: in a slice, and in none.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"
: "${SHARES:?}" "${LIBRARY:?}" "${LINGERS:?}" # from CMakeLists.txt
export VGPU_LIBRARY="$LIBRARY"

# runs_until PATTERN ARGUMENT...: ps, until it prints such a line.
runs_until() {
    pattern=$1
    shift
    tries=0
    ps 0 "$@"
    until grep -q -- "$pattern" "$root/words"; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || fail "no line \"$pattern\" comes: $(cat "$out")"
        sleep 0.1
        ps 0 "$@"
    done
}

start limited --name limited --gpus 0 --memory 2G --cores 30 "$SHARES" --kernel=2000 --seconds=600
start free --name free --gpus 1 --memory 3G "$SHARES" --kernel=2000 --use=5 --seconds=600
free_run=$pid
CUDA_VISIBLE_DEVICES=1 "$SHARES" --kernel=2000 --use=5 --seconds=600 >/dev/null &
stranger=$!
started="$started $stranger"

# NVML's pids have no meaning in a pid namespace, so ps shows no commands for them there.
if [ "$(stat -L -c %i /proc/self/ns/pid)" = "$((0xeffffffc))" ]; then
    command=' shares .*'
else
    command=''
fi

# The slice counts its own time, and is held back by its limit; of the other one, NVML counts. The
# context is NVML's, too.
runs_until '^limited 0 [5-9][0-9][0-9] MiB 2 GiB [0-9]* % 518 MiB [^/]* [1-9][0-9]*/30 % [1-9][0-9]* % limit 1 running$'
limited=$(sed -n 's/^\([0-9]*\) shares .* 0 5[0-9]* MiB .*/\1/p' "$root/words")
runs_until '^free 1 [5-9][0-9][0-9] MiB 3 GiB [0-9]* % 518 MiB .* ~[0-9]* % .*1 running$'
no_line "^$stranger "

# --all: who is in no slice, and who is, is not said to be.
runs_until "^$stranger$command 1 5[0-9]* MiB ~[0-9]* % in no slice$" --all
line '(in no slice)'
same 'how many strangers' 1 "$(grep -c 'in no slice$' "$root/words")"
grep -q "^$limited shares .* running$" "$root/words" || fail "no process in the slice: $(cat "$out")"
grep -qE "^1 vgpu simulated GPU $uuid1 1(\.[0-9]*)? GiB 80 GiB 1 % [0-9]+ %$" "$root/words" ||
    fail "no memory of GPU 1: $(cat "$out")"

# NVML may tell no figures, or no processes.
VGPU_SIM_NVML_FIGURES=none ps 0 --all
grep -q "^$stranger$command 1 - ~[0-9]* % in no slice$" "$root/words" ||
    fail "no stranger without a figure: $(cat "$out")"
VGPU_SIM_NVML_PIDS=none ps 0 --all
no_line 'in no slice'
grep -q '^limited 0 .*/30 % .* 1 running$' "$root/words" || fail "no slice without pids: $(cat "$out")"
VGPU_SIM_FAULTS=nvmlDeviceGetProcessUtilization=3,nvmlDeviceGetUtilizationRates=3,nvmlDeviceGetName=3,nvmlDeviceGetMemoryInfo_v2=3 ps 0 --all
grep -q "^1 $uuid1 1.* GiB 80 GiB 1 % -$" "$root/words" || fail "with a poor NVML: $(cat "$out")"
grep -qE '^free 1 .* - (- |0 % )?1 running$' "$root/words" || fail "with a poor NVML: $(cat "$out")"
VGPU_SIM_FAULTS=nvmlInit_v2=999 ps 0
grep -q '^free GPU-51300000 ' "$root/words" || fail "without a started NVML: $(cat "$out")"

# A region whose process has no slot in it, but is on the GPU: dead, and it counts.
cp "$state/free/region" "$root/copy"
ps 0 "$root/copy"
grep -qE "^$root/copy 1 [5-9][0-9][0-9] MiB 3 GiB .* empty, 1 dead$" "$root/words" || fail "not held: $(cat "$out")"
grep -qE '^[0-9]+ 1 [5-9][0-9][0-9] MiB 518 MiB .* dead$' "$root/words" || fail "no held process: $(cat "$out")"
VGPU_SIM_NVML_PIDS=none ps 0 "$root/copy"
grep -q ' dead, may be held$' "$root/words" || fail "held for certain: $(cat "$out")"

# Killed: the GPU is in use by others, and NVML does not list the process, on the host at least.
CUDA_VISIBLE_DEVICES=1 "$SHARES" --kernel=2000 --use=5 --seconds=600 >/dev/null &
second=$!
started="$started $second"
runs_until "^$second$command 1 5[0-9]* MiB " --all # more is in use than the dead one had
ps 0 free
free=$(sed -n 's/^\([0-9]*\) shares .*/\1/p' "$root/words")
kill -STOP "$free_run" # it would remove the slice
kill -9 "$free"
wait_gone "$free"
if [ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ]; then
    ps 0 free
    line 'free 1 0 B 3 GiB 0 % 0 B 0 B 0 B - idle'
    VGPU_SIM_NVML_PIDS=none ps 0 free
    grep -qE '^free 1 [5-9][0-9][0-9] MiB 3 GiB .* idle, 1 dead$' "$root/words" || fail "not counted: $(cat "$out")"
fi

kill -9 "$stranger" "$second"
wait_gone "$stranger"
wait_gone "$second"
ps 0 --all
no_line 'in no slice'

# A process that has begun to exit is out of its slot, and on the GPU yet.
start lingers --name lingers --gpus 0 --memory 2G "$LINGERS" "$root/lingers"
wait_for "$root/lingers"
lingers=$(cat "/proc/$pid/task/$pid/children")
started="$started $lingers"
VGPU_STATE=$root/elsewhere ps 0 --all
grep -q "^${lingers% } .*in no slice$" "$root/words" || fail "it is not on the GPU: $(cat "$out")"
ps 0 --all
no_line 'in no slice'

# Two slices that always want one GPU: each waits for turns of the other, and what they are assured does not fit.
for name in greedy hungry; do
    start $name --name $name --gpus 1 --memory 2G --cores 80-100 "$SHARES" --kernel=2000 --seconds=600
done
runs_until '^greedy 1 .*/80-100 % [1-9][0-9]* % turns 1 running$'
runs_until '^hungry 1 .*/80-100 % [1-9][0-9]* % turns 1 running$'
line 'GPU 1: 2 slices are assured 160 % in all; while all of them want it, the one of 80 % gets 50 %'
no_line '^GPU 0: '
"$VGPU" doctor >"$out" 2>"$err"
grep -q '^warn  assured  *GPU 1: 2 slices are assured 160 % in all; .*\. Lower some with vgpu set --cores' "$out" ||
    fail "doctor says nothing of that: $(cat "$out")"
"$VGPU" set --cores 20 greedy >"$out" 2>"$err" || fail 'no other share'
ps 0
no_line '^GPU 1: '
"$VGPU" doctor >"$out" 2>"$err"
grep -q '^ok    assured  *the slices of each GPU are assured 100 % of its time in all, or less$' "$out" ||
    fail "doctor: $(cat "$out")"
