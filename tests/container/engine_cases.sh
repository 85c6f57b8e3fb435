#!/bin/sh
# The cases for Podman and Docker, which take the same flags; to be sourced after lib.sh. The test has defined `engine` and
# $engine_command, which is podman or docker with options, $flags, which each container needs, and $has_cdi: yes, or no where the
# engine takes no CDI devices. Then containers get the same mounts as flags. $may_refuse is yes where the
# engine may make the mounts of CDI devices read-only with --read-only: then the slice is refused.
# shellcheck disable=SC2154 # lib.sh and the test have set these
# shellcheck disable=SC2086,SC2317 # $flags holds several; until_it calls functions
if [ "$has_cdi" = yes ]; then
    gpu="--device nvidia.com/gpu=0 $driver_flags"
else
    gpu="$(driver_volumes) $driver_flags"
fi

# slice NAME MEMORY: the flags by which a container gets the slice, which has that much of the first GPU.
slice() {
    vgpu cdi "$1" --memory "$2" --gpus 0 >"$work/out" 2>&1 || fail 'vgpu cdi'
    if [ "$has_cdi" = yes ]; then
        echo "--device vgpu.local/slice=$1"
    else
        vgpu cdi "$1" --memory "$2" --gpus 0 --flags
    fi
}

# container WHAT FLAGS -- COMMAND...: runs it in a container that has the GPU, and waits; its output is in $work/out.
container() {
    what=$1
    shift
    wanted=
    while [ "$1" != -- ]; do
        wanted="$wanted $1"
        shift
    done
    shift
    engine run --rm $flags $gpu $wanted vgpu-test "$@" </dev/null >"$work/out" 2>&1
}

# keep NAME FLAGS...: a container that holds all that it can get until it is stopped.
keep() {
    name=$1
    shift
    engine run -d -i --name "$name" $flags $gpu "$@" vgpu-test sh -c 'sleep 1000 | hog' >"$work/out" 2>&1 ||
        fail "$what: $name does not start"
    until_it holds "$name"
}

# holds NAME: it has got all that it could.
holds() {
    engine logs "$name" 2>&1 | grep -q 'one byte more'
}

# twice_full: the container has got all that it could, and again after a restart.
twice_full() {
    [ "$(engine logs first 2>&1 | grep -c 'it took .* 1520 MiB')" -eq 2 ]
}

tar -C "$image" -cf "$work/image.tar" . || exit 1
engine import "$work/image.tar" vgpu-test >"$work/out" 2>&1 || fail 'the image cannot be imported'
alice=$(slice alice 2G) || exit 1
bob=$(slice bob 1G) || exit 1
chmod 666 "$work/gpu/"* # the simulated machine is everybody's

# -- how it is started --
container 'without a slice' -- hog
says '81920 MiB' # the whole GPU: what holds below is the slice
container 'a slice' $alice -- hog
sees 2048
container 'another one' $bob -- hog
sees 1024
container 'an empty environment' $alice -- env -i VGPU_SIM_STATE=/gpu/state hog
sees 2048
container 'a shell in between' $alice -- sh -c 'LD_PRELOAD= hog | cat'
sees 2048
container 'another user' --user 1000:1000 $alice -- hog
sees 2048
container 'a third user, over the region of the second' --user 1001:1001 $alice -- hog
sees 2048
container 'a read-only root' --read-only $alice -- hog
if [ "$may_refuse" = yes ] && grep -q 'mount the slice.s directory read-write' "$work/out"; then
    echo "note: --read-only makes the mounts of devices read-only, and the slice is refused"
else
    sees 2048
fi
# shellcheck disable=SC2046 # flags
container 'a read-only root, and flags' --read-only $(vgpu cdi bob --memory 1G --gpus 0 --flags) -- hog
sees 1024
container 'no capabilities' --cap-drop ALL --security-opt no-new-privileges $alice -- hog
sees 2048
container 'the pid namespace of the host' --pid host $alice -- hog
sees 2048
# shellcheck disable=SC2046 # flags
container 'flags instead of a device' $(vgpu cdi bob --memory 1G --gpus 0 --flags) -- hog
sees 1024

what='a slice for a single run'
vgpu run --container --memory 3G --gpus 0 -- $engine_command run --rm $flags $gpu vgpu-test hog </dev/null >"$work/out" 2>&1
sees 3072
[ "$(cd "$work/containers/slices" && echo *)" = 'alice bob' ] || fail "$what: it is still there"

# -- what the tenant may not --
tenant_attempts $alice
container 'after that' $alice -- hog
sees 2048

# -- what doctor says in a container --
container 'doctor' $bob -- vgpu doctor
says '^ok *policy'
says '^ok *region'
says '^ok *preload'
container 'a program for glibc' $bob -- vgpu doctor hog
says '^ok *held'
if [ -e "$image/usr/bin/busybox" ]; then
    container 'a static program' $bob -- vgpu doctor busybox
    says '^FAIL *held.*linked statically'
    container 'what a static program starts' $bob -- busybox env hog
    sees 1024
fi

# -- several, side by side --
what='side by side'
keep first $alice
name=first
engine logs first >"$work/out" 2>&1
sees 2048
container 'another slice at the same time' $bob -- hog
sees 1024
container 'the same slice, which is full' $alice -- hog
says 'CUDA_ERROR_OUT_OF_MEMORY'
grep -q 'it took' "$work/out" && fail "$what: it gets memory"
what='vgpu ps on the host'
vgpu ps alice >"$work/out" 2>&1
says '^alice .* 2 GiB .* 1 running'
what='removing a slice in use'
vgpu cdi --remove alice >"$work/out" 2>&1 && fail "$what: it is removed"
says 'stop its containers'

# -- exec, restart, death --
what='exec'
engine exec first hog </dev/null >"$work/out" 2>&1
says 'CUDA_ERROR_OUT_OF_MEMORY'
what='restart'
engine restart -t 0 first >"$work/out" 2>&1 || fail "$what: it fails"
until_it twice_full
what='a container that is killed'
engine kill first >/dev/null 2>&1
engine rm -f first >/dev/null 2>&1
container 'the slice after it' $alice -- hog
sees 2048
what='a container that idles'
engine run -d --name idle $flags $gpu $alice vgpu-test sleep 1000 >"$work/out" 2>&1 || fail "$what: it does not start"
what='exec in an idle container'
engine exec idle hog </dev/null >"$work/out" 2>&1
sees 2048
what='exec as another user'
engine exec --user 1000 idle env -i VGPU_SIM_STATE=/gpu/state hog </dev/null >"$work/out" 2>&1
sees 2048

# -- other limits --
what='other limits for a running container'
vgpu cdi alice --memory 1536m --gpus 0 >/dev/null || fail 'vgpu cdi'
engine exec idle hog </dev/null >"$work/out" 2>&1
sees 1536
what='a slice removed under its container'
vgpu cdi --remove alice >"$work/out" 2>&1 || fail "$what: it is not removed"
engine exec idle hog </dev/null >"$work/out" 2>&1
grep -q 'the program sees' "$work/out" && fail "$what: the program has a GPU"
container 'the device of a removed slice' $alice -- hog
grep -q 'the program sees' "$work/out" && fail "$what: the program starts"
engine kill idle >/dev/null 2>&1
engine rm -f idle >/dev/null 2>&1
