#!/bin/sh
# `vgpu inspect` on the regions of slices: idle, busy, and after a kill -9.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"

make_slice x --memory 2G,1G
inspect 0 "$region"
says whole
grep -qFx "$region: region of version 1, HAMi's layout 1.2" "$out" || fail "no head: $(cat "$out")"
grep -qFx 'no process' "$out" || fail "a process: $(cat "$out")"
squeeze() {
    tr -s ' ' <"$out"
}
squeeze | grep -qFx "0 $uuid0 0 B 2 GiB none default" || fail "no GPU 0: $(cat "$out")"
squeeze | grep -qFx "1 $uuid1 0 B 1 GiB none default" || fail "no GPU 1: $(cat "$out")"

# Two processes: whoever they are, their figures.
member big x 1073741824
big=$pid
member small x 4096
small=$pid
host() {
    [ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ] && echo "$1" || echo -
}
inspect 0 "$region"
says whole
squeeze | grep -qFx "0 $uuid0 1 GiB 2 GiB none default" || fail "its sum: $(cat "$out")"
squeeze | grep -qFx "0 $big $(host "$big") 0 0 B 0 B 1 GiB 0 B 1 GiB running" || fail "its first: $(cat "$out")"
squeeze | grep -qFx "1 $small $(host "$small") 0 0 B 0 B 4 KiB 0 B 4 KiB running" ||
    fail "its second: $(cat "$out")"

# A dead one is seen, and left as it is. (Who finds the lock with a dead process clears them all:
# the lock's word here names slot 2, which is nobody's.)
kill -9 "$big"
wait_gone "$big"
for look in 1 2; do
    inspect 0 "$region"
    says whole
    squeeze | grep -q "^0 $big .* 1 GiB dead$" || fail "look $look: no dead one: $(cat "$out")"
    squeeze | grep -q "^1 $small .* running$" || fail "look $look: no living one: $(cat "$out")"
done
put "$region" "$at_lock" '\3'
inspect 1 "$region"
says 'wrong: a dead process, of slot 2, holds the lock'
grep -q '^lock: slot 2 has it; taken over from the dead: 0$' "$out" || fail "the lock: $(cat "$out")"
member next x 1
inspect 0 "$region"
grep -q '^lock: free; taken over from the dead: 1$' "$out" || fail "the lock: $(cat "$out")"
says whole
squeeze | grep -qFx "0 $uuid0 4 KiB 2 GiB none default" || fail "what is left: $(cat "$out")"

# Those who change it all the time do not make it look wrong.
member busy x 2097152 fast
member slow x 4096 slowly
for look in 1 2 3 4 5 6 7 8 9 10; do
    inspect 0 "$region"
    says whole
done

# But what is wrong beside that is seen, with the lock (slot 1000: nobody's), and is not repaired.
put "$region" $((at_slots + 1000 * 1960 + 1928)) '\3'
for look in 1 2; do
    inspect 1 "$region"
    grep -q '^wrong: slot 1000: status 3 means nothing' "$out" ||
        fail "look $look: $(cat "$out")"
done
put "$region" $((at_slots + 1000 * 1960 + 1928)) '\0'
inspect 0 "$region"
says whole
