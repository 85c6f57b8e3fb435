"""pages.py FILE BYTES: holds so many bytes of managed memory and always has fills of 4096 bytes under way. Writes its pid into the
file, and how many fills are done, after every few."""

import ctypes
import os
import sys

AHEAD = 4  # groups of fills that the GPU has been given
GROUP = 2

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        sys.exit(f"{name}: {result}")


context = ctypes.c_void_p()
memory = ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAllocManaged", ctypes.byref(memory), ctypes.c_size_t(int(sys.argv[2])), ctypes.c_uint(1))
events = [ctypes.c_void_p() for _ in range(AHEAD)]
for event in events:
    call("cuEventCreate", ctypes.byref(event), 0)
done = 0
while True:
    for event in events:
        call("cuEventSynchronize", event)
        for _ in range(GROUP):
            call("cuMemsetD8Async", memory, ctypes.c_ubyte(1), ctypes.c_size_t(4096), None)
        call("cuEventRecord", event, None)
        done += GROUP
    with open(sys.argv[1] + ".new", "w", encoding="ascii") as file:
        file.write(f"{os.getpid()} {done}\n")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
