#!/bin/sh
# `vgpu trace`: what the pacers of a slice's processes decide, while they live and after.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
: "${SHARES:?}" "${LIBRARY:?}" "${STEERED:?}" # from CMakeLists.txt
export VGPU_HAMI="$root/hami"

# wrong STATUS WORDS ARGUMENT...: it ends with STATUS and one line on stderr that has WORDS.
wrong() {
    expected=$1 words=$2
    shift 2
    "$VGPU" trace "$@" >"$out" 2>"$err"
    status=$?
    [ "$status" -eq "$expected" ] || fail "trace $*: status $status instead of $expected"
    [ ! -s "$out" ] || fail "trace $*: prints on stdout"
    [ "$(grep -c '^vgpu: ' "$err")-$(wc -l <"$err")" = 1-1 ] || fail "trace $*: not one line"
    grep -qF -- "$words" "$err" || fail "trace $*: does not say \"$words\""
}

# until_printed PATTERN FILE: trace prints such a line into FILE, sooner or later.
until_printed() {
    tries=0
    until "$VGPU" trace t >"$2" 2>/dev/null && grep -q "$1" "$2"; do
        tries=$((tries + 1))
        [ "$tries" -lt 500 ] || fail "no line \"$1\" comes: $(tail -n 5 "$2")"
        sleep 0.1
    done
}

# decisions FILE: which there are, without their figures.
decisions() {
    sed -e 1d -e 's/^[^ ]* *[^ ]* *[^ ]* *[^ ]* *//' -e 's/ (.*//' "$1" | sort -u
}

wrong 2 'no slice' --json
wrong 2 'one slice at a time' a b
wrong 125 'no slice' nothing
make_slice t --gpus 0 --memory 2G --cores 30
wrong 1 'no process of the slice t writes a trace: start one with VGPU_TRACE=pace,memory,region' t

# Without the variable, or with another word in it, there is no file.
export VGPU_LIBRARY="$LIBRARY"
VGPU_TRACE=other "$VGPU" run --name t "$SHARES" --kernel=2000 --seconds=0.1 >/dev/null 2>"$err"
wrong 1 'no process of the slice t' t

# A program that wants all of the GPU.
VGPU_TRACE=pace
export VGPU_TRACE
start first --name t "$SHARES" --kernel=2000 --seconds=600
unset VGPU_TRACE
first=$pid
until_printed 'held launch admitted' "$out"
same 'the titles' 'time pid thread device decision' "$(head -n 1 "$out" | tr -s ' ')"
for decision in 'launch admitted and charged' 'launch held: the bucket is shut' 'the bucket shuts' \
    'the bucket opens' 'held launch admitted'; do
    decisions "$out" | grep -qFx "$decision" || fail "no line \"$decision\": $(decisions "$out")"
done
grep -q '^[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\.[0-9]\{6\}  *[0-9]*  *[0-9]*  *0  launch admitted and charged (cost [0-9.]* [mun]s, level -*[0-9.]* [mun]*s)$' "$out" ||
    fail "not as lines are: $(tail -n 5 "$out")"

# What is decided from now on is printed, too.
"$VGPU" trace --follow t >"$root/followed" 2>"$root/followed.err" &
follower=$!
started="$started $follower"
wait_for "$root/followed"
tries=0
until [ "$(wc -l <"$root/followed")" -gt 5000 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 3000 ] || fail "no more lines come: $(tail -n 5 "$root/followed")"
    sleep 0.1
done
kill "$follower"
wait "$follower" 2>/dev/null

# Killed, it has left what it decided.
child=$(tr -d ' ' <"/proc/$first/task/$first/children")
kill -9 "$child"
wait "$first"
"$VGPU" trace t >"$out" 2>"$err" || fail 'a trace of the dead is not printed'
[ ! -s "$err" ] || fail 'not silent'
[ "$(wc -l <"$out")" -gt 4000 ] || fail 'there is little of it'
cut -c 16- "$out" >"$root/dead" # but for the time of day, which is as each look finds it

# What is no trace is passed over.
file=$(echo "$state"/t/region.trace.*)
: >"$state/t/region.trace.13"
head -c 200000 /dev/urandom >"$state/t/region.trace.14"
ln -s "${file##*/}" "$state/t/region.trace.15"
mkfifo "$state/t/region.trace.16"
cp "$file" "$state/t/region.trace.x"
head -c 100000 "$file" >"$state/t/region.trace.17"
"$VGPU" trace t >"$out" 2>"$err" || fail 'a trace is not printed beside what is none'
same 'the second look' '' "$(cut -c 16- "$out" | diff "$root/dead" -)"
rm "$file"
wrong 125 'cannot be read' t
timeout 30 "$VGPU" trace --follow t >"$out" 2>"$err"
same 'the status of --follow where no trace can be read' 125 "$?"
grep -q 'cannot be read' "$err" || fail "--follow does not say that no trace can be read: $(cat "$err")"
[ ! -s "$out" ] || fail "--follow prints on stdout: $(cat "$out")"
rm "$state/t"/region.trace.*

# A program's memory, and what it sees of the slice; and another's, which has too little of it.
entries() {
    "$VGPU" trace t >"$root/entries" 2>"$err" || fail 'a trace is not printed'
    sed -e 1d -e 's/^[^ ]* *[^ ]* *[^ ]* *[^ ]* *//' "$root/entries"
}
# has PATTERN: there is such an entry, by now.
has() {
    entries | grep -q "^$1$" || fail "no entry \"$1\": $(entries)"
}
VGPU_TRACE=memory,region
export VGPU_TRACE
start second --name t "$STEERED" "$root/told"
wait_for "$root/told"
child=$(tr -d ' ' <"/proc/$pid/task/$pid/children")
started="$started $child"
has 'the process joins the slice (slot [0-9]*, living 1)'
has 'memory is charged (cuDevicePrimaryCtxRetain, context, 1 GiB, used 1 GiB, limit 2 GiB)'
has 'memory is charged (cuMemAlloc_v2, data, 2 MiB, used [0-9.]* MiB, limit 2 GiB)'
has 'allocation made (cuMemAlloc_v2, 4 KiB, charged 2 MiB)'
"$VGPU" set t --memory 300M >"$out" 2>"$err" || fail 'the limit is not changed'
vgpu_run --name t "$STEERED" "$root/told.2"
[ "$status" -ne 0 ] || fail 'a context fits into nothing'
has 'the memory limit changes ([a-zA-Z0-9_]*, before 2 GiB, limit 300 MiB)'
has 'call refused (cuDevicePrimaryCtxRetain, [0-9.]* MiB, used [0-9.]* MiB, limit 300 MiB, why: quota)'
kill -9 "$child"
wait "$pid"

# All of it goes with the slice.
kill "$sleeper"
wait_for_none
