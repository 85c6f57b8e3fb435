#!/bin/sh
# What becomes of slices: at their end, after a kill -9, and with processes that outlive theirs.
. "$(dirname "$0")/lib.sh"

expect 0 --unlimited --name x sh -c 'cd "$VGPU_POLICY/.." && ls'
same 'a slice' 'lock
policy
region' "$(cat "$out")"
same 'what is left' '' "$(slices)"
expect 1 --unlimited false
refuse 127 'not found' --unlimited no-such-command
same 'what is left' '' "$(slices)"

# Killed, with a command that ends by itself: the next run removes what is left.
start killed --unlimited --name killed --gpus 0 sh -c 'echo $$ >"$0"; exec sleep 1000' "$root/sleeper"
wait_for "$root/sleeper"
until [ -s "$root/sleeper" ]; do sleep 0.05; done
kill -9 "$pid"
wait_gone "$pid"
kill -9 "$(cat "$root/sleeper")"
same 'after kill -9' killed "$(slices)"
expect 0 --unlimited --name other true
same 'after the next run' '' "$(slices)"

# The same with a process in the region: it keeps the slice alive, and the policy whole.
start orphan --name orphan --gpus 0 --memory 1G "$MEMBER" "$root/member"
wait_for "$root/member"
member=$(cat "/proc/$pid/task/$pid/children")
started="$started $member"
kill -9 "$pid"
wait_gone "$pid"
expect 0 --unlimited true
same 'with a living process' orphan "$(slices)"
refuse 125 'the slice orphan lives already and has GPU 0 with 1 GiB' --name orphan --gpus 1 true
expect 0 --name orphan sh -c 'cat "$VGPU_POLICY"/GPU-*'
same 'what joins it finds' 'memory = 1G' "$(cat "$out")"
same 'with a living process' orphan "$(slices)"
kill -9 "${member% }"
wait_gone "${member% }"
expect 0 --unlimited --name orphan --gpus 1 sh -c 'ls "$VGPU_POLICY"'
same 'made anew' "$uuid1
slice" "$(cat "$out")"
same 'what is left' '' "$(slices)"

# Who gives no name does not join one that has been left, either.
cat >"$root/taken" <<'EOF'
"$VGPU" run --unlimited --name "run-$$" sh -c 'echo $$ >"$0"; exec "$1" "$2"' "$1.pid" "$MEMBER" "$1" &
until [ -e "$1" ]; do sleep 0.05; done
kill -9 "$!"
wait
echo "$$"
exec "$VGPU" run --unlimited printenv VGPU_POLICY
EOF
sh "$root/taken" "$root/left" >"$out" 2>"$err"
left=$(cat "$root/left.pid")
started="$started $left"
same 'its own slice' "$state/run-$(head -n 1 "$out")-2/policy" "$(tail -n 1 "$out")"
kill -9 "$left"
wait_gone "$left"
expect 0 --unlimited true
same 'what is left' '' "$(slices)"

# A process that stays behind when the command ends well.
expect 0 --unlimited --name behind sh -c '"$0" "$1" >/dev/null 2>&1 & echo $!
    until [ -e "$1" ]; do sleep 0.05; done' "$MEMBER" "$root/behind"
behind=$(cat "$out")
started="$started $behind"
same 'with one left behind' behind "$(slices)"
kill -9 "$behind"
wait_gone "$behind"
expect 0 --unlimited true
same 'what is left' '' "$(slices)"

# Killed in the middle of making one or of removing one, at any step.
mkdir -p "$state/a" "$state/b/policy.new" "$state/c/policy.old"
touch "$state/b/lock" "$state/b/policy.new/$uuid0" "$state/b/region" "$state/c/lock" \
    "$state/c/policy.old/$uuid0"
for name in a b c; do
    expect 0 --name $name --gpus 0 --memory 1G sh -c 'cat "$VGPU_POLICY"/GPU-*'
    same "made over leftovers of $name" 'memory = 1G' "$(cat "$out")"
done
mkdir -p "$state/a" "$state/b/policy.new" "$state/c/policy.old"
touch "$state/b/lock" "$state/b/policy.new/$uuid0" "$state/c/lock" "$state/c/policy.old/$uuid0"
expect 0 --unlimited true
same 'after leftovers' '' "$(slices)"

# What is not ours is left alone.
mkdir -p "$state/mine" "$state/.hidden" "$state/theirs"
touch "$state/mine/notes" "$state/.hidden/lock" "$state/file" "$state/theirs/lock" \
    "$state/theirs/notes"
expect 0 --unlimited true
same 'the files of others' 'file mine theirs' "$(slices)"
[ -e "$state/mine/notes" ] && [ -e "$state/.hidden/lock" ] && [ -e "$state/theirs/notes" ] ||
    fail 'files of others are gone'
same 'the link to a slice' "$(ln -s mine "$state/link" && "$VGPU" run --unlimited true && readlink "$state/link")" mine

# A region that cannot be understood may be somebody's: the slice stays, and says so.
mkdir -p "$state/odd/policy"
touch "$state/odd/lock" "$state/odd/policy/$uuid0"
head -c 100000 /dev/zero | tr '\0' 'x' >"$state/odd/region"
expect 0 --unlimited true
[ -e "$state/odd/region" ] || fail 'a region that is not understood was removed'
refuse 125 "$state/odd/region" --unlimited --name odd true
