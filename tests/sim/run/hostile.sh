#!/bin/sh
# Tenants' files under the tools of root: truncated while a tool uses them, or no files at all.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/ps_lib.sh"
: "${TRUNCATING?}" # from CMakeLists.txt; empty where nothing can be preloaded into vgpu

make_slice web --gpus 0 --memory 1G
cp "$region" "$root/whole"
container pod "$root/whole"

# truncated N ARGUMENT...: the N-th region that vgpu maps is truncated at once. It ends by itself, with a line for a failure.
truncated() {
    nth=$1
    shift
    cp "$root/whole" "$cache"
    TRUNCATE=$nth LD_PRELOAD=$TRUNCATING "$VGPU" "$@" >"$out" 2>"$err" </dev/null
    status=$?
    case $status in
    0 | 1) ;;
    125) grep -q '^vgpu: ' "$err" || fail "vgpu $*: no line" ;;
    *) fail "vgpu $*, truncated at the mapping $nth: status $status" ;;
    esac
}

truncations() {
    for nth in 1 2 3; do
        truncated "$nth" set --memory 2G pod
        truncated "$nth" set --cores 20 pod
        truncated "$nth" pause pod
        truncated "$nth" resume pod
        truncated "$nth" inspect pod
        truncated "$nth" inspect "$cache"
        truncated "$nth" rm --force pod
        [ -e "$cache" ] || container pod "$root/whole"
        truncated "$nth" rm pod
        [ -e "$cache" ] || container pod "$root/whole"
        truncated "$nth" ps
        truncated "$nth" top --batch --count 1
    done
    truncated 1 set --memory 2G pod
    same 'the status where the region is lost' 125 "$status"
    grep -q 'was truncated' "$err" || fail 'set does not say why'
    truncated 1 pause pod
    grep -q 'was truncated' "$err" || fail 'pause does not say why'
    truncated 1 rm pod
    grep -q 'was truncated' "$err" || fail 'rm does not say why'
    [ -e "$cache" ] || fail 'rm removes what it could not look at'

    # In a slice of vgpu run, as root does with its users'.
    for nth in 1 2 3; do
        for command in 'set --memory 2G' pause resume inspect rm 'rm --force'; do
            start "own$nth" --name "own$nth" --memory 1G sh -c 'touch "$0"; exec sleep 1000' "$root/own.made"
            wait_for "$root/own.made"
            sleeper=$(cat "/proc/$pid/task/$pid/children")
            # shellcheck disable=SC2086 # an option, and its value
            TRUNCATE=$nth LD_PRELOAD=$TRUNCATING "$VGPU" $command "own$nth" >"$out" 2>"$err" </dev/null
            status=$?
            [ "$status" -le 1 ] || [ "$status" -eq 125 ] || fail "$command of own$nth: status $status"
            kill "$sleeper" 2>/dev/null
            wait "$pid"
            rm -rf "$state/own$nth" "$root/own.made"
        done
        start "own$nth" --name "own$nth" --memory 1G sh -c 'touch "$0"; exec sleep 1000' "$root/own.made"
        wait_for "$root/own.made"
        sleeper=$(cat "/proc/$pid/task/$pid/children")
        TRUNCATE=$nth LD_PRELOAD=$TRUNCATING "$VGPU" run --name "own$nth" true >"$out" 2>"$err" </dev/null
        status=$?
        [ "$status" -le 1 ] || [ "$status" -eq 125 ] || fail "run of own$nth: status $status"
        kill "$sleeper" 2>/dev/null
        wait "$pid"
        rm -rf "$state/own$nth" "$root/own.made"
    done
}
[ -z "$TRUNCATING" ] || truncations

# A slice in another user's directory, with links to what is root's alone: root's tools act as that user.
if [ "$(id -u)" -eq 0 ]; then
    mkdir -m 755 "$state/theirs"
    mkdir -m 700 "$root/secret"
    echo 'memory = 1G' >"$root/secret/$uuid0"
    echo 'gang = secret' >"$root/secret/slice"
    ln -s "$root/secret" "$state/theirs/policy"
    : >"$state/theirs/lock"
    cp "$root/whole" "$root/mine"
    chmod 600 "$root/mine"
    CUDA_DEVICE_MEMORY_SHARED_CACHE=$root/mine "$MEMBER" "$root/mine.ready" &
    started="$started $!"
    wait_for "$root/mine.ready"
    cp "$root/mine" "$root/as_it_was"
    ln "$root/mine" "$state/theirs/region"
    chown -h nobody "$state/theirs" "$state/theirs/policy" "$state/theirs/lock"
    "$VGPU" inspect theirs >"$out" 2>"$err"
    ! grep -q 'secret' "$out" "$err" || fail 'inspect reads what its owner may not'
    for command in pause 'set --memory 2G' rm; do
        # shellcheck disable=SC2086 # an option, and its value
        "$VGPU" $command theirs >"$out" 2>"$err"
        same "the status of $command of root's own region" 125 "$?"
        cmp -s "$root/mine" "$root/as_it_was" || fail "$command writes what the slice's owner may not"
    done
    rm -rf "$state/theirs"
fi

# A named pipe stands for devices, too: whoever waits to write it sees whether it is opened.
untouched() {
    name=$1
    shift
    "$VGPU" "$@" >"$out" 2>"$err" </dev/null
    status=$?
    [ "$status" -lt 126 ] || fail "vgpu $*: status $status"
    sleep 0.05
    [ ! -e "$root/opened" ] || fail "vgpu $* opens the pipe in the place of $name"
}
for name in region lock; do
    mkdir -p "$state/odd/policy"
    echo 'memory = 1G' >"$state/odd/policy/$uuid0"
    : >"$state/odd/lock"
    cp "$root/whole" "$state/odd/region"
    rm "$state/odd/$name"
    mkfifo "$state/odd/$name"
    sh -c 'exec 3>"$0"; touch "$1"' "$state/odd/$name" "$root/opened" &
    writer=$!
    started="$started $writer"
    for command in ps 'ps odd' 'ps --json' 'top --batch --count 1' 'set --memory 1G odd' 'inspect odd' \
        "inspect $state/odd/region" 'pause odd' 'resume odd' 'rm odd' 'run --name odd true' 'run --unlimited true' 'trace odd'; do
        # shellcheck disable=SC2086 # words
        untouched "$name" $command
    done
    kill -9 "$writer"
    rm -rf "$state/odd"
done
mkfifo "$hami/containers/pod/x.cache"
sh -c 'exec 3>"$0"; touch "$1"' "$hami/containers/pod/x.cache" "$root/opened" &
started="$started $!"
untouched x.cache ps
untouched x.cache inspect "$hami/containers/pod/x.cache"
untouched x.cache set --memory 1G "$hami/containers/pod/x.cache"
untouched x.cache pause "$hami/containers/pod/x.cache"
untouched x.cache rm "$hami/containers/pod/x.cache"
[ -p "$hami/containers/pod/x.cache" ] || fail 'the pipe is removed'
