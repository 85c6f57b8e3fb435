#!/bin/sh
# What the command finds in its environment.
. "$(dirname "$0")/lib.sh"

# value NAME ARGUMENT...: what NAME is for a command of `vgpu run ARGUMENT...`; "-" when not set.
value() {
    name=$1
    shift
    "$VGPU" run --cores 50 "$@" sh -c "echo \"\${$name--}\""
}

same LD_PRELOAD "$NOTHING" "$(value LD_PRELOAD)"
same LD_PRELOAD "$NOTHING" "$(LD_PRELOAD='' value LD_PRELOAD)"
cp "$LD_LIBRARY_PATH/libnvidia-ml.so.1" "$root/other.so"
same LD_PRELOAD "$NOTHING:$root/other.so" "$(LD_PRELOAD=$root/other.so value LD_PRELOAD)"

same VGPU_POLICY "$state/x/policy" "$(value VGPU_POLICY --name x)"
cache=CUDA_DEVICE_MEMORY_SHARED_CACHE
same "$cache" "$state/x/region" "$(value $cache --name x)"
same "$cache" "$state/x/region" "$(CUDA_DEVICE_MEMORY_SHARED_CACHE=/y value $cache --name x)"

# Slices of one user take turns by files in the state directory.
same VGPU_TURNS "$state/turns" "$(value VGPU_TURNS --name x)"
same VGPU_TURNS /y "$(VGPU_TURNS=/y value VGPU_TURNS --name x)"
same 'the mode of turns' 700 "$(stat -c %a "$state/turns")"

# Relative or through links, the state directory is what it is.
mkdir "$root/there" && ln -s there "$root/link"
same VGPU_POLICY "$root/there/s/x/policy" \
    "$(cd "$root" && VGPU_STATE=link/s value VGPU_POLICY --name x)"

visible=CUDA_VISIBLE_DEVICES
same "$visible" - "$(value $visible)"
same "$visible" - "$(value $visible --gpus all)"
same "$visible" "$uuid1" "$(value $visible --gpus 1)"
same "$visible" "$uuid1,$uuid0" "$(value $visible --gpus 1,0)"
same "$visible" 0 "$(CUDA_VISIBLE_DEVICES=0 value $visible --gpus 1)"
same "$visible" '' "$(CUDA_VISIBLE_DEVICES='' value $visible --gpus 1 2>"$err")"

# HAMi's limits can only lower the slice's: they stay.
limit=CUDA_DEVICE_MEMORY_LIMIT_0
same "$limit" 1g "$(CUDA_DEVICE_MEMORY_LIMIT_0=1g value $limit --memory 2G)"
same "$limit" - "$(value $limit --memory 2G)"

# Its working directory, umask and priorities are those of whoever ran it.
same 'the working directory' /usr "$(cd /usr && "$VGPU" run --unlimited pwd)"
same 'the umask' 0027 "$(umask 027 && "$VGPU" run --unlimited sh -c umask)"

# A list from outside that hides all of the slice's GPUs is said, and kept.
hides() {
    CUDA_VISIBLE_DEVICES=$1 "$VGPU" run --memory 1G --gpus "$2" printenv CUDA_VISIBLE_DEVICES >"$out" 2>"$err"
    same "the status with \"$1\"" 0 "$?"
    same 'what the command has' "$1" "$(cat "$out")"
    grep -qF "vgpu: warning: CUDA_VISIBLE_DEVICES=\"$1\" hides all GPUs of the slice" "$err"
}
for list in 1 '' -1 NoDevFiles "$uuid0" 7,0; do
    hides "$list" 1 || fail "\"$list\" hides GPU 1, and that is not said"
done
for list in 0 0,1 "$uuid1" GPU-5; do
    ! hides "$list" 1 || fail "\"$list\" does not hide GPU 1"
done
hides 2 all || fail 'an index outside the machine is not said'
! hides 1 all || fail 'an index inside the machine is complained of'
