#!/bin/sh
# make check: what the project asks of a change, beside its tests. Every part is run, and the
# first word of each line says how it went; the errors and the last lines of a part that failed come
# after it.
#
# The parts that only compute run alongside the parts with tests, and take what time of the processors
# these leave: many of the tests sleep. Their lines come last. `check.sh computing` runs them alone.
# shellcheck disable=SC2317 # the functions are called through part
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=$(nproc 2>/dev/null || echo 2)
log=$(mktemp)
lines=$(mktemp) # of the parts that only compute
computing= # their process
trap '[ -z "$computing" ] || kill "$computing"; rm -f "$log" "$lines"' EXIT
trap 'exit 130' INT TERM HUP
failed=0
MAKEFLAGS=--no-print-directory
export MAKEFLAGS

# What failed may stand far above the last lines: clang-tidy goes on with the other files, and ctest
# with the other tests. Of a test that failed, the first 30 lines are printed, and each failed check.
print_failure() {
    head -n -60 "$log" | awk '
        /^ *[0-9]+\/[0-9]+ Test / { left = /\*\*\*/ ? 30 : 0 }
        /^ +Start / { left = 0 }
        /error:|\.[ch]:[0-9]+: / || left-- > 0'
    tail -n 60 "$log"
}

# part NAME COMMAND…: a command that exits with 77 cannot run here, and its last line says why.
part() {
    name=$1 began=$(date +%s) status=0
    shift
    "$@" >"$log" 2>&1 || status=$?
    case $status in
    0) echo "ok    $name, $(($(date +%s) - began)) s" ;;
    77) echo "none  $name: $(tail -n 1 "$log")" ;;
    *)
        echo "FAIL  $name"
        print_failure
        failed=1
        ;;
    esac
}

sources() {
    git ls-files -- "$@"
}

format() {
    sources '*.c' '*.h' | xargs clang-format --dry-run -Werror
}

shell() {
    sources '*.sh' dev .ci/run | xargs shellcheck
}

# The chart's templates are no YAML, so it is linted as it is rendered.
manifests() {
    sources 'deploy/*.yaml' 'tests/kubernetes/*.yaml' | grep -v /templates/ | xargs yamllint --strict &&
        tests/kubernetes/chart.py --print | yamllint --strict -
}

manuals() {
    for page in $(sources 'docs/*.[1-8]' 'demo/*.[1-8]'); do
        mandoc -T lint -W warning "$page" || return 1
    done
}

# build PRESET
build() {
    cmake --preset "$1" >/dev/null && cmake --build "build-$1" --parallel "$jobs"
}

# run_tests PRESET LABELS
run_tests() {
    ctest --test-dir "build-$1" -L "$2" -LE figures --output-on-failure --parallel $((4 * jobs))
}

# with_tests PRESET LABELS
with_tests() {
    build "$1" && run_tests "$@"
}

# No test of it is run, but that of the names and versions in the library.
aarch64() {
    cmake --preset aarch64 >/dev/null &&
        cmake --build build-aarch64 --parallel "$jobs" --target vgpu_preload vgpu vgpu_sim_cuda &&
        ctest --test-dir build-aarch64 -R '^abi\.exports$' --no-tests=error --output-on-failure
}

# once_each DATABASE: one command for each file of that compilation database. The components and some files of
# programs are compiled for unit tests, too: of two commands, it keeps that without VGPU_FAULTS.
once_each() {
    python3 -c '
import json, sys
commands = {}
for entry in sorted(json.load(sys.stdin), key=lambda entry: "-DVGPU_FAULTS" in entry["command"]):
    commands.setdefault(entry["file"], entry)
json.dump(list(commands.values()), sys.stdout)' <"$1"
}

# The files that are not the same with VGPU_FAULTS are looked at with it, too.
tidy() {
    once=build-ubsan/once
    mkdir -p "$once" && once_each build-ubsan/compile_commands.json >"$once/compile_commands.json" || return 1
    sources 'src/*.c' 'demo/*.c' | xargs -n 4 -P "$jobs" clang-tidy -p "$once" --quiet || return 1
    sources 'src/*.c' | xargs grep -l VGPU_FAULTS | xargs clang-tidy -p "$once" --quiet --extra-arg=-DVGPU_FAULTS
}

computing_parts() {
    part 'format (clang-format)' format
    part 'shell scripts (shellcheck)' shell
    part 'manifests (yamllint)' manifests
    part 'manual pages (mandoc)' manuals
    part "the lock's model (spin)" tests/model/check.sh
    part 'the model of turns (spin)' tests/model/turns.sh
    part 'lint (clang-tidy)' tidy
    if command -v aarch64-linux-gnu-gcc >/dev/null; then
        part 'aarch64, cross-compiled' aarch64
    else
        echo 'none  aarch64, cross-compiled: needs gcc-aarch64-linux-gnu and libc6-dev-arm64-cross'
    fi
}

if [ "${1:-}" = computing ]; then
    computing_parts
    exit "$failed"
fi
# The first build is before all others, as clang-tidy needs its headers and commands.
part 'clang, warnings are errors' build ubsan
# timeout makes a group of them, all of which ends when timeout is killed.
timeout 2h chrt --idle 0 tests/check.sh computing >"$lines" 2>&1 &
computing=$!

part 'sim tests under UBSan' run_tests ubsan sim
part 'Debian 13: built with warnings as errors, most tests by a user, and each library on the other release' \
    tests/other_debian.sh trixie -R '^(abi|sim\.(doors|run|memory|spaces|devices|nvml|vgpud))'
part 'unit tests under ThreadSanitizer' with_tests tsan unit
part 'clang: unit tests under AddressSanitizer and UBSan, and fuzzers, a few seconds each' with_tests fuzz 'unit|fuzz'
wait "$computing" || failed=1
computing=
cat "$lines"
exit "$failed"
