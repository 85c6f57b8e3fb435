#!/bin/sh
# The server: what it answers, and that a client that floods it harms itself alone.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"

configure 'timeout = 2' 'connections = 12' 'client_connections = 8'
start_vgpud VGPUD_TEST=1
scrape

same 'another path' 404 "$(client get / "$out")"
same 'what it says' 'there is nothing but /metrics here' "$(cat "$out")"
same 'another method' 405 "$(METHOD=POST client get /metrics "$out")"
same 'HEAD' 200 "$(METHOD=HEAD client get /metrics "$out")"
[ ! -s "$out" ] || fail 'HEAD has a body'
# libmicrohttpd ends a connection, or says what is wrong with the request, as its version has it.
for garbage in 'GET\r\n\r\n\r\n' '\0\1\2\377\r\n\r\n' "GET /$(printf '%020000d' 0) HTTP/1.1\r\n\r\n"; do
    client raw "$garbage" >"$out"
    ! grep -q 200 "$out" || fail "garbage gets an answer: $(cat "$out")"
done

# Connections that say nothing, or a little now and then, end; beyond the limit at once.
same 'silent ones' 8 "$(client hold 8 6)"
same 'too many' 2 "$(client hold 10 0.5)"
same 'one that drips' ended "$(client drip 10)"
scrape

# A flood.
client flood 4 &
floods=$!
client flood 4 &
floods="$floods $!"
sleep 1
looks=$(tries=0; until [ "$(client get /metrics "$out" 2>/dev/null)" = 200 ]; do
    tries=$((tries + 1)); [ "$tries" -lt 50 ] || break; sleep 0.1; done; sample vgpud_looks_total)
# shellcheck disable=SC2086 # pids
wait $floods
scrape
[ "$(sample vgpud_looks_total)" -ge "$((looks + 1))" ] || fail "no look under the flood: $looks"
[ "$(sample process_open_fds)" -lt 40 ] || fail "descriptors: $(sample process_open_fds)"
stop_vgpud
