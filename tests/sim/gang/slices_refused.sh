#!/bin/sh
# slices_refused.sh: a gang that cannot be joined. One line on stderr says why, and the slice is
# throttled by itself. And what vgpu set does to a slice that runs.
set -u
: "${VGPU:?}" "${RANKS:?}"
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
unset CUDA_VISIBLE_DEVICES LD_PRELOAD VGPU_POLICY VGPU_GANGS VGPU_TURNS CUDA_DEVICE_MEMORY_SHARED_CACHE
export VGPU_SIM_STATE="$root/sim" VGPU_SIM_GPUS=2x80G VGPU_STATE="$root/state"
gang=$root/state/gangs/train-8

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# refused WORDS: two ranks in one slice of that gang say so, each once, and get half of the GPUs, not
# all.
refused() {
    "$VGPU" run --cores 50 --gang train-8 -- "$RANKS" --seconds 1 >"$root/out" 2>"$root/err" ||
        fail "exit status $?: $(cat "$root/err")"
    [ "$(grep -c '' "$root/err")" = 2 ] || fail "not one line for each rank: $(cat "$root/err")"
    [ "$(grep -cF "$1" "$root/err")" = 2 ] || fail "no \"$1\": $(cat "$root/err")"
    [ "$(grep -cF 'until then its slice is throttled by itself' "$root/err")" = 2 ] ||
        fail "nothing of the slice: $(cat "$root/err")"
    rate=$(sed -n 's/.*rate \([0-9.]*\).*/\1/p' "$root/out")
    echo "$1: $rate steps a second, of at most 833"
    awk "BEGIN { exit !($rate < 600) }" || fail 'not throttled'
}

(umask 077 && mkdir -p "$root/state/gangs")
: >"$gang" && chmod 666 "$gang"
refused "others may write the gang $gang: chmod it to 0600"
rm "$gang" && echo nothing >"$gang" && chmod 600 "$gang"
refused "$gang is no gang of vgpu: it holds something else; remove it"
rm "$gang" && ln -s "$root/elsewhere" "$gang"
refused "cannot join the gang $gang: it is a symbolic link; remove it"
[ ! -e "$root/elsewhere" ] || fail 'a link was followed'
rm "$gang"
if [ "$(id -u)" = 0 ]; then
    : >"$gang" && chmod 600 "$gang" && chown 12345 "$gang"
    refused "the gang $gang is user 12345's, and this program runs as user 0: remove it"
    rm "$gang"
fi
VGPU_GANGS="$root/missing" && export VGPU_GANGS
refused "cannot join the gang $root/missing/train-8: its directory is not there"
mkdir -m 700 "$root/missing"
"$VGPU" run --cores 50 --gang train-8 -- "$RANKS" --seconds 1 >"$root/out" 2>"$root/err" ||
    fail "exit status $?"
[ ! -s "$root/err" ] || fail "lines: $(cat "$root/err")"
[ -s "$root/missing/train-8" ] || fail 'VGPU_GANGS is not where the gang is'
unset VGPU_GANGS

# A slice gets a gang while it runs, and lives on without its directory.
"$VGPU" run --name live --cores 50 -- "$RANKS" --seconds 3 >"$root/out" 2>"$root/err" &
running=$!
tries=0
until "$VGPU" set live --gang later >"$root/set" 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || fail "set: $(cat "$root/set")"
    sleep 0.05
done
tries=0
until [ -s "$root/state/gangs/later" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || fail 'the slice has not joined the gang'
    sleep 0.05
done
wait "$running" || fail "exit status $?"
[ ! -s "$root/err" ] || fail "lines: $(cat "$root/err")"

"$VGPU" run --name gangs --cores 50 true 2>"$root/err"
[ $? = 2 ] || fail 'a slice may have the name of the directory of gangs'
grep -q 'and not "gangs"' "$root/err" || fail "$(cat "$root/err")"
"$VGPU" run --name turns --cores 50 true 2>"$root/err"
[ $? = 2 ] || fail 'a slice may have the name of the directory of turns'
"$VGPU" ps >"$root/out" 2>&1
grep -q gangs "$root/out" && fail "vgpu ps: $(cat "$root/out")"
[ -s "$root/state/gangs/later" ] || fail 'vgpu ps swept a gang away'
echo mine >"$root/state/gangs/mine"
"$VGPU" run --unlimited true || fail 'a slice cannot be made'
[ ! -e "$root/state/gangs/later" ] || fail 'a gang without processes is left'
[ -s "$root/state/gangs/mine" ] || fail 'a file that is no gang was removed'
exit 0
