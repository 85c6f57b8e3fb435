#!/bin/sh
# `vgpu top`: on a terminal, whatever happens to that, and without one.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"

make_slice aa --gpus 0 --memory 2G --cores 50
make_slice mm --gpus 1 --memory 2G
make_slice zz --gpus 1 --memory 4G
member in_zz zz 3221225472
in_zz=$pid
member in_aa aa 1073741824
in_aa=$pid
kill -9 "$in_aa" # so that it can be told from the other
wait_gone "$in_aa"

# Without a terminal.
refuse_ps 2 'draws on a terminal, and this is none: use --batch' top
refuse_ps 2 '--interval 0 is not valid' top --interval 0
refuse_ps 2 '--interval soon is not valid' top --interval soon
refuse_ps 2 '--interval 1e9 is not valid' top --interval 1e9
refuse_ps 2 '--count 0 is not valid' top --count 0 --batch
refuse_ps 2 '--all is of all slices' top --all aa --batch
refuse_ps 125 'there is no slice "nope"' top --batch nope
"$VGPU" top --batch --count 2 --interval 0.1 zz >"$out" 2>"$err"
same 'the status of --batch' 0 "$?"
sed 's/  */ /g' <"$out" >"$root/words"
same 'how many looks' 2 "$(grep -c '^zz 1 3 GiB 4 GiB 75 % ' "$root/words")"
no_line '^aa'
VGPU_STATE=$root/none "$VGPU" top --batch --count 1 >"$out" || fail 'fails without slices'
grep -qFx 'no slice is here' "$out" || fail "no slices: $(cat "$out")"
if [ -w /dev/full ]; then
    "$VGPU" top --batch >/dev/full 2>"$err"
    same 'the status on a full disk' 125 "$?"
fi

# Sorted by all keys; processes folded; help.
screen see zz \
    frame 'slices: 3, GPU 0 GiB simulated GPU 1 SLICE aa idle mm idle zz 3 GiB/4 running [ help (by name)' \
    type m frame 'SLICE zz aa mm (by memory)' \
    type n frame 'SLICE aa mm zz (by name)' \
    type c frame 'SLICE zz (by cores)' \
    type n type f frame 'SLICE aa mm zz (by name) show processes' \
    type f frame "SLICE zz $in_zz run_member fold processes" \
    type h see 'sort by the memory' \
    type '?' frame 'SLICE aa' \
    type q ended 0

# Slices that are assured too much, and how long slices wait where the window is wide.
make_slice more --gpus 1 --cores 80
make_slice most --gpus 1 --cores 70
screen size 30x200 see zz frame 'GPU 0 GPU 1 GPU 1: 2 slices are assured 150 % in all SLICE MEMORY CORES WAITS HISTORY STATE' \
    size 30x80 frame 'SLICE MEMORY CORES STATE' type q ended 0

# The containers of Kubernetes that use a slice stand below it, also where processes are folded.
made=$VGPU_KUBERNETES/policies/0123456789abcdef0123456789abcdef
mkdir -p "$made"
cp -r "$state/more/policy" "$made/policy"
printf 'lab/train-0/main\nlab/train-0/side\n' >"$made/pod"
screen see zz frame 'zz 0123 pod lab/train-0/main pod lab/train-0/side' type f frame '0123 pod lab/train-0/main (by name) show' \
    type f size 30x16 see 'lab/train-' type q ended 0
rm -r "$made"

# By the lowest pid: zz has that, unless pids began anew meanwhile.
order='zz aa'
[ "$in_aa" -gt "$in_zz" ] || order='aa zz'
screen see zz type p frame "SLICE $order mm (by pid)" type q ended 0

# In UTF-8, blocks.
if LC_ALL=C.UTF-8 locale charmap 2>/dev/null | grep -q UTF-8; then
    member in_aa2 aa 4096
    LC_ALL=C.UTF-8 "$SCREEN" "$VGPU" top --interval 0.1 -- see zz size 24x200 see "$(printf '\342\226\201')" \
        type q ended 0 2>"$err" || fail 'no blocks'
    kill -9 "$pid"
fi
