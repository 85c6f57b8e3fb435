#!/bin/sh
# make fuzz: tests/fuzz/run.sh [SECONDS [TARGET…]] runs each target for that long (300), beginning
# with its corpus, and brings home what covers more of the code than the corpus did. Of that, commit
# what is worth it: some sixty files a target are enough. What a target falls over stays in the build.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-300}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- policy environment region turns turn_offer elf image plugin_messages plugin_pods plugin_grpc plugin_config \
    dra_claim dra_answers
build="build-fuzz"
most_bytes=4096

cmake --preset fuzz >/dev/null
MAKEFLAGS=--no-print-directory cmake --build "$build" --target fuzzers --parallel "$(nproc 2>/dev/null || echo 2)"
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
failed=0

for target; do
    fuzzer=$build/tests/fuzz/fuzz_$target
    corpus=tests/fuzz/corpus/$target
    log=$build/tests/fuzz/$target.log
    rm -rf "${found:?}"/*
    echo "$target: $seconds s"
    if "$fuzzer" -max_total_time="$seconds" -max_len="$most_bytes" -timeout=10 \
        -artifact_prefix="$build/tests/fuzz/$target-" "$found" "$corpus" >"$log" 2>&1; then
        sed -n 's/^#[0-9]*\tDONE *//p; s/^Done /ran: /p' "$log"
    else
        tail -n 60 "$log"
        failed=1
    fi
    # Without counters: what goes the same ways more often is not worth a file.
    "$fuzzer" -merge=1 -set_cover_merge=1 -use_counters=0 -timeout=10 "$corpus" "$found" >"$log.merge" 2>&1 ||
        failed=1
    git ls-files --others -- "$corpus" | sed 's/^/new: /'
done
exit "$failed"
