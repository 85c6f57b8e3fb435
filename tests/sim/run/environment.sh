#!/bin/sh
# What the command finds in its environment.
. "$(dirname "$0")/lib.sh"

# value NAME ARGUMENT...: what NAME is for a command of `vgpu run ARGUMENT...`; "-" when not set.
value() {
    name=$1
    shift
    "$VGPU" run "$@" sh -c "echo \"\${$name--}\""
}

same LD_PRELOAD "$NOTHING" "$(value LD_PRELOAD)"
same LD_PRELOAD "$NOTHING" "$(LD_PRELOAD='' value LD_PRELOAD)"
cp "$NOTHING" "$root/other.so"
same LD_PRELOAD "$NOTHING:$root/other.so" "$(LD_PRELOAD=$root/other.so value LD_PRELOAD)"

same VGPU_POLICY "$state/x/policy" "$(value VGPU_POLICY --name x)"
cache=CUDA_DEVICE_MEMORY_SHARED_CACHE
same "$cache" "$state/x/region" "$(value $cache --name x)"
same "$cache" "$state/x/region" "$(CUDA_DEVICE_MEMORY_SHARED_CACHE=/y value $cache --name x)"

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
same "$visible" '' "$(CUDA_VISIBLE_DEVICES='' value $visible --gpus 1)"

# HAMi's limits can only lower the slice's: they stay.
limit=CUDA_DEVICE_MEMORY_LIMIT_0
same "$limit" 1g "$(CUDA_DEVICE_MEMORY_LIMIT_0=1g value $limit --memory 2G)"
same "$limit" - "$(value $limit --memory 2G)"

# Its working directory, umask and priorities are those of whoever ran it.
same 'the working directory' /usr "$(cd /usr && "$VGPU" run pwd)"
same 'the umask' 0027 "$(umask 027 && "$VGPU" run sh -c umask)"
