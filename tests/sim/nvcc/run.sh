#!/bin/sh
# Code that nvcc made, in every form, on the simulated driver: alone and in a slice of 1 GiB.
# shellcheck source=tests/sim/nvcc/lib.sh
. "$(dirname "$0")/lib.sh"
: "${LOAD:?}" # from CMakeLists.txt
export VGPU_SIM_GPUS=8G

compile kernels.cu cubin -arch=sm_90 -cubin
compile kernels.cu ptx -arch=compute_80 -ptx
compile kernels.cu fatbin -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code='[sm_90,compute_90]' -fatbin
compile kernels.cu lz4 -arch=compute_75 -Xfatbin -compress-mode=speed -fatbin
compile kernels.cu none -arch=compute_75 -Xfatbin -compress-mode=none -fatbin
compile kernels.cu zstd -arch=compute_75 -Xfatbin -compress-mode=size -fatbin

# PTX has no initial values here, and says nothing of bounds and of shared memory.
sorted() {
    sed -e "s/threads=[0-9]* shared=[0-9]*/$1/" -e "s/first=.*/$2/" | LC_ALL=C sort
}

cat >"$root/expected" <<'EXPECTED'
_Z5thirdIfEvPT_ threads=1024 shared=0 0+8
counters bytes=20 first=0
first threads=1024 shared=400 0+8 8+4 16+8
second threads=256 shared=0 0+32 32+1
started bytes=4 first=7
weights bytes=36 first=3fc00000
EXPECTED
for form in cubin fatbin; do
    "$LOAD" "$root/$form" >"$root/found" || fail "$form does not load"
    LC_ALL=C sort "$root/found" | diff "$root/expected" - || fail "$form says something else"
done
sorted kernel variable <"$root/expected" >"$root/names"
for form in ptx lz4 none zstd; do
    [ "$form" != zstd ] || ldconfig -p 2>/dev/null | grep -q 'libzstd\.so\.1' || continue
    "$LOAD" "$root/$form" >"$root/found" || fail "$form does not load"
    sorted kernel variable <"$root/found" | diff "$root/names" - || fail "$form says something else"
done

found=$("$LOAD" --memory)
[ "$found" = "total=8192 MiB 2GiB=0" ] || fail "without a slice: $found"
found=$("$VGPU" run --memory 1G "$LOAD" "$root/fatbin" --memory | tail -n 1)
[ "$found" = "total=1024 MiB 2GiB=2" ] || fail "in a slice of 1 GiB: $found"

# NVIDIA's runtime gives up, and the simulator says why. The simulated driver's directory holds a shared runtime,
# too: NVIDIA's is taken from where nvcc links it.
libraries=$("$nvcc" --dryrun -cudart shared -o "$root/none" "$SOURCES/runtime.cu" 2>&1 |
    sed -n 's/^#\$ LIBRARIES=//p' | tr -d '"' | tr ' ' '\n' | sed -n 's/^-L//p' | paste -s -d :)
for kind in static shared; do
    compile runtime.cu runtime -cudart "$kind" -arch=sm_90
    used=$(LD_LIBRARY_PATH="$libraries:$LD_LIBRARY_PATH" ldd "$root/runtime" | sed -n 's/.*libcudart[^ ]* => //p')
    case $used in
    "${LD_LIBRARY_PATH%%:*}"/* | 'not found')
        echo "the shared runtime is not looked at: nvcc links it from $libraries, where its library is not"
        continue
        ;;
    esac
    LD_LIBRARY_PATH="$libraries:$LD_LIBRARY_PATH" "$root/runtime" >"$root/found" 2>"$root/said"
    grep -q cudaErrorSymbolNotFound "$root/found" || fail "the $kind runtime ($used) got $(cat "$root/found")"
    grep -q 'private tables' "$root/said" || fail "the simulator does not say why the $kind runtime fails"
done
