#!/bin/sh
# build.sh BUILD: builds what demo.sh runs, and nothing else of the tree. It prints one line while it
# builds, and none where there is nothing to build. The compiler's output goes to BUILD/demo.log, of
# which the end is shown when the build fails.
set -eu
cd "$(dirname "$0")/.."
build=$1
log=$build/demo.log
done=$build/demo.built # newer than every file that the demo is built from

if [ -e "$done" ] && [ -z "$(find CMakeLists.txt api bench cmake demo include sim src \
    -newer "$done" -print -quit)" ]; then
    exit 0
fi
mkdir -p "$build"
touch "$done.begun"
echo 'Building what the demo needs; this takes less than half a minute.'
if ! { cmake -S . -B "$build" && cmake --build "$build" --parallel "${JOBS:-2}" --target demo_all; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "demo: the build failed; $log has all of its output" >&2
    exit 1
fi
mv "$done.begun" "$done"
