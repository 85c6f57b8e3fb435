#!/bin/sh
# The state directory: where it is, who may write there, and what is refused.
. "$(dirname "$0")/lib.sh"

mode() {
    stat -c %a "$1"
}
case $(id -u) in
0) dir=755 file=660 ;;
*) dir=700 file=666 ;;
esac
umask 0
expect 0 --unlimited --name x sh -c 'cd "$VGPU_POLICY" && stat -c "%a %n" ../.. .. . slice ../region ../lock'
same 'modes with umask 0' "$dir ../..
$dir ..
$dir .
644 slice
$file ../region
600 ../lock" "$(cat "$out")"
rm -rf "$state"
umask 077
expect 0 --unlimited --name x sh -c 'cd "$VGPU_POLICY" && stat -c "%a %n" ../.. .. . slice ../region ../lock'
same 'modes with umask 077' "$dir ../..
$dir ..
$dir .
644 slice
$file ../region
600 ../lock" "$(cat "$out")"
umask 022

chmod 777 "$state"
refuse 125 "others may write in the state directory $state: chmod it" --unlimited true
chmod 755 "$state"
expect 0 --unlimited true

# elsewhere STATE ...: as refuse, with another VGPU_STATE.
elsewhere() {
    (
        VGPU_STATE=$1
        shift
        refuse "$@" --unlimited true
    ) || exit 1
}
ln -s "$state" "$root/link"
elsewhere "$root/link" 125 "the state directory $root/link cannot be used"
touch "$root/file"
elsewhere "$root/file" 125 "the state directory $root/file cannot be used"
elsewhere "$root/no/where" 125 'No such file or directory'
elsewhere "$root/$(printf '%05000d' 0)" 125 'path is too long'
mkdir "$root/a #b"
elsewhere "$root/a #b" 125 'cannot stand in a policy'
same 'what is left of it' '' "$(ls "$root/a #b")"

[ "$(id -u)" -eq 0 ] || exit 0
chown nobody "$state"
refuse 125 "the state directory $state is another user's" --unlimited true
chown root "$state"

# Another user, without VGPU_STATE: below XDG_RUNTIME_DIR. (What else there is, is not this test's
# own to write in.)
command -v setpriv >/dev/null || exit 0
chmod 755 "$root"
touch "$root/sim" && chmod 666 "$root/sim"
uid=$(id -u nobody)
[ -x "$(dirname "$VGPU")" ] && setpriv --reuid "$uid" --clear-groups test -x "$VGPU" || exit 0
unset VGPU_STATE
mkdir -m 700 "$root/user" && chown nobody "$root/user"
as_nobody() {
    VGPU_SIM_STATE=$root/user/sim setpriv --reuid "$uid" --clear-groups "$VGPU" run --unlimited --name x \
        sh -c 'echo "$VGPU_POLICY"; stat -c %a "$VGPU_POLICY/../.."' 2>&1
}
same 'with XDG_RUNTIME_DIR' "$root/user/vgpu/x/policy
700" "$(XDG_RUNTIME_DIR=$root/user as_nobody)"
