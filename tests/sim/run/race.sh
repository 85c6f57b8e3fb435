#!/bin/sh
# Many come and go under two names, some of them killed: whoever gets in finds the slice whole, for
# as long as it stays, and in the end nothing is left.
. "$(dirname "$0")/lib.sh"

cat >"$root/inside" <<'EOF'
# The slice must be the same, and whole, from the first look to the last.
look() {
    cat "$VGPU_POLICY/slice" "$VGPU_POLICY"/GPU-* && [ -s "$CUDA_DEVICE_MEMORY_SHARED_CACHE" ] &&
        stat -c %i "$VGPU_POLICY" "$CUDA_DEVICE_MEMORY_SHARED_CACHE"
}
before=$(look) || exit 90
sleep "$1"
after=$(look) || exit 91
[ "$before" = "$after" ] || exit 92
EOF

# worker NUMBER: one after another; $root/bad gets a line for each that went wrong.
worker() {
    i=0
    while [ "$i" -lt 25 ]; do
        i=$((i + 1))
        "$VGPU" run --name "s$((i % 2))" --memory 1G sh "$root/inside" "0.00$(($1 * i % 9))" \
            2>>"$root/bad" || echo "worker $1, turn $i: status $?" >>"$root/bad"
    done
}

# The killed: their commands end soon, and whoever comes next makes the slice anew.
killer() {
    i=0
    while [ "$i" -lt 25 ]; do
        i=$((i + 1))
        "$VGPU" run --name "k$((i % 2))" --memory 1G true 2>>"$root/bad" &
        victim=$!
        sleep "0.00$((i % 9))"
        kill -9 "$victim" 2>/dev/null
        wait "$victim" 2>/dev/null
        "$VGPU" run --name "k$((i % 2))" --memory 1G sh "$root/inside" 0 2>>"$root/bad" ||
            echo "after kill $i: status $?" >>"$root/bad"
    done
}

: >"$root/bad"
workers=
for number in 1 2 3 4; do
    worker "$number" &
    workers="$workers $!"
done
killer 2>/dev/null &
workers="$workers $!"
for worker in $workers; do
    wait "$worker"
done
[ ! -s "$root/bad" ] || fail "$(sort "$root/bad" | uniq -c | head -20)"
expect 0 --unlimited true
same 'what is left' '' "$(slices)"
