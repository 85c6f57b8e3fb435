#!/bin/sh
# Names and paths that a tenant chose with control characters: no command prints one as it is.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"

# ESC, DEL, C1 as a byte and as UTF-8, a line feed; and UTF-8 that is kept.
odd=$(printf 'a\033[31m\177\233\302\233\nb\303\251')
shown=$(printf 'a\\x1b[31m\\x7f\\x9b\\xc2\\x9b\\x0ab\303\251')

# safe ARGUMENT...: vgpu prints no control character but line feeds, in its output, errors or JSON.
safe() {
    COLUMNS=400 "$VGPU" "$@" >"$out" 2>"$err" </dev/null
    LC_ALL=C tr -d '\n' <"$out" >"$root/bytes"
    LC_ALL=C tr -d '\n' <"$err" >>"$root/bytes"
    [ -s "$root/bytes" ] || fail "vgpu $*: prints nothing"
    ! LC_ALL=C grep -q "$(printf '[\001-\037\177]')" "$root/bytes" || fail "vgpu $*: a control character"
    ! LC_ALL=C grep -q "$(printf '\302[\200-\237]')" "$root/bytes" || fail "vgpu $*: a C1 control character"
    ! LC_ALL=C grep -q "$(printf '[^\303]\233')" "$root/bytes" || fail "vgpu $*: a byte of C1"
}

make_slice web --gpus 0 --memory 1G
container pod_odd "$region"
mv "$cache" "$hami/containers/pod_odd/$odd.cache"
cp "$region" "$root/$odd"
mkdir "$hami/containers/pod_$odd"
head -c 2097152 /dev/urandom >"$hami/containers/pod_$odd/x.cache"

safe ps
grep -qF "pod_odd" "$out" || fail "ps lacks it: $(cat "$out")"
safe ps --quiet
grep -qFx "pod_$shown" "$out" || fail "the name is not escaped: $(cat "$out")"
safe ps --json
for command in 'set --memory 1G' inspect pause resume rm ps; do
    # shellcheck disable=SC2086 # an option, and its value
    safe $command "$odd"
    # shellcheck disable=SC2086
    safe $command "$root/$odd"
done
cp "$region" "$root/$odd"
safe inspect --json "$root/$odd"
safe "$odd"
safe ps "--$odd"
safe help "$odd"
safe top --count "$odd" --batch
safe pause "pod_$odd"
safe rm "pod_$odd"
safe rm --force "pod_$odd"
safe resume --all
safe set --memory 1G "pod_$odd"
safe trace "pod_$odd"
safe run --name "$odd" --memory 1G true
safe run --memory 1G "$odd"
safe top --count 1 --batch
mkdir -m 777 "$root/dir$odd"
VGPU_STATE=$root/dir$odd safe run --memory 1G true
VGPU_STATE=$root/dir$odd safe doctor
VGPU_STATE=$root/dir$odd safe doctor --json

# What a policy says, in the name of a file and in a value, in a slice and to whoever looks at it from outside.
mkdir "$state/odd" "$state/odd/policy"
cp "$root/$odd" "$state/odd/region"
: >"$state/odd/lock"
for text in "memory = $odd" "$odd = 1G" "$odd"; do
    echo "$text" >"$state/odd/policy/$uuid0"
    for command in 'ps odd' 'inspect odd' 'set --memory 1G odd' 'pause odd' 'rm odd'; do
        # shellcheck disable=SC2086 # words
        safe $command
    done
    VGPU_POLICY=$state/odd/policy safe doctor
done
echo 'memory = 1G' >"$state/odd/policy/$uuid0"
echo 'memory = 1G' >"$state/odd/policy/$odd"
rm -f "$state/odd/region"
safe set --memory 1G odd
safe pause odd
safe inspect odd
VGPU_POLICY=$state/odd/policy safe doctor
VGPU_POLICY=$state/odd/policy safe doctor --json
