#!/bin/sh
# What systemd and vgpud tell each other: that it is ready, looks, reads its settings again, ends; and
# the socket that is handed over. The unit.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"
: "${UNIT:?}" # from CMakeLists.txt

configure
python3 "$(dirname "$0")/notify.py" "$VGPUD" "$config" >"$out" 2>"$err" || fail "$(cat "$out")"
same 'what it notified of' 'WATCHDOG=1
FDSTOREREMOVE=1 FDNAME=turns-socket
FDSTORE=1 FDNAME=turns-socket
READY=1
WATCHDOG=1
RELOADING=1 MONOTONIC_USEC
READY=1
STOPPING=1' "$(awk '$0 != last; { last = $0 }' "$out" | awk '/RELOADING/ { reloaded = 1 } !(reloaded && /WATCHDOG/)')"

# A socket that is no listener, and one that others reach.
printf 'metrics = { listen = "127.0.0.1:0" }\n' >"$config"
python3 - "$VGPUD" "$config" >"$out" 2>"$err" <<'PYTHON'
import os, socket, sys
given = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
os.dup2(os.dup(given.fileno()), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[1], [sys.argv[1], "--config", sys.argv[2]])
PYTHON
same 'the status with another socket' 1 $?
grep -q 'systemd hands over more than one socket for HTTP, or one that does not listen' "$err" || fail 'does not say so'
python3 - "$VGPUD" "$config" >"$out" 2>"$err" <<'PYTHON'
import os, socket, sys
given = socket.create_server(("0.0.0.0", 0))
os.dup2(os.dup(given.fileno()), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[1], [sys.argv[1], "--config", sys.argv[2]])
PYTHON
same 'the status with a socket for all' 1 $?
grep -q "other machines may reach systemd's socket, and tls_certificate is not set" "$err" || fail 'does not say so'

# The journal's levels.
start_vgpud JOURNAL_STREAM=1:2
grep -q '^<6>serves http://127.0.0.1:' "$log" || fail "no level: $(cat "$log")"
stop_vgpud

if command -v systemd-analyze >/dev/null; then
    sed "s|=/[^ ]*/vgpud|=$VGPUD|" "$UNIT" >"$root/vgpud.service"
    systemd-analyze verify --man=no "$root/vgpud.service" >"$out" 2>&1 || fail "verify: $(cat "$out")"
    ! grep vgpud "$out" || fail 'systemd does not know all of the unit'
fi
