#!/bin/sh
# A second `vgpu run` of a slice that lives.
. "$(dirname "$0")/lib.sh"

# hold NAME ARGUMENT...: a slice that lives until the file $root/NAME.end is there.
hold() {
    name=$1
    shift
    start "$name" --name "$name" "$@" sh -c \
        'touch "$0.ready"; until [ -e "$0.end" ]; do sleep 0.1; done' "$root/$name"
    wait_for "$root/$name.ready"
}

hold x --gpus 1 --memory 4G
first=$pid
policy='cat "$VGPU_POLICY/GPU-"* && ls "$VGPU_POLICY"'

expect 0 --name x sh -c "$policy"
same 'what the second sees' "memory = 4G
$uuid1
slice" "$(cat "$out")"
expect 0 --name x --memory 4096m true
expect 0 --name x --gpus $uuid1 true
expect 0 --name x --gpus 1 --memory 4G true
expect 0 --name x printenv CUDA_VISIBLE_DEVICES
same 'its GPUs' "$uuid1" "$(cat "$out")"

has='the slice x lives already and has GPU 1 with 4 GiB: to join it, leave --memory, --cores, --burst, --gpus, --oversubscribe, --gang, --group and --unlimited out'
refuse 125 "$has" --name x --memory 5G true
refuse 125 "$has" --name x --gpus 0 true
refuse 125 "$has" --name x --gpus 0,1 true
refuse 125 "$has" --name x --gpus all true
refuse 125 "$has" --name x --gpus 1 --memory 4095m true
refuse 125 "$has" --name x --oversubscribe true
refuse 125 "$has" --name x --unlimited true
refuse 125 "$has" --name x --gang no true

# One more than one: the slice is there until the last has ended.
hold_again() {
    start again --name x sh -c \
        'touch "$0.ready"; until [ -e "$0.end" ]; do sleep 0.1; done; ls "$VGPU_POLICY"' \
        "$root/again"
    wait_for "$root/again.ready"
}
hold_again
touch "$root/x.end"
wait "$first" || fail 'the first does not end well'
same 'what is left' x "$(slices)"
touch "$root/again.end"
wait "$pid" || fail 'the second does not end well'
same 'what the second saw at last' "$uuid1
slice" "$(cat "$root/again.out")"
same 'what is left' '' "$(slices)"

# It has ended: the name is free for another.
hold y --unlimited --gpus 0
refuse 125 'the slice y lives already and has GPU 0 without a memory limit' \
    --name y --memory 1G true
touch "$root/y.end"
wait "$pid"
expect 0 --unlimited --name y --gpus 1 sh -c "$policy"
same 'the new one' "memory = unlimited
$uuid1
slice" "$(cat "$out")"

hold both --memory 2G,3G
expect 0 --name both --memory 2G,3G true
refuse 125 'has GPU 0 with 2 GiB, GPU 1 with 3 GiB' --name both --gpus 0 true
refuse 125 'has GPU 0 with 2 GiB, GPU 1 with 3 GiB' --name both --memory 2G true
touch "$root/both.end"
wait "$pid"

hold shares --memory 2G --cores 30,60
expect 0 --name shares --cores 30,60 sh -c 'cat "$VGPU_POLICY/'$uuid1'"'
same 'what GPU 1 has' 'memory = 2G
cores = 60' "$(cat "$out")"
expect 0 --name shares --memory 2G true
refuse 125 'has GPU 0 with 2 GiB and 30 % of its time, GPU 1 with 2 GiB and 60 % of its time' \
    --name shares --cores 30 true
refuse 125 "has 3 shares, and the number of the slice's GPUs is 2" --cores 1,2,3 true
touch "$root/shares.end"
wait "$pid"

hold job --unlimited --gpus 0 --gang yes
expect 0 --name job true
expect 0 --name job --gang yes true
refuse 125 'has GPU 0 without a memory limit, with --gang yes: to join it' --name job --gang no true
touch "$root/job.end"
wait "$pid"

hold bursts --cores 30 --gpus 0 --burst 50ms
expect 0 --name bursts true
expect 0 --name bursts --burst 50ms true
refuse 125 'has GPU 0 without a memory limit and 30 % of its time (--burst 50ms): to join it' --name bursts --burst 0 true
refuse 125 'has GPU 0 without a memory limit and 30 % of its time (--burst 50ms): to join it' --name bursts --burst default true
touch "$root/bursts.end"
wait "$pid"

hold ranks --unlimited --gpus 0 --gang train-8
expect 0 --name ranks --gang train-8 true
refuse 125 'with --gang train-8: to join it' --name ranks --gang train true
refuse 125 'with --gang train-8: to join it' --name ranks --gang found true
touch "$root/ranks.end"
wait "$pid"

# Without a name nobody joins, even where the name is taken.
hold z --unlimited
expect 0 --unlimited sh -c 'echo $PPID; echo "$VGPU_POLICY"'
mine=$(head -n 1 "$out")
same 'its own slice' "$state/run-$mine/policy" "$(tail -n 1 "$out")"
touch "$root/z.end"
wait "$pid"
cat >"$root/taken" <<'EOF'
"$VGPU" run --unlimited --name "run-$$" sh -c \
    'touch "$0.ready"; until [ -e "$0.end" ]; do sleep 0.1; done' "$1" &
until [ -e "$1.ready" ]; do sleep 0.1; done
echo "$$"
exec "$VGPU" run --unlimited sh -c 'echo "$VGPU_POLICY"; touch "$0.end"' "$1"
EOF
sh "$root/taken" "$root/w" >"$out"
same 'its own slice' "$state/run-$(head -n 1 "$out")-2/policy" "$(tail -n 1 "$out")"
wait_for_none
expect 0 --unlimited true
same 'what is left' '' "$(slices)"
