#!/bin/sh
# Command lines that are wrong, each with its line; and help.
. "$(dirname "$0")/lib.sh"

refuse 2 'no command to run'
refuse 2 'no command to run' --memory 1G
refuse 2 'no command to run' --
refuse 2 '--cpus is no option of vgpu run' --cpus 50 true
refuse 2 '--nonsense is no option of vgpu run' --nonsense true
refuse 2 '-x is no option of vgpu run' -x true
refuse 2 '-M is no option of vgpu run' -M 1G true
refuse 2 '--memory needs a value' --memory
refuse 2 '--gpus needs a value' --name x --gpus
refuse 2 '--help takes no value' --help=run
refuse 2 '--oversubscribe takes no value' --oversubscribe=yes true

for size in '' 8gigs -1 '1G,,' '1G,x' '1 G 2' 99999999999999999999; do
    refuse 2 'is no size: write bytes or a number with k, m, g or t' --memory "$size" true
done
refuse 2 '--memory "8gigs" is no size' --memory 8gigs true
refuse 2 '--memory 2097151 is too little: give at least 2m, the unit in which the driver takes memory' --memory 2097151 true
refuse 2 '--memory 0 is too little' --memory 1G,0 true
refuse 125 "--memory 1G,2G,3G has 3 sizes, and the number of the slice's GPUs is 2: write one" \
    --memory 1G,2G,3G true
refuse 125 "number of the slice's GPUs is 1: write one for each" --gpus 1 --memory 1G,2G true
refuse 125 'is more than GPU 1 has, which is 80 GiB (81920m)' --memory 1G,81G true
refuse 125 'is more than GPU 0 has, which is 80 GiB (81920m)' --memory 85899345921 true

refuse 125 'there is no GPU 2: this machine has 2' --unlimited --gpus 2 true
refuse 2 '"1x" names no GPU: write an index' --gpus 1x true
refuse 125 'there is no GPU "first"' --unlimited --gpus first true
refuse 2 '"all" names no GPU' --gpus 0,all true
refuse 125 'there is no GPU "GPU-52"' --unlimited --gpus GPU-52 true
refuse 125 '2 GPUs have a UUID that starts with GPU-513' --unlimited --gpus GPU-513 true
refuse 125 "GPU 0 ($uuid0) is listed twice" --unlimited --gpus 0,1,0 true
refuse 125 "GPU 1 ($uuid1) is listed twice" --unlimited --gpus "1,$uuid1" true
refuse 2 'is empty' --gpus '' true
refuse 2 'is empty' --gpus 0, true
refuse 2 'is empty' --gpus ,0 true
refuse 2 'is too long' --gpus "GPU-$(printf '%0100d' 0)" true

for name in '' .x a/b .. 'a b' "$(printf '%064d' 0)"; do
    refuse 2 'is no name for a slice' --name "$name" true
done
expect 0 --unlimited --name "$(printf '%063d' 0)" true
expect 0 --unlimited --name A-z_0.9 true

# Nothing was made for those that were refused.
same 'what is left' '' "$(slices)"

VGPU_POLICY=/x refuse 125 'slices do not nest' --unlimited true
# A slice is not left by an empty VGPU_POLICY alone.
expect 125 --memory 1G sh -c 'VGPU_POLICY= "$VGPU" run --memory 2G true 2>"$0"' "$err.inner"
grep -q "LD_PRELOAD has vgpu's library), and slices do not nest" "$err.inner" || fail 'a slice in a slice'
if ! ldconfig -p 2>/dev/null | grep -q libnvidia-ml.so.1; then # not on a machine that has one
    (
        LD_LIBRARY_PATH=/nonexistent
        export LD_LIBRARY_PATH
        refuse 125 'no NVIDIA driver here: libnvidia-ml.so.1 was not found' --unlimited true
    ) || exit 1
fi

vgpu_run --help
same 'the status of --help' 0 "$status"
grep -q '^Usage: vgpu run ' "$out" || fail 'run --help has no usage'
grep -q '  126 *COMMAND could not be run' "$out" || fail 'run --help has no exit statuses'
"$VGPU" help run | cmp -s - "$out" || fail '"help run" is not "run --help"'

"$VGPU" --help >"$out" || fail '--help'
grep -q '^  run  ' "$out" || fail '--help does not list run'
"$VGPU" help | cmp -s - "$out" || fail '"help" is not --help'
"$VGPU" --version | grep -Eqx 'vgpu [0-9]+\.[0-9]+\.[0-9]+' || fail '--version'

# other STATUS WORDS ARGUMENT...: not of run.
other() {
    expected=$1 words=$2
    shift 2
    "$VGPU" "$@" >"$out" 2>"$err"
    same "the status of vgpu $*" "$expected" "$?"
    [ ! -s "$out" ] || fail "vgpu $*: prints on stdout"
    grep -qF -- "$words" "$err" || fail "vgpu $*: does not say \"$words\""
}
other 2 'Usage: vgpu COMMAND'
other 2 'there is no command "walk": vgpu --help lists those there are' walk
other 2 'there is no command "walk"' help walk
other 2 'there is no command "--walk"' --walk

for share in '' 0 0% 101 100.5 30%% -1 '30.' '30,' 'x,30'; do
    refuse 2 "is no share of a GPU's time: write a percentage from 1 to 100" --cores "$share" true
done
refuse 2 '--cores needs a value' --cores

for time in '' 25 25m 1.1s -1ms '25ms,' ',25ms' none; do
    refuse 2 "is no time that a slice may save: write 0 to 1s, such as 25ms, or default" \
        --burst "$time" --memory 1G true
done
refuse 2 '--burst needs a value' --memory 1G --burst
refuse 2 'a new slice wants a limit' --burst 25ms true

for word in '' .train 'two words' true Found YES; do
    refuse 2 "--gang \"$word\" does not say whether the slice is a gang: write yes or no" \
        --gang "$word" --memory 1G true
done
refuse 2 '--gang needs a value' --memory 1G --gang
refuse 2 'a new slice wants a limit' --gang yes true
