#!/bin/sh
# The settings: what is checked, what is refused, and how they are read again.
# shellcheck source=tests/sim/vgpud/lib.sh
. "$(dirname "$0")/lib.sh"

# check STATUS WORDS: vgpud --check ends with STATUS, and says WORDS on one line of stderr ("": silent).
check() {
    "$VGPUD" --config "$config" --check >"$out" 2>"$err"
    same "the status of --check: $(cat "$config" "$err")" "$1" $?
    [ ! -s "$out" ] || fail '--check prints on stdout'
    if [ -z "$2" ]; then
        [ ! -s "$err" ] || fail '--check is not silent'
    else
        same 'the lines' 1 "$(wc -l <"$err")"
        grep -qF -- "$2" "$err" || fail "does not say \"$2\""
    fi
}

configure
check 0 ''
: >"$config"
check 0 ''
rm "$config"
check 1 "$config cannot be read: No such file or directory"
printf '# all\nmetrics = {\n    listn = "x"\n}\n' >"$config"
check 1 "$config, line 3: there is no setting \"listn\" in metrics: vgpud(8) lists them"
printf 'metrics = {\n    timeout = "soon"\n}\n' >"$config"
check 1 "$config, line 2: timeout is no number from 1 to 300: write one"
printf 'metrics = {\n    connections = 0\n}\n' >"$config"
check 1 "$config, line 2: connections is no number from 1 to 1000: write one"
printf 'metrics = {\n    hami = 1\n}\n' >"$config"
check 1 "$config, line 2: hami is neither true nor false"
printf 'metrics = {\n    listen = 9742\n}\n' >"$config"
check 1 "$config, line 2: listen is no text: write it in quotes"
printf 'audit = {\n    excess = "much"\n}\n' >"$config"
check 1 "$config, line 2: excess is no size: write one in quotes, such as \"512M\""
printf 'audit = {\n    allow = "x"\n}\n' >"$config"
check 1 "$config, line 2: allow is no list of up to 64 texts: write one such as [\"/usr/bin/a\", \"/usr/bin/b\"]"
printf 'audit = {\n    allow = [ 1, 2 ]\n}\n' >"$config"
check 1 "$config, line 2: allow is no list of up to 64 texts"
printf 'audit = {\n    allow = [ ]\n    end_outside = false\n    excess = "1.5G"\n}\n' >"$config"
check 0 ''
printf 'metrics = 3\n' >"$config"
check 1 "$config, line 1: \"metrics\" is no group of settings: vgpud(8) lists them"
printf '\nmetric = { }\n' >"$config"
check 1 "$config, line 2: \"metric\" is no group of settings: vgpud(8) lists them"
printf 'metrics = {\n' >"$config"
check 1 "$config, line 2: syntax error: vgpud(8) has examples"
printf 'metrics = {\n    hami = true\n    hami = true\n}\n' >"$config"
check 1 "$config, line 3: duplicate setting name"
printf 'metrics = { listen = "localhost:9742" }\n' >"$config"
check 1 'listen = "localhost:9742" is no address: write one such as 127.0.0.1:9742 or [::1]:9742'
printf 'metrics = { listen = "127.0.0.1:99999" }\n' >"$config"
check 1 'is no address'
printf 'metrics = { listen = "[::1]:9742" }\n' >"$config"
check 0 ''
for listen in 0.0.0.0:9742 '[::]:9742' 192.0.2.1:9742; do
    printf 'metrics = { listen = "%s" }\n' "$listen" >"$config"
    check 1 "other machines may reach $listen, and tls_certificate is not set in vgpud.conf: set"
done
"$VGPUD" --config "$config" >"$out" 2>"$err"
same 'the status of one that does not start' 1 $?
grep -q 'other machines may reach' "$err" || fail 'starts, or does not say why not'

"$VGPUD" --help >"$out" 2>"$err" || fail '--help'
grep -q '^Usage: vgpud ' "$out" || fail 'no usage'
"$VGPUD" --version >"$out" 2>"$err" || fail '--version'
"$VGPUD" more >"$out" 2>"$err"
same 'the status with an argument' 2 $?

# A port that is taken.
configure
start_vgpud VGPUD_TEST=1
printf 'metrics = { listen = "127.0.0.1:%s" }\n' "$port" >"$root/taken.conf"
"$VGPUD" --config "$root/taken.conf" >"$out" 2>"$err"
same 'the status where the port is taken' 125 $?
grep -q "cannot listen on 127.0.0.1:$port: Address already in use; another program does" "$err" ||
    fail 'does not say so'

# SIGHUP: new settings count, and bad ones change nothing.
scrape
grep -q ^hami_ "$out" || fail 'no names of HAMi'
printf 'metrics = { listen = "127.0.0.1:0"; hami = false }\n' >"$config"
kill -HUP "$vgpud"
wait_log "has read $config again"
scrape
grep -q ^hami_ "$out" && fail 'still with names of HAMi'
for round in 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    kill -HUP "$vgpud"
    wait_log "has read $config again" "$round"
    same "round $round" 200 "$(client get /metrics "$out")"
done
printf 'metrics = { listen = "0.0.0.0:0" }\n' >"$config"
kill -HUP "$vgpud"
wait_log 'keeps its present settings: other machines may reach 0.0.0.0:0'
scrape
configure 'hami = true'
printf 'metrics = { listen = "[::1]:0" }\n' >"$config"
if [ -e /proc/sys/net/ipv6 ] && grep -q '^0*1 ' /proc/net/if_inet6; then
    kill -HUP "$vgpud"
    wait_log 'serves http://\[::1\]:'
fi
stop_vgpud

printf 'metrics = { listen = "" }\n' >"$config"
"$VGPUD" --config "$config" >"$out" 2>"$err" &
vgpud=$!
started="$started $vgpud"
sleep 1.5
kill -0 "$vgpud" || fail 'ends without an address to listen on'
stop_vgpud
