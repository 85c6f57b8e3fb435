#!/bin/sh
# Who may be in a slice of root's, and write its region: root, and the members of its group.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/steer_lib.sh"
: "${STEERED:?}" "${LIBRARY:?}" # from CMakeLists.txt

[ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || {
    echo 'skipped: this takes root, and setpriv'
    exit 77
}
chmod 755 "$root"
setpriv --reuid nobody --clear-groups test -x "$VGPU" -a -r "$LIBRARY" || {
    echo 'skipped: other users may not read what was built'
    exit 77
}
mkdir -m 777 "$root/all"
# as GROUP COMMAND...: as nobody, a member of that group alone.
as() {
    group=$1
    shift
    setpriv --reuid nobody --regid "$group" --clear-groups "$@"
}

# -- root's alone --
make_slice lab --gpus 0 --memory 1G
same 'the file' '660 0 0' "$(stat -c '%a %u %g' "$region")"
same 'the policy' "region = $region
name = lab
group = 0" "$(cat "$state/lab/policy/slice")"
! as 100 dd if=/dev/null of="$region" conv=notrunc 2>/dev/null || fail 'another user writes the region'
! as 100 dd if="$region" of=/dev/null count=1 2>/dev/null || fail 'another user reads the region, and may lock it'
for command in pause 'set --memory 2G' rm; do
    # shellcheck disable=SC2086 # an option, and its value
    as 100 "$VGPU" $command lab >"$out" 2>"$err"
    same "the status of another user's $command" 125 "$?"
done
as 100 "$VGPU" ps >"$out" 2>"$err" || fail "another user's ps: $(cat "$out")"
! grep -q '^lab' "$out" || fail 'another user sees it'
as 100 "$VGPU" ps lab >"$out" 2>"$err"
same 'the status of its ps of that slice' 1 "$?"
grep -q 'permission denied' "$out" || fail "it is not told why: $(cat "$out")"

# Whoever may read the policy cannot hold up who changes it.
if command -v flock >/dev/null; then
    setpriv --reuid nobody --regid 100 --clear-groups sh -c 'exec 9<"$0" && flock 9 && touch "$1" && exec sleep 1000' "$state/lab/policy" "$root/all/held" &
    started="$started $!"
    wait_for "$root/all/held"
    timeout 60 "$VGPU" set lab --memory 2G >"$out" 2>"$err" || fail 'another user holds up vgpu set'
fi

# -- a group --
vgpu 0 set lab --group 100
prints 'lab: group 100'
same 'the file' '660 0 100' "$(stat -c '%a %u %g' "$region")"
grep -qx 'group = 100' "$state/lab/policy/slice" || fail 'the policy does not say so'
CUDA_DEVICE_MEMORY_SHARED_CACHE=$region setpriv --reuid nobody --regid 100 --clear-groups \
    "$MEMBER" "$root/all/member.ready" 4096 &
started="$started $!"
wait_for "$root/all/member.ready"
as 100 "$VGPU" ps lab >"$out" 2>"$err" || fail "a member's ps: $(cat "$out")"
grep -q '1 running' "$out" || fail "a member does not see it: $(cat "$out")"
! CUDA_DEVICE_MEMORY_SHARED_CACHE=$region as 101 "$MEMBER" "$root/all/stranger" 2>"$err" || fail 'a stranger is in it'
grep -q 'vgpu set --group' "$err" || fail 'the stranger is not told what to do'
wrong 2 '"no such" is no group of this machine' set lab --group 'no such'
vgpu 0 set lab --memory 3G
grep -qx 'group = 100' "$state/lab/policy/slice" || fail 'the group is lost'

make_slice team --gpus 1 --memory 1G --group 101
same 'the file' '660 0 101' "$(stat -c '%a %u %g' "$region")"
expect 0 --name team --group 101 true
refuse 125 'to join it, leave --memory' --name team --group 100 true
kill -9 "$holder" "$sleeper"

# A region that was lost is made as it was, by vgpu pause and by the slice's programs.
rm "$state/lab/region"
vgpu 0 rm --force lab 2>/dev/null || :
make_slice lost --gpus 0 --memory 1G --group 100
rm "$region"
vgpu 0 pause lost
same 'made by pause' '660 0 100' "$(stat -c '%a %u %g' "$region")"
export VGPU_LIBRARY="$LIBRARY"
start live --name live --gpus 0 --memory 2G --group 100 sh -c 'rm "$CUDA_DEVICE_MEMORY_SHARED_CACHE"; exec "$0" "$1"' \
    "$STEERED" "$root/seen"
wait_for "$root/seen"
same 'made by a program' '660 0 100' "$(stat -c '%a %u %g' "$state/live/region")"
started="$started $(cat "/proc/$pid/task/$pid/children")"

# A program of another user in the slice: refused, or in it.
start foreign --name foreign --gpus 0 --memory 2G --group 100 \
    setpriv --reuid nobody --regid 101 --clear-groups env VGPU_SIM_STATE="$root/all/sim" "$STEERED" "$root/all/foreign"
wait "$pid"
grep -q 'permission denied' "$root/foreign.err" || fail "a stranger is not refused: $(cat "$root/foreign.err")"
[ ! -e "$root/all/foreign" ] || fail 'a stranger has CUDA'
start mate --name mate --gpus 0 --memory 2G --group 100 \
    setpriv --reuid nobody --regid 100 --clear-groups env VGPU_SIM_STATE="$root/all/sim" "$STEERED" "$root/all/mate"
wait_for "$root/all/mate"
started="$started $(cat "/proc/$pid/task/$pid/children")"

# -- other users' slices: in a directory of their own --
mkdir -m 700 "$root/user" && chown nobody "$root/user"
VGPU_STATE=$root/user/state VGPU_SIM_STATE=$root/user/sim as 100 "$VGPU" run --name own --memory 1G \
    sh -c 'stat -c %a "$VGPU_POLICY/../.." "$VGPU_POLICY/.."; cat "$VGPU_POLICY/slice"' >"$out" 2>"$err"
same "a user's slice" "700
700
region = $root/user/state/own/region
name = own" "$(cat "$out")"
VGPU_STATE=$root/user/state VGPU_SIM_STATE=$root/user/sim as 100 "$VGPU" run --group 100 --memory 1G true 2>"$err"
same 'the status of --group of a user' 2 "$?"
grep -q 'for slices of root' "$err" || fail 'it is not told why'
