#!/bin/sh
# `vgpu trace --json`: one document, with the members that vgpu-trace(1) names.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/json_lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
: "${SHARES:?}" "${LIBRARY:?}" # from CMakeLists.txt
export VGPU_HAMI="$root/hami"

make_slice t --gpus 1 --memory 2G --cores 30
export VGPU_LIBRARY="$LIBRARY"

# Two processes of the slice, one after the other, and what the slice says of them: a process that
# ends leaves its slot to the next, so the second takes it while the first still lives.
VGPU_TRACE=pace
export VGPU_TRACE
start one --name t "$SHARES" --kernel=2000 --seconds=600
one=$pid
wait_for "$state/t/region.trace.0"
start two --name t "$SHARES" --kernel=2000 --seconds=600
two=$pid
wait_for "$state/t/region.trace.1"
unset VGPU_TRACE

# both_held: whether the document in $out has launches of both that were held.
both_held() {
    [ "$(found 'sorted(set(i["slot"] for i in d["decisions"] if i["decision"] == "released"))')" = '[0, 1]' ]
}
tries=0
json trace --json t
until [ "$status" -eq 0 ] && both_held; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || fail 'no launches of both processes were held'
    sleep 0.1
    json trace --json t
done
for pid in $one $two; do
    kill -9 "$(tr -d ' ' <"/proc/$pid/task/$pid/children")"
    wait "$pid"
done
json trace --json t
same 'the status' 0 "$status"
prepare='
p, e = d["processes"], d["decisions"]
times = [i["time_ns"] for i in e]'
same 'the document' '["processes", "decisions"]
["slot", "pid", "written", "lost"]
[0, 1]
true
true
true
true
true
[0]' "$(found 'list(d)' 'list(p[0])' 'sorted(i["slot"] for i in p)' \
    'times == sorted(times)' \
    'set((i["slot"], i["pid"]) for i in e) == set((i["slot"], i["pid"]) for i in p)' \
    'all(i["written"] - i["lost"] == sum(1 for j in e if j["slot"] == i["slot"]) for i in p)' \
    'all(i["decision"] for i in e)' \
    'abs(e[-1]["unix_ns"] / 1e9 - __import__("time").time()) < 600' \
    'sorted(set(i["device"] for i in e))')"
same 'figures' '["time_ns", "unix_ns", "slot", "pid", "thread", "device", "subject", "decision", "cost_ns", "level_ns"]
true
true' "$(found 'list([i for i in e if i["decision"] == "charged"][0])' \
    'all(isinstance(i["level_ns"], int) and i["wait_ns"] >= 0 for i in e if i["decision"] == "held-shut")' \
    'all(i["held_ns"] > 0 for i in e if i["decision"] == "released")')"

# With --follow, each is a document on its own, until the slice is gone.
"$VGPU" trace --follow --json t >"$root/followed" 2>"$err" &
follower=$!
started="$started $follower"
wait_for "$root/followed"
tries=0
until [ -s "$root/followed" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 500 ] || fail 'nothing is printed'
    sleep 0.1
done
kill "$sleeper"
wait "$follower"
same 'the status of --follow' 0 $?
same 'how much is printed' "$(found 'len(e)')" "$(wc -l <"$root/followed")"
prepare="
def read(line):
    read = json.loads(line)
    del read['unix_ns'] # as each look finds it
    return read
followed = [read(i) for i in open('$root/followed')]
all = [read(json.dumps(i)) for i in d['decisions']]"
same 'the same' true "$(found 'followed == all')"
