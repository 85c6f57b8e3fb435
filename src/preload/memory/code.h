/* Code in a slice that holds more than its limit. How much memory the driver takes for code is
 * known only afterwards, so nothing is reserved, and a load may exceed the limit. The next is
 * refused. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"

/* Before the driver loads a module or a library on the device. CUDA_SUCCESS, or the error for a
 * lack of memory: the slice is above its limit, and no room can be made. */
CUresult code_admit(CUdevice device);

/* Before a call that names a function or a kernel, and has the driver load its code if that is not
 * loaded in the stream's context: as code_admit. A handle is let through if its code may be loaded:
 * the library does not know the handle, or the driver says so. */
CUresult code_admit_handle(const void *handle, CUstream stream);

/* Whether the driver says that the function's code is loaded. False if it cannot say: drivers
 * before CUDA 12.4. */
bool code_is_loaded(CUfunction function);
