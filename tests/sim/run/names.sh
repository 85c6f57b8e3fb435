#!/bin/sh
# A slice's name: which slice it leads to, and what is said where there is none.
. "$(dirname "$0")/lib.sh"
export VGPU_TURNS="$root/turns" # so that none are made in /run

refuse 2 'a new slice wants a limit: give --memory or --cores, or --unlimited' hog
refuse 2 'a new slice wants a limit' --gpus 0 hog
refuse 2 'a new slice wants a limit' --oversubscribe hog
refuse 2 'limit nothing here' --memory none true
refuse 2 'limit nothing here' --name x --memory none,none --cores none true
refuse 2 '--unlimited is for a slice without limits' --unlimited --memory 1G true
expect 0 --unlimited --memory none sh -c 'cat "$VGPU_POLICY"/GPU-*'
same 'an unlimited policy' 'memory = unlimited
memory = unlimited' "$(cat "$out")"
expect 0 --memory 1G,none sh -c 'cat "$VGPU_POLICY"/GPU-*'
same 'a limit for one of two' 'memory = 1G
memory = unlimited' "$(cat "$out")"
refuse 125 'there is no slice "lab": give --memory or --cores for a new one, or --unlimited for one without limits. This user has no slice' \
    --name lab true
refuse 125 'there is no slice "lab"' --name lab --gpus 0 true
refuse 2 '--name "--memory" is no name' --name --memory 1G
refuse 2 '--name "a\x1b[2Jb" is no name' --name "$(printf 'a\033[2Jb')" true
refuse 2 '--name "-x" is no name' --name -x true
same 'what is left' '' "$(slices)"

# hold NAME ARGUMENT...: a slice that lives until the file $root/NAME.end is there.
hold() {
    name=$1
    shift
    start "$name" --name "$name" "$@" sh -c \
        'touch "$0.ready"; until [ -e "$0.end" ]; do sleep 0.1; done' "$root/$name"
    wait_for "$root/$name.ready"
}
hold lab --memory 1G
hold training --memory 2G
expect 0 --name lab true
expect 0 --name lab --gpus 0,1 true
refuse 125 'there is no slice "lba" (did you mean "lab"?)' --name lba true
grep -q "This user's slices: lab, training\$" "$err" || fail 'the slices are not listed'
for name in la lab2 bab lb; do
    refuse 125 "there is no slice \"$name\" (did you mean \"lab\"?)" --name $name true
done
for name in train trainnig traning; do
    refuse 125 "there is no slice \"$name\" (did you mean \"training\"?)" --name $name true
done
for name in web l x; do
    refuse 125 "there is no slice \"$name\"" --name $name true
done
refuse 125 'there is no slice "web": give' --name web true
same 'what lives' 'lab training' "$(slices)"
touch "$root/training.end" "$root/lab.end"
wait_for_none
mkdir -p "$state/dead/policy" && touch "$state/dead/lock"
refuse 125 'there is no slice "dead": give' --name dead true
same 'what is left' '' "$(slices)"

# Other users' slices, and one's own from another session.
[ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || exit 0
uid=$(id -u nobody)
setpriv --reuid "$uid" --clear-groups test -x "$VGPU" || exit 0
[ ! -e "/tmp/vgpu-$uid" ] && [ ! -e "/run/user/$uid" ] || exit 0
unset VGPU_STATE XDG_RUNTIME_DIR
chmod 755 "$root"
mkdir -m 700 "$root/user" && chown nobody "$root/user"
as_nobody() {
    VGPU_SIM_STATE=$root/user/sim setpriv --reuid "$uid" --clear-groups "$VGPU" run "$@" 2>"$err"
}
name=names-$$ # root's state directory is this machine's
as_nobody --name $name --memory 1G sh -c \
    'touch "$0/ready"; while [ -e "$0/ready" ] && [ ! -e "$0/end" ]; do sleep 0.1; done' "$root/user" &
started="$started $!"
wait_for "$root/user/ready"
same 'a slice of another session' "/tmp/vgpu-$uid/$name/policy" \
    "$(XDG_RUNTIME_DIR=$root/user as_nobody --name $name sh -c 'echo $VGPU_POLICY')"
same 'the same, with its limit' "/tmp/vgpu-$uid/$name/policy" \
    "$(XDG_RUNTIME_DIR=$root/user as_nobody --name $name --memory 1G sh -c 'echo $VGPU_POLICY')"
XDG_RUNTIME_DIR=$root/user as_nobody --name "${name}x" true
same 'the status of another name' 125 "$?"
grep -q "did you mean \"$name\"" "$err" || fail 'the slice of another session is not suggested'
refuse 125 "the slice $name is the user nobody's, and only that user's vgpu run joins it" --name $name true
# A leftover there is swept from here.
touch "$root/user/end"
wait
mkdir -p "/tmp/vgpu-$uid/left/policy" && touch "/tmp/vgpu-$uid/left/lock"
chown -R nobody "/tmp/vgpu-$uid"
XDG_RUNTIME_DIR=$root/user as_nobody --memory 1G true || fail 'the next run'
[ ! -e "/tmp/vgpu-$uid/left" ] || fail 'a leftover of another session is not swept'
rmdir "/tmp/vgpu-$uid"

# Root's are seen by all, and joined by root alone.
[ ! -e "/run/vgpu/$name" ] || exit 0
rm -f "$root/ready"
"$VGPU" run --name $name --memory 1G sh -c \
    'touch "$0/ready"; while [ -e "$0/ready" ] && [ ! -e "$0/end" ]; do sleep 0.1; done' "$root" &
started="$started $!"
wait_for "$root/ready"
as_nobody --name $name true
same "the status of joining root's" 125 "$?"
grep -q "the slice $name is the user root's" "$err" || fail "root's slice is not named as such"
as_nobody --name $name --memory 1G true || fail 'a slice of its own of that name'
touch "$root/end"
wait
rmdir "/tmp/vgpu-$uid" /run/vgpu 2>/dev/null
exit 0
