#!/bin/sh
# `vgpu doctor`: policies, regions, and where slices are kept.
# shellcheck disable=SC2119 # doctor may have no arguments
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/inspect_lib.sh"
. "$(dirname "$0")/doctor_lib.sh" # whose says is the one that counts

# Where slices are kept.
doctor
says ok state "$state, which vgpu run makes"
[ ! -e "$state" ] || fail 'it was made'
says ok turns 'vgpu run makes a directory for them'
mkdir "$state"
doctor
says ok state "$state"
chmod 777 "$state"
doctor
says FAIL state "others may write in the state directory $state"
chmod 755 "$state"
ln -s "$state" "$root/link"
for wrong in "$root/link" "$root/no/directory" "$err"; do
    through="env VGPU_STATE=$wrong"
    doctor
    says FAIL state "the state directory $wrong cannot be"
done

# Policies.
policy=$root/policy
through="env VGPU_POLICY=$policy"
doctor
says FAIL policy "VGPU_POLICY names $policy, which is not there"
silent slice
silent region
mkdir "$policy"
echo 'memory = 8Q' >"$policy/$uuid0"
doctor
says FAIL policy "$policy/$uuid0, line 1: \"8Q\" is no size"
echo 'memory = 8G' >"$policy/$uuid0"
echo "region = $root/region" >"$policy/slice"
doctor
grep -q "^\(ok   \|note \) policy .*$policy" "$out" || fail "the policy: $(cat "$out")"
says ok slice 'this is in a slice, by a policy'
says ok region "$root/region, which the first program to use CUDA makes"
says ok state 'slices do not nest'
says FAIL preload 'there are limits here'
echo 'memory = unlimited' >"$policy/GPU-none"
doctor
says warn policy "$policy lists GPU-none, which this machine has not"
rm "$policy/$uuid0"
doctor
says FAIL policy "$policy lists GPU-none, which this machine has not"
mv "$policy/GPU-none" "$policy/MIG-51300000-0000-4000-8000-000000000011"
doctor
says FAIL policy 'which this machine has not'
through="env VGPU_POLICY=$policy VGPU_SIM_NVML_MIG=1"
doctor
grep -q "^\(ok   \|note \) policy .*$policy" "$out" || fail "a MIG instance's: $(cat "$out")"

# Turns.
turns=$root/turns
through="env VGPU_POLICY=$policy VGPU_SIM_NVML_MIG=1 VGPU_TURNS=$turns"
doctor
says note turns "off: there is no vgpud, and $turns, where slices take turns, cannot be used: No such file or directory"
mkdir "$turns"
doctor
says ok turns "on: slices take turns by files in $turns"
if command -v python3 >/dev/null; then
    python3 -c 'import os, socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1] + ".new")
s.listen()
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)' "$VGPU_SOCKET" &
    started="$started $!"
    wait_for "$VGPU_SOCKET"
    doctor
    says ok turns "on: vgpud hands out their files at $VGPU_SOCKET"
    rm "$VGPU_SOCKET"
fi

# HAMi's variables.
through='env CUDA_DEVICE_MEMORY_LIMIT=8x'
doctor
says FAIL slice 'CUDA_DEVICE_MEMORY_LIMIT is "8x", which is no size'
silent region
through="env CUDA_DEVICE_MEMORY_LIMIT=8g CUDA_DEVICE_MEMORY_SHARED_CACHE=$root/region"
doctor
says ok slice "HAMi's variables"

# the_region FILE: doctor, where that is the region.
the_region() {
    through="env CUDA_DEVICE_MEMORY_LIMIT=8g CUDA_DEVICE_MEMORY_SHARED_CACHE=$1"
    doctor
}
the_region "$root/no/region"
says FAIL region "the region $root/no/region cannot be made"
: >"$root/empty"
the_region "$root/empty"
says ok region "$root/empty, which the first program to use CUDA makes"
head -c 2097152 /dev/urandom >"$root/noise"
the_region "$root/noise"
says FAIL region 'it holds something else'
the_region "$root"
says FAIL region 'it is a directory'

make_slice x --gpus 0 --memory 2G
chmod 666 "$region" # as where no policy names a group
the_region "$region"
says ok region "$region is whole, with 0 processes"
member one x 4096
the_region "$region"
says ok region "$region is whole, with 1 process"
kill -9 "$pid"
wait_gone "$pid"
cp "$region" "$root/copy"
chmod 666 "$root/copy"
put "$root/copy" "$at_used" '\1'
cksum <"$root/copy" >"$root/before"
the_region "$root/copy"
says warn region "$root/copy is not whole (device 0: its total is"
cksum <"$root/copy" | cmp -s - "$root/before" || fail 'looking changed it'
cp "$region" "$root/copy"
chmod 600 "$root/copy"
the_region "$root/copy"
says warn region "not every user may write the region $root/copy (mode 0600)"
ln -s copy "$root/linked"
the_region "$root/linked"
says FAIL region 'it is a symbolic link'

# In a slice of vgpu run's.
through="$VGPU run --name x"
doctor
says ok slice 'by a policy'
says ok region "$region is whole"
says note preload "$library is in this process"
says ok state 'slices do not nest'

# Another user.
through=
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$root"
    as_nobody="setpriv --reuid $(id -u nobody) --clear-groups"
    if $as_nobody test -x "$VGPU"; then
        chmod 644 "$root/copy"
        mkdir -m 777 "$root/nobody"
        as_nobody="$as_nobody env VGPU_SIM_STATE=$root/nobody/sim"
        through="$as_nobody CUDA_DEVICE_MEMORY_LIMIT=8g VGPU_STATE=$state
            CUDA_DEVICE_MEMORY_SHARED_CACHE=$root/copy"
        doctor
        says FAIL region "this user may not write the region $root/copy (Permission denied)"
        says FAIL state "the state directory $state is another user"
        through="$as_nobody CUDA_DEVICE_MEMORY_LIMIT=8g CUDA_DEVICE_MEMORY_SHARED_CACHE=$root/new"
        doctor
        says FAIL region "the region $root/new cannot be made: Permission denied"
        mkdir -p "$policy"
        through="$as_nobody VGPU_POLICY=$policy VGPU_SIM_NVML_MIG=1"
        doctor
        says ok policy "$policy, of "
        chown -R nobody "$policy"
        doctor
        says note policy "this user may change $policy"
    fi
fi
through=

# A container's policy, in a file system of our own.
can_be_apart || exit 0
cat >"$root/container" <<'END'
mount -t tmpfs none /etc && mkdir -p /etc/vgpu/policy && echo 'memory = 8G' >"/etc/vgpu/policy/$1" &&
    { [ "$2" = rw ] || mount -o remount,bind,ro /etc; } && shift 2 && exec "$@"
END
unshare -rm sh "$root/container" "$uuid0" rw "$VGPU" doctor >"$out"
says warn policy 'this user may change /etc/vgpu/policy'
says FAIL preload 'there are limits here'
unshare -rm sh "$root/container" "$uuid0" ro "$VGPU" doctor >"$out"
says ok policy '/etc/vgpu/policy, of 1 GPU'
