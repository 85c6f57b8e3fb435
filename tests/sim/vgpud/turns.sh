#!/bin/sh
# vgpud owns the files of turns, and hands out descriptors of them: to whom, of what, and what hostile
# programs can do.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/sim/vgpud/turns_lib.sh
. "$(dirname "$0")/turns_lib.sh"
: "${LOOKUPS:?}" # from CMakeLists.txt

# Slices without programs: one that is this user's, one of somebody else.
for name in ours theirs; do
    make_slice "$name" --gpus 0 --memory 1G
done
ours=$state/ours/region
theirs=$state/theirs/region
[ "$(id -u)" -ne 0 ] || chown 65533 "$state/theirs"
chmod 711 "$root" # other users are of the slice, too
chmod 666 "$ours"

configure
start_vgpud VGPUD_TEST=1
asks sealed "$ours" "$uuid0"
asks strangers "$ours" "$uuid0"
asks odd_uuids "$ours" "$uuid0"
asks garbage "$ours" "$uuid0"
[ "$(id -u)" -ne 0 ] || asks hold "$theirs" "$uuid0" "$ours"
asks flood "$theirs" "$uuid0" "$ours" 3

# Each container of `vgpu cdi` is a tenant. A link in the place of a region leads to no region.
if [ "$(id -u)" -eq 0 ]; then
    for name in alice bob carol; do
        "$VGPU" cdi --flags "$name" --memory 1G --gpus 0 >"$out" 2>"$err" || fail "no slice $name"
    done
    cp "$ours" "$VGPU_CONTAINERS/run/alice/shared/region"
    cp "$ours" "$VGPU_CONTAINERS/run/bob/shared/region"
    asks unread "$VGPU_CONTAINERS/run/alice/shared/region" "$uuid0" "$VGPU_CONTAINERS/run/bob/shared/region"
    cp "$ours" "$root/nobodys"
    ln -s "$root/nobodys" "$VGPU_CONTAINERS/run/carol/shared/region"
    asks refused "$root/nobodys" "$uuid0"
fi
[ "$(id -u)" -ne 0 ] || asks slow_close "$ours" "$uuid0" "$vgpud"
scrape
same 'the files' 2 "$(sample vgpud_turns_files)"
[ "$(sample 'vgpud_turns_requests_total{answer="none"}')" -gt 300 ] || fail 'what is no request is not counted'
stop_vgpud

python3 "$(dirname "$0")/turns_kept.py" "$VGPUD" "$config" "$VGPU_SOCKET" "$ours" "$uuid0" >"$out" 2>"$err" ||
    fail 'systemd keeps nothing'

# A container's root may change the file's owner and mode; here vgpud may not open it then.
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    program=$VGPUD
    VGPUD=$root/weak
    printf '#!/bin/sh\nexec setpriv --bounding-set=-dac_override,-fowner "%s" "$@"\n' "$program" >"$VGPUD"
    chmod +x "$VGPUD"
    start_vgpud VGPUD_TEST=1
    asks taken "$ours" "$uuid0"
    wait_log 'a program has made the file of turns of .* unusable: vgpud has replaced it'
    stop_vgpud
    VGPUD=$program
fi

# A request costs a lookup or two, however many slices there are.
for i in $(seq 60); do
    cp -r "$state/ours" "$state/$i"
done
configure
start_vgpud VGPUD_TEST=1 LD_PRELOAD="$LOOKUPS"
asks many "$ours" "$uuid0" 200
stop_vgpud
lookups=$(sed -n 's/^lookups: //p' "$log")
[ "${lookups:-99999}" -lt 4000 ] || fail "200 requests take $lookups lookups"
for i in $(seq 60); do
    rm -r "${state:?}/$i"
done

# What does not work is said, and all else goes on.
configure
sed -i "s|$VGPU_SOCKET|/proc/none/sock|" "$config"
start_vgpud VGPUD_TEST=1
wait_log 'no turns are handed out at /proc/none/sock: No such file or directory'
configure
kill -HUP "$vgpud"
wait_log 'has read'
asks identity "$ours" "$uuid0"
other=$vgpud
started="$started $other"
start_vgpud VGPUD_TEST=1
wait_log 'no turns are handed out at .*: another vgpud does'
kill "$other"
wait_log 'hands out turns again'
asks identity "$ours" "$uuid0"
rm "$VGPU_SOCKET" # as by somebody who cleans /run up
wait_for "$VGPU_SOCKET"
asks identity "$ours" "$uuid0"
same 'how often it was said' 1 "$(grep -c 'no turns are handed out' "$log")"
stop_vgpud
