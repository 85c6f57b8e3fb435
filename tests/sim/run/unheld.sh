#!/bin/sh
# Programs that a slice would not hold: `vgpu run` starts none without a line on stderr.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/doctor_lib.sh"
cd "$root" || exit 1

# script NAME TEXT
script() {
    printf '%b' "$2" >"$1"
    chmod +x "$1"
}
# not_started WORDS COMMAND...: refused with 125 and WORDS; and started after one line where the user
# insists, which the file "began" shows.
not_started() {
    words=$1
    shift
    rm -f began
    refuse 125 "$words" --memory 1G "$@"
    grep -q -e '--allow-unheld' "$err" || fail "run $*: does not say how to insist"
    [ ! -e began ] || fail "run $*: started"
    same 'what is left' '' "$(slices)"
}
insists() {
    vgpu_run --memory 1G --allow-unheld "$@"
    [ "$status" -eq 0 ] || fail "run --allow-unheld $*: status $status"
    same 'how much it says' 1 "$(wc -l <"$err")"
    grep -Eq '^vgpu: warning: .* (is not|may not be) limited by the slice: ' "$err" || fail 'it does not warn'
    [ -e began ] || fail "run --allow-unheld $*: not started"
}

code='#include <fcntl.h>
int main(void) { return open("'$root'/began", O_CREAT | O_WRONLY, 0600) < 0; }'
echo "$code" | program plain || fail "no compiler: $(cat cc.err)"
expect 0 --memory 1G ./plain
[ -e began ] || fail 'a program that a slice limits is not started'
if echo "$code" | program static -static; then
    not_started "./static would not be limited by the slice: it is linked statically" ./static
    insists ./static
    PATH=$root:$PATH not_started "$root/static would not be limited" static
    ln -s static link
    not_started './link would not be limited' ./link
    script one "#!$root/static\n"
    not_started "$root/static would not be limited" ./one
    script two "#!$root/one\n"
    not_started "$root/static would not be limited" ./two
    script relative '#!static\n'
    not_started 'static would not be limited' ./relative
    insists ./relative
    script by_env '#!/usr/bin/env static\n'
    PATH=$root:$PATH not_started "$root/static would not be limited" ./by_env
    not_started './static would not be limited' env -C "$root" A=b ./static
    mkdir -p below
    not_started './static would not be limited' env -C below env -C .. ./static
    # The first in PATH that can be executed is taken, as by execvp; an empty entry is this directory.
    mkdir -p first second
    cp static first/prog && chmod -x first/prog
    cp plain second/prog
    PATH=$root/first:$root/second:$PATH expect 0 --memory 1G prog
    chmod +x first/prog
    PATH=$root/first:$root/second:$PATH not_started "$root/first/prog would not be limited" prog
    PATH=:$PATH not_started './static would not be limited' static
    status=$(env PATH='' "$VGPU" run --memory 1G static 2>"$err" || echo "$?")
    same 'the status with an empty PATH' 125 "$status"
    grep -qF './static would not be limited' "$err" || fail 'an empty PATH is not this directory'
fi
echo "$code" | program musl -Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1
not_started 'it is for musl' ./musl
cp plain strange.so
echo "$code" | program strange "-Wl,--dynamic-linker=$root/strange.so"
not_started "limited by the slice is not known: it has a loader that vgpu does not know: $root/strange.so" \
    ./strange
printf '\177ELF\1\1\1\0\0\0\0\0\0\0\0\0\2\0\3\0' >i386
head -c 64 /dev/zero >>i386
chmod +x i386
not_started 'it is for another machine, 32-bit x86' ./i386
loader=$(readelf -l plain 2>/dev/null | sed -n 's/.*interpreter: \(.*\)]/\1/p')
[ -z "$loader" ] || not_started 'it is the loader itself' "$loader" ./plain

# What takes the program out of its slice again.
not_started 'env takes it out of the slice by "-i"' env -i ./plain
not_started 'env takes it out of the slice by "-"' env - ./plain
not_started 'out of the slice by "LD_PRELOAD"' env -u LD_PRELOAD ./plain
not_started 'out of the slice by "VGPU_POLICY"' env --unset=VGPU_POLICY ./plain
not_started 'out of the slice by "LD_PRELOAD="' env A=b LD_PRELOAD= ./plain
script splits '#!/usr/bin/env -S -i "./plain"\n'
not_started 'out of the slice by "-i"' ./splits
script unclear '#!/usr/bin/env -S ${SHELL}\n'
not_started 'is not understood' ./unclear
not_started '"--no-such" is not understood' env --no-such ./plain
insists env -i ./plain
ln -s "$(command -v env)" other_name
not_started 'out of the slice by "-i"' ./other_name -i ./plain
cp plain sudo
not_started 'what sudo starts does not get the environment of the slice' ./sudo
expect 0 --memory 1G env -u HOME A=b ./plain

# What does not start at all says why, and leaves nothing.
refuse 127 '/no/such, the interpreter of the script ./lost, is not found' --memory 1G \
    "$(script lost '#!/no/such\n' && echo ./lost)"
refuse 127 'the first line of the script ./returns ends with a carriage return' --memory 1G \
    "$(script returns '#!/bin/sh\r\n' && echo ./returns)"
refuse 126 './noise is no program: it is neither an ELF file that is whole, nor a script' \
    --memory 1G "$(script noise 'a\0b' && echo ./noise)"
refuse 126 'scripts interpret each other' --memory 1G "$(script round "#!$root/round\n" && echo ./round)"
echo "$code" | program loaderless -Wl,--dynamic-linker=/no/ld-linux.so
refuse 127 './loaderless cannot be run: its loader is not here (/no/ld-linux.so)' --memory 1G ./loaderless
refuse 126 './plain/ cannot be run: Not a directory' --memory 1G ./plain/
refuse 2 'no command to run' --memory 1G ''
refuse 126 'is a directory' --memory 1G ./below
refuse 127 'a?b: not found' --memory 1G "$(printf 'a\033b')"
same 'what is left' '' "$(slices)"

# The library itself: not vgpu's, for another machine, closed, or where nothing is executed.
vgpu_library=$VGPU_LIBRARY
refuse_library() {
    VGPU_LIBRARY=$1
    refuse 125 "$2" --memory 1G ./plain
    VGPU_LIBRARY=$vgpu_library
}
rm -f began
echo text >text.so
refuse_library "$root/text.so" 'is no library, or a damaged one'
refuse_library "$LD_LIBRARY_PATH/libcuda.so.1" "is not vgpu's library"
refuse_library "$root/i386" 'is for another machine (32-bit x86)'
{
    head -c 20000 "$NOTHING"
    head -c 3000 /dev/zero
} | head -c "$(($(wc -c <"$NOTHING") / 2))" >half.so
VGPU_LIBRARY=$root/half.so vgpu_run --memory 1G ./plain
same 'the status with half a library' 125 "$status"
VGPU_LIBRARY=$vgpu_library
[ ! -e began ] || fail 'a program was started without the library'

[ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || exit 0
uid=$(id -u nobody)
setpriv --reuid "$uid" --clear-groups test -x "$VGPU" || exit 0
chmod 755 "$root"
mkdir -m 755 closed
mkdir -m 700 theirs closed/inner
cp "$VGPU_LIBRARY" closed/inner/x.so
chown nobody theirs
as_nobody() {
    VGPU_STATE=$root/theirs/state VGPU_SIM_STATE=$root/theirs/sim \
        setpriv --reuid "$uid" --clear-groups "$VGPU" run --memory 1G "$@" >"$out" 2>"$err"
    status=$?
}
VGPU_LIBRARY=$root/closed/inner/x.so as_nobody true
same 'the status with a closed directory' 125 "$status"
grep -qF "this user may not search the directory $root/closed/inner" "$err" ||
    fail 'a directory that cannot be searched is not named'
VGPU_LIBRARY=$vgpu_library
cp plain owned && chmod u+s owned
as_nobody ./owned
same 'the status of a set-user-id program' 125 "$status"
grep -q 'it has the set-user-id bit, with which the loader drops LD_PRELOAD' "$err" ||
    fail 'a set-user-id program is not refused'
chmod 4711 owned
as_nobody ./owned
grep -q 'it has the set-user-id bit' "$err" || fail 'one that cannot be read is not refused'
chmod 711 owned
as_nobody ./owned
same 'the status of a program that cannot be read' 125 "$status"
grep -q 'cannot be read: Permission denied' "$err" || fail 'one that cannot be read is not refused'
if can_be_apart; then
    unshare -rm sh -c 'mount -t tmpfs -o noexec none /mnt && cp "$VGPU_LIBRARY" /mnt/x.so &&
        VGPU_LIBRARY=/mnt/x.so exec "$0" run --memory 1G "$1"' "$VGPU" ./plain 2>"$err"
    same 'the status with a library that cannot be executed' 125 "$?"
    grep -q 'is mounted noexec' "$err" || fail 'a noexec mount is not named'
fi
exit 0
