#!/bin/sh
# Two slices of one name: no command takes one of them silently, and each can be named.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"
. "$(dirname "$0")/steer_lib.sh"
. "$(dirname "$0")/json_lib.sh"

me=$(id -un)
make_slice web --gpus 0 --memory 2G
one=$region
make_slice website --gpus 0 --memory 2G
container web "$one"

# Both are this user's: their paths tell them apart.
words="2 slices are called web: write one of $one, $cache"
wrong 125 "$words" pause web
wrong 125 "$words" resume web
wrong 125 "$words" set web --memory 1G
wrong 125 "$words" rm web
wrong 125 "$words" ps web
wrong 125 "$words" ps --quiet web
wrong 125 "$words" top --batch --count 1 web
wrong 125 "3 slices have a name that starts with we: write one of $one, website, $cache" pause we
wrong 125 '2 slices are called web' pause "$me/web"
vgpu 0 pause website
vgpu 0 pause "$me/websi"
prints 'website: is paused already'
vgpu 0 pause "$cache"
prints 'web: paused; no process uses the GPU'
ps 0
line 'SLICE GPU MEMORY LIMIT FULL CONTEXT MODULE DATA CORES STATE'
ps 0 --quiet
same 'the names' "$one website $cache" "$(tr '\n' ' ' <"$out" | sed 's/ $//')"

[ "$(id -u)" -eq 0 ] || {
    echo 'skipped: only root can give a file to another user'
    exit 77
}
other=4000000001
chown "$other" "$cache"
words="2 slices are called web: write one of $me/web, $other/web"
for command in pause resume 'set --memory 1G' rm ps; do
    # shellcheck disable=SC2086 # an option, and its value
    wrong 125 "$words" $command web
done
vgpu 0 resume "$other/web"
prints 'web: resumed; no process uses the GPU'
vgpu 0 pause "$me/web"
prints 'web: paused; no process uses the GPU'
wrong 125 'nobody-of-this-name/web cannot be looked at' pause nobody-of-this-name/web
ps 0
line 'SLICE USER GPU MEMORY LIMIT FULL CONTEXT MODULE DATA CORES STATE'
line "web $other 0 0 B 2 GiB 0 % 0 B 0 B 0 B - empty"
line "web $me 0 0 B 2 GiB 0 % 0 B 0 B 0 B - paused, idle"
ps 0 "$me/web"
line 'SLICE GPU MEMORY LIMIT FULL CONTEXT MODULE DATA CORES STATE'
ps 0 --quiet
same 'the names' "$me/web website $other/web" "$(tr '\n' ' ' <"$out" | sed 's/ $//')"
head -c 2097152 /dev/urandom >"$cache"
ps 1
line "web $other $cache is no region of vgpu: it holds something else; move it away, or name another path"
json ps --json website
same 'its user' "[\"$me\", 0]" "$(found '[d["slices"][0][k] for k in ("user", "owner_uid")]')"
