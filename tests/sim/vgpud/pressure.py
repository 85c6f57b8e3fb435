"""pressure.py FILE BYTES: holds so many bytes of memory of the GPU and fills some of it again and
again. Writes its pid into the file after each fill."""

import ctypes
import os
import sys
import time

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
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(int(sys.argv[2])))
while True:
    call("cuMemsetD8Async", memory, ctypes.c_ubyte(1), ctypes.c_size_t(4096), None)
    call("cuCtxSynchronize")
    with open(sys.argv[1] + ".new", "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(0.05)
