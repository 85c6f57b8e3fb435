#!/bin/sh
# What the tests of vgpud's files of turns share, to be sourced after lib.sh.
# shellcheck disable=SC2154 # lib.sh sets it
: "${STEERED:?}" "${LIBRARY:?}" # from CMakeLists.txt
turns=$(dirname "$0")/turns.py

# asks COMMAND ARGUMENT...: turns.py.
asks() {
    command=$1
    shift
    python3 "$turns" "$command" "$VGPU_SOCKET" "$@" >"$out" 2>"$err" || fail "$command: $(cat "$log")"
}

# file_of NAME: in which file of turns the program has a seat whose first argument is NAME, or is its file NAME.seen:
# "/memfd:NAME INODE", "PATH INODE", or "".
file_of() {
    python3 - "$root/$1.seen" "$uuid0" "$1" <<'PYTHON'
import glob, os, sys
for fd in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        if sys.argv[2] not in os.readlink(fd):
            continue
        process = os.path.dirname(os.path.dirname(fd))
        with open(process + "/cmdline") as file:
            if file.read().split("\0")[1:2] not in (sys.argv[1:2], sys.argv[3:4]):
                continue
        with open(process + "/fdinfo/" + os.path.basename(fd)) as file:
            if "lock:" in file.read():
                print(os.readlink(fd).split(" ")[0], os.stat(fd).st_ino)
    except OSError:
        pass
PYTHON
}

# until_file NAME PATTERN: until its program's file is such a one.
until_file() {
    tries=0
    until file_of "$1" | grep -q "$2"; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "$1 has the file \"$(file_of "$1")\", not $2"
        sleep 0.2
    done
}
