#!/bin/sh
# Signals that are sent to `vgpu run` are its command's, once each; masks are passed on as they were.
. "$(dirname "$0")/lib.sh"

# sent SIGNAL...: what the command counts when these are sent to vgpu.
sent() {
    rm -f "$root/ready" "$root/end"
    start signals --unlimited --name signals "$SIGNALS" "$root/ready" "$root/end" "$#"
    wait_for "$root/ready"
    for signal; do
        kill -s "$signal" "$pid"
    done
    touch "$root/end"
    wait "$pid" || echo "status $?"
    [ ! -s "$root/signals.err" ] || fail "not silent: $(cat "$root/signals.err")"
    tr '\n' ' ' <"$root/signals.out" | sed 's/ $//'
}

for signal in HUP INT QUIT USR1 USR2 TERM CONT WINCH; do
    same "what SIG$signal becomes" "$signal 1" "$(sent $signal)"
done
same 'what several become' 'HUP 1 USR1 1 TERM 1' "$(sent TERM USR1 HUP)"
same 'what is left' '' "$(slices)"

# One that kills the command: 128 and its number, and the slice is removed.
start killed --unlimited --name killed sh -c 'touch "$0"; exec sleep 1000' "$root/killed"
wait_for "$root/killed"
kill -TERM "$pid"
wait "$pid"
same 'the status' 143 "$?"
same 'what is left' '' "$(slices)"

# The command's own kill(0, …) is not doubled.
cat >"$root/group" <<'EOF'
trap 'count=$((count + 1))' USR1
count=0
kill -USR1 0
for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done
echo "$count"
EOF
same 'signals to its own group' 1 "$(setsid -w "$VGPU" run --unlimited sh "$root/group")"

# Stopped by others, the command continues when vgpu is told to.
start stopped --unlimited --name stopped sh -c 'echo $$ >"$0"; while :; do echo >"$1"; sleep 0.05; done' \
    "$root/stopped" "$root/alive"
wait_for "$root/alive"
command=$(cat "$root/stopped")
started="$started $command"
kill -STOP "$command"
sleep 0.1
kill -CONT "$pid"
sleep 0.1
rm -f "$root/alive"
wait_for "$root/alive"
kill -TERM "$pid"
wait "$pid"
same 'the status' 143 "$?"

# Blocked and ignored signals are as they were, SIGCHLD included.
masks='grep -E ^Sig(Blk|Ign): /proc/self/status'
# shellcheck disable=SC2086
"$IGNORING" $masks >"$root/direct"
# shellcheck disable=SC2086
"$IGNORING" "$VGPU" run --unlimited $masks >"$root/through"
cmp -s "$root/direct" "$root/through" || fail "masks: $(cat "$root/direct" "$root/through")"
timeout 100 "$IGNORING" "$VGPU" run --unlimited sh -c 'exit 5'
same 'the status with SIGCHLD ignored' 5 "$?"
