"""What the programs of these tests need of the simulated driver, and how they say what they have done."""

import ctypes
import os
import sys

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        sys.exit(f"{name}: {result}")


def memory_of(function, size, *flags):
    """So many bytes by that function, in the first GPU's primary context, which is made current."""
    context = ctypes.c_void_p()
    memory = ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call(function, ctypes.byref(memory), ctypes.c_size_t(size), *flags)
    return memory


def fill(memory):
    call("cuMemsetD8Async", memory, ctypes.c_ubyte(1), ctypes.c_size_t(4096), None)


def write(path, text):
    """Replaces the file: a reader sees the old text or the new."""
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.rename(path + ".new", path)
