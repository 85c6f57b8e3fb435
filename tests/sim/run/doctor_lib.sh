#!/bin/sh
# What the tests of `vgpu doctor` share beside lib.sh, to be sourced after it.
# shellcheck disable=SC2154 # lib.sh has set these
library=$(dirname "$VGPU")/libvgpu.so
export VGPU_LIBRARY="$library" CUDA_DEVICE_MEMORY_SHARED_CACHE="$root/none" # not what others left
unset CUDA_MPS_PIPE_DIRECTORY NO_COLOR CUDA_DEVICE_MEMORY_LIMIT
: "${CC:?}" # from CMakeLists.txt

# doctor ARGUMENT...: vgpu doctor, by way of $through, prints into $out, and ends with 1 if something
# fails, else with 0.
through=
doctor() {
    # shellcheck disable=SC2086 # $through is a command with arguments
    $through "$VGPU" doctor "$@" >"$out" 2>"$err"
    status=$?
    expected=0
    ! grep -q '^FAIL' "$out" || expected=1
    [ "$status" -eq "$expected" ] || fail "doctor $*: status $status: $(cat "$out")"
    case $through in
    *LD_PRELOAD*) ;; # of which the loader complains
    *) [ ! -s "$err" ] || fail "doctor $*: not silent" ;;
    esac
    grep -qv '^\(ok   \|note \|warn \|FAIL \) [a-z-]*  *[^ ]' "$out" && fail "doctor $*: $(cat "$out")"
    # What is not well says what to do.
    grep '^[^o]' "$out" | grep -qv '\. [A-Z].*\.$' && fail "no advice: $(cat "$out")"
    return 0
}

# says VERDICT CHECK WORDS: a line of that check has that verdict, and WORDS.
says() {
    grep "^$1  *$2 " "$out" | grep -qF -- "$3" ||
        fail "does not say \"$1 $2 $3\": $(grep "^[^ ]*  *$2 " "$out")"
}

# silent CHECK: there is no line of it.
silent() {
    ! grep "^[^ ]*  *$1 " "$out" || fail "speaks of $1"
}

# refuse_line STATUS WORDS ARGUMENT...: it ends with STATUS and one line on stderr that has WORDS.
refuse_line() {
    expected=$1 words=$2
    shift 2
    "$VGPU" doctor "$@" >"$out" 2>"$err"
    status=$?
    [ "$status" -eq "$expected" ] || fail "doctor $*: status $status instead of $expected"
    [ "$(grep -c '^vgpu: ' "$err")-$(wc -l <"$err")" = 1-1 ] || fail "doctor $*: not one line"
    grep -qF -- "$words" "$err" || fail "doctor $*: does not say \"$words\""
}

# apart COMMAND...: in mount and user namespaces of its own, as root there; a scene that needs that
# goes by can_be_apart.
apart() {
    unshare -rm "$@"
}
can_be_apart() {
    command -v unshare >/dev/null && apart mount -t tmpfs none /mnt 2>/dev/null
}

# program NAME FLAG...: $root/NAME, compiled of what is on standard input.
program() {
    name=$1
    shift
    $CC -x c - -o "$root/$name" "$@" 2>"$root/cc.err"
}

# held COMMAND: it would be.
held() {
    doctor -- "$@"
    says ok held "would be limited"
}
# not_held WORDS COMMAND...: it would not, for that reason, and its doors are no matter.
not_held() {
    words=$1
    shift
    doctor -- "$@"
    says FAIL held "would not be limited: $words"
    silent doors
}
# unusable WORDS COMMAND...
unusable() {
    words=$1
    shift
    doctor -- "$@"
    says FAIL command "$words"
    silent held
    silent doors
}
