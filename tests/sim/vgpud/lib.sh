#!/bin/sh
# What the tests of vgpud share, to be sourced: what those of `vgpu ps` have, a vgpud of the test's
# own, and what it says.
# shellcheck disable=SC2034,SC2154 # the tests use what is set here
run=$(dirname "$0")/../run
# shellcheck source=tests/sim/run/lib.sh
. "$run/lib.sh"
# shellcheck source=tests/sim/run/inspect_lib.sh
. "$run/inspect_lib.sh"
# shellcheck source=tests/sim/run/ps_lib.sh
. "$run/ps_lib.sh"

: "${VGPUD:?}" "${FORMAT:?}" "${CLIENT:?}" # from CMakeLists.txt
command -v python3 >/dev/null || {
    echo 'skipped: there is no python3 to ask vgpud with'
    exit 77
}
config=$root/vgpud.conf
log=$root/vgpud.log
port=
events=$root/events

# configure LINE...: the settings, in the group "metrics"; it listens where there is room.
# shellcheck disable=SC2120 # the tests give it some
configure() {
    {
        printf 'metrics = {\n    listen = "127.0.0.1:0"\n    pods = "%s/pods"\n' "$root"
        for setting in "$@"; do
            printf '    %s\n' "$setting"
        done
        printf '}\nturns = {\n    socket = "%s"\n}\n' "$VGPU_SOCKET"
    } >"$config"
}

# wait_log PATTERN [COUNT]: until vgpud has said so, COUNT times.
wait_log() {
    tries=0
    until [ "$(grep -c -- "$1" "$log")" -ge "${2:-1}" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 1500 ] || fail "vgpud does not say \"$1\": $(cat "$log")"
        sleep 0.05
    done
}

# find_port: where it serves now.
find_port() {
    port=$(sed -n 's/.*serves https*:.*:\([0-9]*\)\/metrics$/\1/p' "$log" | tail -n 1)
}

# start_vgpud [VARIABLE=VALUE...]: its pid in $vgpud.
start_vgpud() {
    [ -e "$config" ] || configure "hami = true"
    : >"$log"
    env "$@" "$VGPUD" --config "$config" >"$root/vgpud.out" 2>"$log" &
    vgpud=$!
    started="$started $vgpud"
    wait_log serves
    find_port
}

stop_vgpud() {
    kill "$vgpud"
    wait "$vgpud"
    same 'the status after SIGTERM' 0 $?
}

# client ARGUMENT...: a request (client.py), the answer's status on stdout.
client() {
    python3 "$CLIENT" "$port" "$@"
}

# scrape: the metrics into $out, and checks their form.
scrape() {
    same 'the status of /metrics' 200 "$(client get /metrics "$out")"
    check_form
}

# check_form: of the metrics in $out.
check_form() {
    python3 "$FORMAT" <"$out" || fail 'the form'
    if command -v promtool >/dev/null; then
        promtool check metrics <"$out" >"$err" 2>&1 || fail 'promtool'
        [ ! -s "$err" ] || fail 'promtool is not silent'
    fi
}

# sample 'NAME{LABELS}': its value, or "" where there is none.
sample() {
    awk -v series="$1" 'index($0, series " ") == 1 { print substr($0, length(series) + 2) }' "$out"
}

# until_sample 'NAME{LABELS}' VALUE: scrapes until it is so. Only the last form is checked, as that takes longest.
until_sample() {
    tries=0
    until client get /metrics "$out" >/dev/null && [ "$(sample "$1")" = "$2" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "$1 is \"$(sample "$1")\" instead of \"$2\": $(cat "$out" "$log")"
        sleep 0.2
    done
    check_form
}

# Of the events in the file $events:
# until_event NAME EXPRESSION: until there is such an event, for which the expression holds.
until_event() {
    tries=0
    until python3 - "$events" "$1" "$2" >/dev/null 2>"$err" <<'PYTHON'
import json, sys
for line in open(sys.argv[1], "rb"):
    e = json.loads(line.decode("utf-8", "strict"))
    if e["event"] == sys.argv[2] and eval(sys.argv[3]):
        sys.exit()
sys.exit(1)
PYTHON
    do
        tries=$((tries + 1))
        [ "$tries" -lt 60 ] || fail "no event $1 with $2: $(cat "$events")"
        sleep 0.2
    done
}

# count NAME: how many of them there are.
count() {
    grep -c "\"event\":\"$1\"" "$events"
}

user=$(id -un)
# of SLICE [GPU [MORE]]: the labels of a slice of vgpu run's.
of() {
    printf '{slice="%s",kind="run",user="%s"%s%s}' "$1" "$user" "${2:+,device_uuid=\"$2\"}" "${3:+,$3}"
}
