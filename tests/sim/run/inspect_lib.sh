#!/bin/sh
# What the tests of `vgpu inspect` share beside lib.sh, to be sourced after it.
# shellcheck disable=SC2034,SC2154 # the tests use what is set here, and lib.sh has set the rest

# inspect STATUS ARGUMENT...: vgpu inspect ends with STATUS, silent on stderr; it prints into $out.
inspect() {
    expected=$1
    shift
    "$VGPU" inspect "$@" >"$out" 2>"$err"
    status=$?
    [ "$status" -eq "$expected" ] ||
        fail "inspect $*: status $status instead of $expected: $(cat "$out")"
    [ ! -s "$err" ] || fail "inspect $*: not silent"
}

# refuse_file STATUS WORDS ARGUMENT...: it ends with STATUS and one line on stderr that has WORDS.
refuse_file() {
    expected=$1 words=$2
    shift 2
    "$VGPU" inspect "$@" >"$out" 2>"$err"
    status=$?
    [ "$status" -eq "$expected" ] || fail "inspect $*: status $status instead of $expected"
    [ ! -s "$out" ] || fail "inspect $*: prints on stdout"
    [ "$(grep -c '^vgpu: ' "$err")-$(wc -l <"$err")" = 1-1 ] || fail "inspect $*: not one line"
    grep -qF -- "$words" "$err" || fail "inspect $*: does not say \"$words\""
}

# says LINE...: the last lines that were printed are just these.
says() {
    same 'what it says at last' "$(printf '%s\n' "$@")" "$(tail -n "$#" "$out")"
    [ "$1" = whole ] || same 'how much is wrong' "$#" "$(grep -c '^wrong: ' "$out")"
}

# member NAME SLICE ARGUMENT...: a process in that slice's region (member.c), its pid in $pid.
member() {
    label=$1 slice=$2
    shift 2
    CUDA_DEVICE_MEMORY_SHARED_CACHE=$state/$slice/region "$MEMBER" "$root/$label.ready" "$@" &
    pid=$!
    started="$started $pid"
    wait_for "$root/$label.ready"
}

# make_slice NAME ARGUMENT...: one that lives to the test's end, or until $holder is killed.
make_slice() {
    name=$1
    shift
    start "$name" --name "$name" "$@" sh -c 'touch "$0"; exec sleep 1000' "$root/$name.made"
    holder=$pid
    wait_for "$root/$name.made"
    sleeper=$(cat "/proc/$pid/task/$pid/children")
    started="$started $sleeper"
    region=$state/$name/region
}

# Where figures lie in the file (include/vgpu_region.h).
own=2011136
at_device_count=56
at_first_uuid=64
at_slots=1856
at_slot_count=2008896
at_version=$((own + 8))
at_lock=$((own + 16))
at_share_count=$((own + 24))
at_used=$((own + 64))
at_throttled_ns=$((own + 96))
at_throttled=$((own + 104))
at_held=$((own + 112))
at_burst_ns=$((own + 120))
at_refilled=$((own + 128))
at_charged=$((own + 144))
at_corrected=$((own + 152))
at_shut=$((own + 168))
at_shut_at=$((own + 176))
at_gang=$((own + 2176))
at_gang_shut_at=$((at_gang + 16))
at_gang_members=$((at_gang + 32))
at_gang_member=$((at_gang + 128))
at_claims=$((own + 4096))

# owner_of FILE: as the gang has it, the process in slot 0, whose slot was claimed fewer than 32 times:
# for put.
owner_of() {
    claims=$(od -An -tu1 -j "$at_claims" -N1 "$1")
    printf '\\1\\%o\\0\\0' $((claims * 8))
}

# put FILE OFFSET BYTES: BYTES as printf has them.
put() {
    # shellcheck disable=SC2059
    printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
