#!/bin/sh
# `vgpu ps` on slices of `vgpu run`: what they hold, who is in them, and what state they are in.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"

ps 0
same 'what it says of nothing' 'no slice is here' "$(cat "$out")"
ps 0 --quiet
same 'the names of nothing' '' "$(cat "$out")"

# Idle: a vgpu run has it, and nothing uses a GPU. No compute limit: nobody counts.
make_slice web --memory 2G,1G
x=$region
ps 0
line "GPU NAME UUID MEMORY TOTAL FULL BUSY"
line "0 vgpu simulated GPU $uuid0 0 B 80 GiB 0 % 0 %"
line "1 vgpu simulated GPU $uuid1 0 B 80 GiB 0 % 0 %"
line "SLICE GPU MEMORY LIMIT FULL CONTEXT MODULE DATA CORES STATE"
line "web 0 0 B 2 GiB 0 % 0 B 0 B 0 B - idle"
line "web 1 0 B 1 GiB 0 % 0 B 0 B 0 B - idle"

# A process, and one that joins; a command with a directory, and one with a control character.
member one web 1610612736
one=$pid
CUDA_DEVICE_MEMORY_SHARED_CACHE=$x "$VGPU" run --name web "$MEMBER" "$root/two.ready" 0 "$(printf 'a\033b')" &
started="$started $!"
wait_for "$root/two.ready"
ps 0
line "web 0 1.50 GiB 2 GiB 75 % 0 B 0 B 1.50 GiB ~0 % 2 running"
grep -q "^$one run_member.* 0 1.50 GiB 0 B 0 B 1.50 GiB running$" "$root/words" ||
    fail "no first process: $(cat "$out")"
COLUMNS=300 ps 0
grep -q "^[0-9]* run_member $root/two.ready 0 a\\\\x1bb running$" "$root/words" ||
    fail "no second process: $(cat "$out")"

# What a monitor does.
put "$x" "$at_recent_kernel" '\377\377\377\377'
ps 0 web
line "web 0 1.50 GiB 2 GiB 75 % 0 B 0 B 1.50 GiB ~0 % blocked, 2 running"
put "$x" "$at_recent_kernel" '\2\0\0\0'
put "$x" "$at_switch" '\0'
put "$x" $((at_slots + at_status)) '\2'
ps 0 web
line "web 0 1.50 GiB 2 GiB 75 % 0 B 0 B 1.50 GiB ~0 % 1 paused, 1 running, cores lifted"
grep -q "^$one .* paused$" "$root/words" || fail "not paused: $(cat "$out")"
put "$x" "$at_paused" '\1'
put "$x" "$at_switch" '\1'
ps 0 web
line "web 0 1.50 GiB 2 GiB 75 % 0 B 0 B 1.50 GiB ~0 % paused, 1 running"
put "$x" "$at_paused" '\0'
put "$x" "$at_switch" '\1'

# Of a dead one the GPU has everything back: it does not count. Where NVML does not say, it counts; its pid may be another's
# by now, so it has no command.
kill -9 "$one"
wait_gone "$one"
ps 0
line "web 0 0 B 2 GiB 0 % 0 B 0 B 0 B ~0 % 1 running"
no_line "^$one "
VGPU_SIM_FAULTS=nvmlInit_v2=999 ps 0
line "web GPU-51300000 1.50 GiB 2 GiB 75 % 0 B 0 B 1.50 GiB - 1 running, 1 dead"
line "$one GPU-51300000 1.50 GiB 0 B 0 B 1.50 GiB dead, may be held"

# A leftover: its vgpu run was killed, and so was what it ran.
make_slice gone --gpus 1 --cores 40
kill -9 "$holder" "$sleeper"
wait_gone "$holder"
wait_gone "$sleeper"
ps 0
line "gone 1 0 B none 0 B 0 B 0 B -/40 % leftover"

# Names: all, some, the beginning of one, a path; none such.
ps 0 --quiet
same 'all names' 'gone web' "$(tr '\n' ' ' <"$out" | sed 's/ $//')"
ps 0 --quiet we
same 'one name' 'web' "$(cat "$out")"
ps 0 gone
no_line '^web'
line "1 vgpu simulated GPU $uuid1 0 B 80 GiB 0 % 0 %"
no_line "$uuid0"
cp "$x" "$root/copy"
ps 0 "$root/copy" web
grep -q "^$root/copy 0 0 B 2 GiB 0 % .* empty$" "$root/words" || fail "no copy: $(cat "$out")"
grep -q '^web 0 ' "$root/words" || fail "no web beside it: $(cat "$out")"
refuse_ps 125 'there is no slice "nope"' ps nope
refuse_ps 125 'there is no slice "nope"' ps --quiet web nope
refuse_ps 2 '--quiet prints names alone: leave out --json' ps --quiet --json
refuse_ps 2 '--all is of all slices: leave it out, or "web"' ps --all web

# A file that is lost on the way, and one that is no region: the others are listed.
rm "$state/gone/region"
ps 0
line 'gone leftover'
rm "$x"
mkfifo "$x"
ps 1
line "web $x is no region of vgpu: it is not a regular file; name another path"
line 'gone leftover'
rm "$x"
mkdir "$x"
ps 1
line "web $x is no region of vgpu: it is a directory; name a file in it"
rmdir "$x"
cp "$root/copy" "$x"

# Without NVML: GPUs by their UUIDs, and a line on stderr only where NVML was asked for.
if ! ldconfig -p 2>/dev/null | grep -q libnvidia-ml.so.1; then # not on a machine that has one
    (
        LD_LIBRARY_PATH=$root
        ps 0 web
        line "web GPU-51300000 1.50 GiB 2 GiB 75 % 0 B 0 B 1.50 GiB - idle, 1 dead"
        "$VGPU" ps --all >"$out" 2>"$err"
        same 'the status without NVML' 0 "$?"
        grep -q '^vgpu: no NVIDIA driver here: .*: what only NVML knows is left out$' "$err" ||
            fail '--all does not say that there is no NVML'
    ) || exit 1
fi

# On a terminal, in colours and as wide as that: but not with NO_COLOR.
if command -v script >/dev/null; then
    export VGPU
    TERM=xterm COLUMNS=60 script -qc '"$VGPU" ps' /dev/null >"$out" </dev/null
    grep -q "$(printf '\033\\[1mSLICE')" "$out" || fail "no colour on a terminal: $(cat "$out")"
    NO_COLOR=1 TERM=xterm script -qc '"$VGPU" ps' /dev/null >"$out" </dev/null
    grep -q '^SLICE' "$out" || fail "colour with NO_COLOR: $(cat "$out")"
fi
