"""pages.py FILE BYTES: holds so many bytes of managed memory and always has fills of 4096 bytes under way. Writes its pid into the
file, and how many fills are done, after every few."""

import ctypes
import os
import sys

from sim_cuda import call, fill, memory_of, write

AHEAD = 4  # groups of fills that the GPU has been given
GROUP = 2

memory = memory_of("cuMemAllocManaged", int(sys.argv[2]), ctypes.c_uint(1))
events = [ctypes.c_void_p() for _ in range(AHEAD)]
for event in events:
    call("cuEventCreate", ctypes.byref(event), 0)
done = 0
while True:
    for event in events:
        call("cuEventSynchronize", event)
        for _ in range(GROUP):
            fill(memory)
        call("cuEventRecord", event, None)
        done += GROUP
    write(sys.argv[1], f"{os.getpid()} {done}\n")
