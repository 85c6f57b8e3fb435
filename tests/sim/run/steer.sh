#!/bin/sh
# vgpu set, pause, resume and rm.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/steer_lib.sh"
: "${STEERED:?}" "${LIBRARY:?}" # from CMakeLists.txt

# -- set --
wrong 2 'no slice to set' set --memory 1G
wrong 2 'one slice at a time' set --memory 1G a b
wrong 2 'nothing to set' set web
wrong 125 'there is no slice "web"' set web --memory 1G

make_slice web --memory 8G --cores 30
vgpu 0 set web --memory 6G
prints 'web: GPU 0: memory 6 GiB, cores 30 %' 'web: GPU 1: memory 6 GiB, cores 30 %'
same 'the policy' 'memory = 6G
cores = 30' "$(cat "$state/web/policy/$uuid0")"
vgpu 0 set --cores 50,60 --memory 6G,7G web
prints 'web: GPU 0: memory 6 GiB, cores 50 %' 'web: GPU 1: memory 7 GiB, cores 60 %'
vgpu 0 set we --gpus 1 --memory none
prints 'web: GPU 1: memory no limit, cores 60 %'
same 'the policy' 'memory = unlimited
cores = 60' "$(cat "$state/web/policy/$uuid1")"
vgpu 0 inspect "$region"
grep -q "$uuid0 .* 6 GiB .*50 %" "$out" || fail 'the region is not told of GPU 0'
grep -q "$uuid1 .* none .*60 %" "$out" || fail 'the region is not told of GPU 1'
vgpu 0 set "$region" --cores none --gpus "$uuid0"
prints 'web: GPU 0: memory 6 GiB, cores no limit'
expect 0 --name web sh -c 'cat "$VGPU_POLICY"/GPU-*'
same 'who joins finds' 'memory = 6G
memory = unlimited
cores = 60' "$(cat "$out")"

wrong 2 'is no size' set web --memory lots
wrong 2 "is no share of a GPU's time" set web --cores 101
wrong 125 'write one for each, or one for all' set web --memory 1G,2G,3G
wrong 125 'is more than GPU 0 has' set web --memory 81G
wrong 125 'there is no GPU 7' set web --gpus 7 --memory 1G
make_slice one --gpus 1 --memory 4G
wrong 125 'GPU 0 is not in the slice one' set one --gpus 0 --memory 1G
same 'its policy' 'memory = 4G' "$(cat "$state/one/policy/$uuid1")"

# Bursts.
wrong 2 '--burst "25" is no time that a slice may save: write 0 to 1s, such as 25ms, or default' set one --burst 25
wrong 2 'is no time that a slice may save' set one --burst 1.5s
wrong 2 'is no time that a slice may save' set one --burst 25ms,
wrong 125 'has 2 times' set one --burst 25ms,0
vgpu 0 set one --burst 25ms
prints 'one: GPU 1: memory 4 GiB, cores no limit, burst 25ms'
same 'its policy' 'memory = 4G
burst = 25ms' "$(cat "$state/one/policy/$uuid1")"
vgpu 0 inspect one
grep -q "$uuid1 .* 4 GiB .*25ms" "$out" || fail 'the region is not told of the burst'
vgpu 0 set one --burst 0
prints 'one: GPU 1: memory 4 GiB, cores no limit, burst 0'
same 'its policy' 'memory = 4G
burst = 0' "$(cat "$state/one/policy/$uuid1")"
vgpu 0 inspect one
grep -q "$uuid1 .* 4 GiB .* 0$" "$out" || fail 'inspect does not say that there is no burst'
vgpu 0 set one --burst default
prints 'one: GPU 1: memory 4 GiB, cores no limit'
same 'its policy' 'memory = 4G' "$(cat "$state/one/policy/$uuid1")"
vgpu 0 inspect one
grep -q "$uuid1 .* 4 GiB .* default$" "$out" || fail 'the region is not told of the default'

# Gangs.
wrong 2 '--gang ".some" does not say whether the slice is a gang: write yes or no' set one --gang .some
vgpu 0 set one --gang yes
prints 'one: gang yes'
same 'the policy' "region = $state/one/region
name = one$root_group
gang = yes" "$(cat "$state/one/policy/slice")"
vgpu 0 inspect one
grep -qx 'gang: yes' "$out" || fail 'inspect does not say what the policy says of gangs'
vgpu 0 set one --gang found
prints 'one: gang found'
same 'the policy' "region = $state/one/region
name = one$root_group" "$(cat "$state/one/policy/slice")"
vgpu 0 set one --gang train-8
prints 'one: gang train-8'
vgpu 0 inspect one
grep -qx 'gang: train-8' "$out" || fail 'inspect does not say the name of the gang'
vgpu 0 set one --gang no --memory 5G
prints 'one: GPU 1: memory 5 GiB, cores no limit' 'one: gang no'
vgpu 0 set one --memory 4G
same 'the policy' "region = $state/one/region
name = one$root_group
gang = no" "$(cat "$state/one/policy/slice")"

# Below what is held.
member held one 3221225472
vgpu 0 set one --memory 2G
prints 'one: GPU 1: memory 2 GiB, cores no limit; it holds 3 GiB: no new memory until that fits'

# A container of HAMi's: what its region says.
export VGPU_HAMI="$root/hami"
mkdir -p "$root/hami/containers/pod-1_train"
cp "$state/one/region" "$root/hami/containers/pod-1_train/$uuid1.cache"
vgpu 0 set pod-1_train --memory 5G --cores 40
prints 'pod-1_train: GPU 1: memory 5 GiB, cores 40 %; no process is in it, and limits of the next one replace these'
vgpu 0 set pod-1_train --burst 0.1s
prints 'pod-1_train: GPU 1: memory 5 GiB, cores 40 %, burst 100ms; no process is in it, and limits of the next one replace these'
wrong 125 'the slice pod-1_train has no policy here' set pod-1_train --gang yes
vgpu 0 inspect "$root/hami/containers/pod-1_train/$uuid1.cache" || :
grep -q "$uuid1 .* 5 GiB .*40 %.*100ms" "$out" || fail 'the container is not told'

# -- rm --
wrong 2 'no slice to remove' rm
wrong 2 'names and --all at once' rm --all web
wrong 125 'there is no slice "nobody"' rm nobody
wrong 125 'the slice web is not removed: a vgpu run has it: end its command first, or use vgpu rm --force' rm web
vgpu 0 rm pod-1_train
prints 'pod-1_train: removed'
[ ! -e "$root/hami/containers/pod-1_train/$uuid1.cache" ] || fail 'the region is still there'
kill -9 "$holder" "$sleeper"
wait_gone "$holder"
wrong 125 'the slice one is not removed: processes are in it: end them first, or use vgpu rm --force' rm one
kill -9 "$pid"
wait_gone "$pid"
vgpu 0 rm one
prints 'one: removed'
same 'what is left' web "$(slices)"
mkdir "$state/crumb"
vgpu 0 rm --all
same 'what is left' web "$(slices)"

# -- a program that runs --
export VGPU_LIBRARY="$LIBRARY"
export LIBCUDA_LOG_LEVEL=2
start live --name live --gpus 0 --memory 2G "$STEERED" "$root/seen"
unset LIBCUDA_LOG_LEVEL

# sees PATTERN: the program does, soon.
sees() {
    tries=0
    until grep -qx "$1" "$root/seen" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 1000 ] || fail "the program sees $(cat "$root/seen") and not $1: $(cat "$root/live.err")"
        sleep 0.05
    done
}

launches() {
    cut -d' ' -f2 "$root/seen"
}

# moves: it launches, soon.
moves() {
    before=$(launches)
    tries=0
    until [ "$(launches)" -gt "$before" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 1000 ] || fail 'the program does not go on'
        sleep 0.05
    done
}

sees '2048 .*'
vgpu 0 set live --memory 3G
sees '3072 .*'
same 'what the program says of its policy' \
    "vgpu: the policy $state/live/policy has changed, and holds from now on" \
    "$(grep "the policy $state" "$root/live.err")"
vgpu 0 set live --memory 1536M
sees '1536 .*'
moves
vgpu 0 pause live
prints 'live: 1 process paused'
sleep 0.3 # what was on its way
before=$(launches)
sleep 0.5
same 'what a paused program launches' "$before" "$(launches)"
vgpu 0 inspect "$state/live/region"
grep -q 'paused$' "$out" || fail 'inspect does not show it paused'

# Who comes later is paused, too.
"$VGPU" run --name live "$STEERED" "$root/later" >"$root/later.out" 2>"$root/later.err" &
later=$!
started="$started $later"
tries=0
until [ "$("$VGPU" inspect "$state/live/region" | grep -c 'paused$')" -eq 2 ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 500 ] || fail 'who comes later is not paused'
    sleep 0.05
done
sleep 0.3
[ ! -e "$root/later" ] || fail 'who comes later launches'
vgpu 0 resume live
prints 'live: 2 processes resumed'
moves
wait_for "$root/later"
started="$started $(cat "/proc/$pid/task/$pid/children" "/proc/$later/task/$later/children")"
wrong 125 'there is no slice "nobody"' pause nobody
wrong 2 'no slice to resume' resume
