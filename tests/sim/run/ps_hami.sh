#!/bin/sh
# `vgpu ps` on the containers of HAMi's device plugin: tenants write these files.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"

make_slice x --gpus 0 --memory 2G --cores 30
cp "$region" "$root/whole"
kill -9 "$holder" "$sleeper"
wait_gone "$holder"
wait_gone "$sleeper"
rm -r "$state/x"

# One container, with a process; its name is whole in a file, and cut in its middle on a terminal.
pod=6f1c3a2e-5b11-4f0e-9a47-2f6f1d0c8e55_trainer
container "$pod" "$root/whole"
CUDA_DEVICE_MEMORY_SHARED_CACHE=$cache "$MEMBER" "$root/one.ready" 1610612736 &
one=$!
started="$started $one"
wait_for "$root/one.ready"
ps 0
grep -q "^$pod 0 1.50 GiB 2 GiB 75 % 0 B 0 B 1.50 GiB [0-9]*/30 % [0-9]* % 1 running$" "$root/words" ||
    fail "no container: $(cat "$out")"
if command -v script >/dev/null; then
    export VGPU
    NO_COLOR=1 TERM=xterm COLUMNS=90 script -qc '"$VGPU" ps' /dev/null </dev/null >"$out"
    grep -q '^6f1c[^ ]*\.\.[^ ]*iner .* 1.50 GiB' "$out" || fail "not cut: $(cat "$out")"
    [ -z "$(tr -d '\r' <"$out" | grep '^6f1c' | cut -c 91-)" ] || fail "too wide: $(cat "$out")"
fi
ps 0 6f1c
grep -q "^$pod 0 " "$root/words" || fail "not found by its beginning: $(cat "$out")"

# Its pod: by its UID, until the kubelet's logs have an entry of a pod with good names and that UID, which is no link.
uid=${pod%_*}
pod_is() {
    ps 0
    line "pod $1"
    same 'how many lines of pods' "${2:-1}" "$(grep -c '^pod ' "$root/words")"
}
pod_is "$uid/trainer"
mkdir -p "$logs/lab_train-0_0${uid#?}" "$logs/$uid" "$logs/lab_$uid" "$logs/lab_a_b_$uid" "$logs/lab_odd ${uid}_$uid" "$logs/__$uid" \
    "$logs/$(printf 'lab_\033[2J_%s' "$uid")" "$logs/lab_train-0_$uid.old"
ln -s "lab_train-0_0${uid#?}" "$logs/lab_link_$uid"
: >"$logs/lab_file_$uid"
pod_is "$uid/trainer"
"$VGPU" ps --json >"$out" 2>"$err" || fail 'ps --json'
for member in '"namespace": *null' "\"pod\": *\"$uid\"" '"container": *"trainer"'; do
    grep -q "$member" "$out" || fail "no $member: $(cat "$out")"
done
mkdir "$logs/lab_train-0_$uid"
pod_is lab/train-0/trainer
grep -A 1 "^$pod 0 " "$root/words" | grep -qx 'pod lab/train-0/trainer' || fail 'the pod is of another slice'
"$VGPU" ps --json >"$out" 2>"$err" || fail 'ps --json'
for member in '"namespace": *"lab"' '"pod": *"train-0"' '"container": *"trainer"'; do
    grep -q "$member" "$out" || fail "no $member: $(cat "$out")"
done
"$VGPU" top --batch --count 1 >"$out" 2>"$err" || fail 'top'
grep -q '^  pod lab/train-0/trainer$' "$out" || fail "top has no pod: $(cat "$out")"

# A second container of the pod; directories whose names have no UID, or no name of Kubernetes, have no pod, and a link is no directory.
side=${uid}_side
container "$side" "$root/whole"
container "${uid}_a b" "$root/whole"
container "${uid}_" "$root/whole"
container "$(printf '%s_\033[2J' "$uid")" "$root/whole"
container "0${uid}_trainer" "$root/whole"
container 012345_trainer "$root/whole"
container "g${uid#?}_trainer" "$root/whole"
container "${uid}_$(printf '%64s' '' | tr ' ' a)" "$root/whole"
ln -s "$side" "$hami/containers/${uid}_link"
ps 0
line 'pod lab/train-0/trainer'
line 'pod lab/train-0/side'
same 'how many have a pod' 2 "$(grep -c '^pod ' "$root/words")"
no_line "^${uid}_link "

# A pod of a file of the kubelet's has a UID without dashes.
static=0123456789abcdef0123456789abcdef
container "${static}_main" "$root/whole"
mkdir "$logs/kube-system_gpu-node1_$static"
ps 0
line 'pod kube-system/gpu-node1/main'
for other in "$hami/containers/"*; do
    [ "$other" = "$hami/containers/$pod" ] || rm -r "$other"
done
cache=$hami/containers/$pod/$uuid0.cache

# In a pid namespace of its own: its pid here, and there.
if unshare --pid --fork --mount-proc true 2>/dev/null; then
    CUDA_DEVICE_MEMORY_SHARED_CACHE=$cache unshare --pid --fork --mount-proc "$MEMBER" "$root/two.ready" 4096 &
    started="$started $!"
    wait_for "$root/two.ready"
    two=$(cat "/proc/$!/task/$!/children")
    two=${two% }
    started="$started $two"
    COLUMNS=200 ps 0
    line "$two [1] run_member $root/two.ready 4096 0 4 KiB 0 B 0 B 4 KiB running"
    kill -9 "$two"
    wait_gone "$two"
    if [ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ]; then # all that lives is in sight
        # A process is dying until its last thread has ended.
        tries=0
        until VGPU_SIM_FAULTS=nvmlInit_v2=999 ps 0 && ! grep -q '^\[1\].* dying$' "$root/words"; do
            tries=$((tries + 1))
            [ "$tries" -lt 1000 ] || fail "it is still dying: $(cat "$out")"
            sleep 0.05
        done
        line '[1] GPU-51300000 4 KiB 0 B 0 B 4 KiB dead, may be held'
        ps 0
        no_line '^\[1\]'
    fi
fi

# A second region of the container, and both have their files' names; one that nobody uses yet; names that would write on a terminal.
cp "$root/whole" "$hami/containers/$pod/z.cache"
cp "$root/whole" "$hami/containers/$pod/$(printf 'a\n\033[31m').cache"
mkdir "$hami/containers/new_one" "$hami/containers/fifo_one"
: >"$hami/containers/new_one/new.cache"
mkfifo "$hami/containers/fifo_one/x.cache"
ps 0
line 'new_one empty'
no_line fifo
grep -q "^$pod/$uuid0.cache 0 1.50 GiB .* 1 running" "$root/words" || fail "no first region: $(cat "$out")"
same 'each region has the pod' 3 "$(grep -cx 'pod lab/train-0/trainer' "$root/words")"
line "$pod/z.cache 0 0 B 2 GiB 0 % 0 B 0 B 0 B -/30 % - empty"
line "$pod/a\x0a\x1b[31m.cache 0 0 B 2 GiB 0 % 0 B 0 B 0 B -/30 % - empty"
ps 0 --quiet
grep -qFx "$pod/a\x0a\x1b[31m.cache" "$out" || fail "names: $(cat "$out")"

# What cannot be read hides nothing else.
container noise "$root/whole"
head -c 2097152 /dev/urandom >"$cache"
container cut "$root/whole"
head -c 2008952 "$root/whole" >"$cache"
container newer "$root/whole"
put "$cache" "$at_version" '\11'
container full "$root/whole"
for slot in 0 1 2 1023; do
    put "$cache" $((at_slots + slot * 1960 + at_status)) '\1'
done
put "$cache" "$at_used" '\377\377\377\377\377\377\377\377'
put "$cache" $((at_slots + 8)) '\377\377\377\377\377\377\377\377'
put "$cache" $((at_slots + 1960 + 8)) '\377\377\377\377\377\377\377\377'
put "$cache" $((at_slots)) '\377\377\377\377'
put "$cache" "$at_slot_count" '\377\377\377\377'
put "$cache" "$at_device_count" '\377\377\377\377\377\377\377\377'
ps 1
line "noise $hami/containers/noise/$uuid0.cache is no region of vgpu: it holds something else; move it away, or name another path"
line "cut $hami/containers/cut/$uuid0.cache is no region of vgpu: HAMi-core made it; remove it when nothing uses it any more"
grep -q '^newer .* is of version 9 ' "$root/words" || fail "newer: $(cat "$out")"
line 'full 0 16777215.99 TiB 2 GiB 999 % 16777215.99 TiB 0 B 0 B -/30 % - empty, 2 dead'
grep -q "^$one run_member" "$root/words" || fail "the process is hidden: $(cat "$out")"

# Not even who truncates it all the time ends us.
container evil "$root/whole"
sh -c 'while :; do cp "$0" "$1"; : >"$1"; done' "$root/whole" "$cache" &
evil=$!
started="$started $evil"
for look in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    "$VGPU" ps evil >"$out" 2>&1
    status=$?
    [ "$status" -le 1 ] || fail "look $look: status $status: $(cat "$out")"
    grep -q '^evil ' "$out" || fail "look $look: no line: $(cat "$out")"
done
kill -9 "$evil"

# Many of them, each a region.
for i in 0 1 2 3 4 5 6 7 8 9; do
    mkdir "$hami/containers/many$i"
    for j in 0 1 2 3 4 5 6 7 8 9; do
        ln "$root/whole" "$hami/containers/many$i/$j.cache"
    done
done
"$VGPU" ps >"$out"
same 'how many of a hundred' 100 "$(grep -c '^many' "$out")"
