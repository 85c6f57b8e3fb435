#!/bin/sh
# Command lines: letters, bundles, attached values, aliases, --help, and the status of what is wrong.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/steer_lib.sh"
export VGPU_HAMI="$root/hami"

vgpu 0 -V
version=$(cat "$out")
vgpu 0 --version
prints "$version"
expr "$version" : 'vgpu [0-9]' >/dev/null || fail "the version is \"$version\""
vgpu 0 -h
cp "$out" "$root/help"
vgpu 0 --help
prints "$(cat "$root/help")"
grep -q '^  ps, ls ' "$out" || fail 'help lacks ls'

for command in run ps ls top set pause resume rm inspect doctor; do
    vgpu 0 help "$command"
    cp "$out" "$root/help"
    vgpu 0 "$command" -h
    prints "$(cat "$root/help")"
    for part in '^Exit status:' '^Examples:' '^  vgpu ' '^  2     the command line is wrong' '^  125   vgpu .*failed' \
        '^  -h, --help' '^vgpu-[a-z]*(1) says more'; do
        grep -q "$part" "$out" || fail "vgpu $command --help has no $part"
    done
    [ "$(awk 'length > 80' "$out" | grep -vc '^  vgpu ')" -eq 0 ] || fail "vgpu $command --help is wide"
    wrong 2 "-X is no option of vgpu" "$command" -X
    wrong 2 "--nothing is no option of vgpu" "$command" --nothing
    wrong 2 '--help takes no value' "$command" --help=now
done

# Letters.
expect 0 -m8G -c 30 -g0 -nweb sh -c 'cat "$VGPU_POLICY"/GPU-*'
same 'the policy' 'memory = 8G
cores = 30' "$(cat "$out")"
refuse 2 '--memory needs a value' -m
refuse 2 '--name needs a value' -n
refuse 2 'is no size' -m -c 30 true
expect 0 -m 1G -- true
make_slice web --gpus 0 -m 2G
vgpu 0 set -m1G -c50 web
prints 'web: GPU 0: memory 1 GiB, cores 50 %'
vgpu 0 set -g 0 web -m none
prints 'web: GPU 0: memory no limit, cores 50 %'
vgpu 0 ls -q
prints web
vgpu 0 ps -a
grep -q '^  1  vgpu sim' "$out" || fail "no -a: $(cat "$out")"
wrong 2 '--quiet prints names alone' ls -aq
wrong 2 '--count 0 is not valid: write a number from 1 on' top -bn0
vgpu 0 top -bn1 -i 0.1 web
wrong 125 'there is no slice "-x"' pause -- -x
wrong 125 'there is no slice ""' pause ''
wrong 2 'vgpu --help lists those' ''
wrong 2 'vgpu --help lists those' lss

# inspect, by name and by path.
vgpu 0 inspect web
grep -q "^$region: region of version" "$out" || fail "not the region of web: $(cat "$out")"
vgpu 0 inspect we
cd "$state/web" || exit 1
vgpu 0 inspect region
vgpu 0 inspect ./region
wrong 125 'there is no slice "nothing"' inspect nothing
wrong 125 'there is no such file' inspect ./nothing
wrong 2 'no slice to inspect' inspect

# Nowhere to write.
for command in '--help' 'help run' 'ps' 'ps -q' 'pause web' 'resume web' 'set -m 1G web' 'inspect web' 'top -bn1' '--version'; do
    # shellcheck disable=SC2086 # words
    "$VGPU" $command >/dev/full 2>"$err"
    same "the status of vgpu $command on a full disk" 125 "$?"
    grep -q 'cannot be written' "$err" || fail "vgpu $command says nothing of a full disk"
    # shellcheck disable=SC2086
    "$VGPU" $command >&- 2>"$err"
    same "the status of vgpu $command without stdout" 125 "$?"
done
