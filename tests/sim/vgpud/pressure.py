"""pressure.py FILE BYTES: holds so many bytes of memory of the GPU and fills some of it again and
again. Writes its pid into the file after each fill."""

import os
import sys
import time

from sim_cuda import call, fill, memory_of, write

memory = memory_of("cuMemAlloc_v2", int(sys.argv[2]))
while True:
    fill(memory)
    call("cuCtxSynchronize")
    write(sys.argv[1], str(os.getpid()))
    time.sleep(0.05)
