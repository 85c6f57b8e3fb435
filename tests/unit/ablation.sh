#!/bin/sh
# ablation.sh BUILD gang|device: what each constant of src/pace is worth, as tables of docs/design/ablation.md. Builds src/pace
# with one constant of constants.h changed at a time, and plays models in virtual time. Needs cmocka.
#
# gang: the jobs of tests/unit/pace_gang.c: by how many points a job falls short of its quota and a device is above it at
# most, and how many runs of 42 are beyond the test's bounds.
# device: the random programs of tests/unit/pace_programs.c, PROGRAMS (100) of each of its kinds: how many get 1.5 and 3
# points more than their quota, how many 3 points less, and by how many percent the charge is wrong in the mean. Then how many
# tests of pace_overdue.c and others in virtual time fail.
set -eu
build=$(cd "${1:-build}" && pwd)
what=${2:-}
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
also='overdue stalls lease lease_programs sync sample pacer pacer_odd'

# compile TEST FILE…: builds a test of tests/unit with the files of src/pace.
compile() {
    test=$1
    shift
    cc -std=gnu11 -D_GNU_SOURCE -DVGPU_FAULTS -O1 -w -I"$work" -I"$top/src/region" -I"$top/src/base" -I"$top/src/turn" -I"$top/src/trace" \
        -I"$top/include" -I"$top/tests/harness" -I"$top/tests/unit" -Wl,--wrap="$wrapped" -o "$work/$test" "$work/$test.c" \
        "$build/tests/libvgpu_test_unit.a" "$@" "$build/src/region/libvgpu_region_faulty.a" \
        "$build/src/turn/libvgpu_turn_faulty.a" "$build/src/trace/libvgpu_trace_faulty.a" "$build/src/base/libvgpu_base_faulty.a" -lcmocka -lpthread
}

# changed NAME VALUE: copies src/pace, with one constant changed; no name leaves all as they are.
changed() {
    rm -rf "$work"
    mkdir "$work"
    cp "$top"/src/pace/*.[ch] "$top"/tests/unit/pace_*.c "$top"/tests/unit/*.h "$work"
    [ -n "$1" ] || return 0
    grep -q "^#define $1 " "$work/constants.h" || { echo "ablation.sh: no constant $1" >&2; exit 1; }
    sed -i "s/^#define $1 .*/#define $1 ($2)/" "$work/constants.h"
}

gang_figures() {
    wrapped=none
    (cd "$work" && compile pace_gang gang.c gang_table.c gang_time.c holder.c bucket.c)
    timeout 120 "$work/pace_gang" 2>&1 | awk '
        / quota [0-9]+: / {
            quota = got = busy = $0
            sub(/.* quota /, "", quota); sub(/:.*/, "", quota)
            sub(/.*: /, "", got); sub(/ %.*/, "", got)
            sub(/.*busy /, "", busy); sub(/ %.*/, "", busy)
            if (quota - got > short) short = quota - got
            if (busy - quota > above) above = busy - quota
        }
        /^beyond their bounds/ { beyond = $NF }
        END { printf "%.1f | %.1f | %s\n", short, above, beyond == "" ? "none ends" : beyond }'
}

device_figures() {
    wrapped='clock_now_ns,--wrap=clock_coarse_ns,--wrap=clock_steady_ns,--wrap=clock_unix_s,--wrap=sys_sleep_ns'
    (
        cd "$work"
        for file in "$top"/src/pace/*.c; do
            cc -std=gnu11 -D_GNU_SOURCE -DVGPU_FAULTS -O1 -w -c -I. -I"$top/src/region" -I"$top/src/base" \
                -I"$top/src/turn" -I"$top/src/trace" -I"$top/include" "$(basename "$file")"
        done
        ar rc pace.a ./*.o
        for test in programs $also; do
            compile "pace_$test" pace.a
        done
    )
    failed=$(for test in $also; do
        timeout 60 "$work/pace_$test" 2>&1
    done | grep -c 'FAILED  \] test_' || true)
    failed=$((failed / 2)) # each is said when it fails, and in the list at the end
    PROGRAMS=${PROGRAMS:-100} VGPU_TEST_VERBOSE=1 timeout 600 "$work/pace_programs" 2>&1 | awk -v failed="$failed" '
        /^.*kind [0-9]+, / {
            gsub(/[,;%]/, "")
            for (i = 1; i < NF; i++) {
                if ($i == "by" && $(i + 1) == "1.5:") above += $(i + 2)
                if ($i == "by" && $(i + 1) == "3:" && $(i - 1) != "below") far += $(i + 2)
                if ($i == "below") below += $(i + 3)
            }
            charge += $NF
            kinds++
        }
        END { printf "%d | %d | %d | %.2f | %d\n", above, far, below, kinds ? charge / kinds : 0, failed }'
}

# row LABEL [NAME VALUE]
row() {
    changed "${2:-}" "${3:-}"
    printf '| %s | %s |\n' "$1" "$("${what}_figures")"
}

gang_rows() {
    echo '| | short by | above by | beyond |'
    echo '|---|---|---|---|'
    row 'as it is'
    row 'GANG_SHUT_NS: half of the debt' GANG_SHUT_NS '(int64_t)-10000000'
    row 'twice' GANG_SHUT_NS '(int64_t)-40000000'
    row 'GANG_CLOSING_TIMES: half' GANG_CLOSING_TIMES 4
    row 'twice' GANG_CLOSING_TIMES 16
    row 'off: the debt is always 20 ms' GANG_CLOSING_TIMES 0
    row 'GANG_GRACE_NS: half' GANG_GRACE_NS 25000
    row 'twice' GANG_GRACE_NS 100000
    row 'off' GANG_GRACE_NS 0
    row 'no member goes on while the gang closes' GANG_GRACE_NS '10 * NS_PER_S'
    row 'GANG_CATCH_UP_NS: half' GANG_CATCH_UP_NS '100 * NS_PER_US'
    row 'twice' GANG_CATCH_UP_NS '400 * NS_PER_US'
    row 'off: members catch up launch by launch' GANG_CATCH_UP_NS 0
    row 'GANG_CATCH_UP_FOR_NS: half' GANG_CATCH_UP_FOR_NS '10 * NS_PER_MS'
    row 'twice' GANG_CATCH_UP_FOR_NS '40 * NS_PER_MS'
    row 'GANG_AHEAD_LEAST_NS: half' GANG_AHEAD_LEAST_NS '2 * NS_PER_MS'
    row 'twice' GANG_AHEAD_LEAST_NS '8 * NS_PER_MS'
    row 'off: as far ahead as ever' GANG_AHEAD_LEAST_NS GANG_AHEAD_NS
    row 'GANG_SOFT_NS: half' GANG_SOFT_NS '50 * NS_PER_MS'
    row 'twice' GANG_SOFT_NS '200 * NS_PER_MS'
    row 'off: members go on all the time' GANG_SOFT_NS '1000 * NS_PER_S'
    row 'GANG_HARD_NS: half' GANG_HARD_NS '12 * NS_PER_MS'
    row 'twice' GANG_HARD_NS '50 * NS_PER_MS'
    row 'GANG_PATIENCE_NS: half' GANG_PATIENCE_NS '10 * NS_PER_MS'
    row 'twice' GANG_PATIENCE_NS '40 * NS_PER_MS'
    row 'off' GANG_PATIENCE_NS '1000 * NS_PER_S'
}

device_rows() {
    echo '| | above by 1.5 | above by 3 | below by 3 | charge wrong by, % | tests that fail |'
    echo '|---|---|---|---|---|---|'
    row 'as it is'
    for rule in \
        'COST_GUESS_TIMES=1' 'COST_SAMPLES_NEW=1' 'COST_WAITS=1' \
        'OVERDUE_NS=10 * NS_PER_S' 'OVERDUE_BEHIND_NS=10 * NS_PER_S' 'OVERDUE_BEHIND_NS=1 * NS_PER_MS' \
        'PATIENCE_NS=0' 'PATIENCE_MORE_NS=PATIENCE_NS' 'PATIENCE_MOST_NS=PATIENCE_NS' 'PATIENCE_KNOWN=1' 'PATIENCE_ALIKE=1' \
        'SETTLE_EACH_NS=SETTLE_MOST_NS' 'SETTLE_MOST_NS=SETTLE_EACH_NS' 'OVERDUE_WAITED_NS=10 * NS_PER_S' 'OVERDUE_AWAITED=0' \
        'LEASE_LAUNCHES=1' 'LEASE_PARTS=1' 'LEASE_GAP_NS=1 * NS_PER_S' 'LEASE_AFTER=1' \
        'METER_MIXED_NS=0' 'METER_RELAXED=1' 'METER_UNEXPLAINED_NS=10 * NS_PER_S' 'METER_CREDIT_NS=(int64_t)1000000000' \
        'PROBE_COUNT=1' 'ASK_EACH_NS=10 * NS_PER_S' 'ASK_IDLE_NS=10 * NS_PER_S' \
        'NAP_AFTER_NS=10 * NS_PER_US' 'CHARGING_MOST_NS=0' 'CHARGING_MOST_NS=1 * NS_PER_S' \
        'EVENT_LEAST_NS=0' 'EVENT_MOST_NS=EVENT_LEAST_NS' 'EVENT_IDLE_NS=0' 'SAMPLE_LEAST_NS=(int64_t)1' \
        'SAMPLE_BLIND_NS=1' 'SAMPLE_NEW_NS=SAMPLE_EVERY_NS' 'SAMPLE_SPREAD_NS=1' \
        'SAMPLE_APART_NS=0' 'SAMPLE_DUE_LOG2=0' 'SAMPLE_AHEAD_NS=0' \
        'SAMPLE_ASKS=0' 'SAMPLE_ASKS_BEGUN=0' 'SAMPLE_CALL_NS=1 * NS_PER_S' 'SPAN_CLOSED_MOST=1' \
        'SYNC_WINDOW_NS=0' 'SYNC_WINDOW_NS=1000 * NS_PER_S' 'SYNC_RELAXED=1' \
        'SYNC_IDLE=0' 'SYNC_WAKE_NS=0' 'SYNC_AT_ONCE_NS=0' 'SYNC_UNEXPLAINED_PART=1' 'SYNC_UNEXPLAINED_PART=1000000' \
        'SYNC_COPY_BYTES=UINT64_MAX' 'SYNC_COPY_LONG=UINT64_MAX' \
        'WINDOW_NS=NS_PER_MS \/ 8' 'WINDOW_NS=8 * NS_PER_MS' 'WINDOW_LONG_NS=1000 * NS_PER_S' 'WINDOW_LAUNCHES=1000000' \
        'WINDOW_IDLE_PART=1' 'WINDOW_IDLE_NS=0' 'WINDOW_ASK_PART=1' 'WINDOW_OWED_NS=(int64_t)0'; do
        row "$(printf %s "$rule" | sed 's|\\||; s|=| = |')" "${rule%%=*}" "${rule#*=}"
    done
}

case $what in
gang | device) "${what}_rows" ;;
*) echo "usage: tests/unit/ablation.sh BUILD gang|device" >&2; exit 2 ;;
esac
