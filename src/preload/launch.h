/* Before the device is given work. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"

/* For whom pace_is_open() does not let through: waits until work may go to the stream. per_thread:
 * what its NULL means. CUDA_SUCCESS: call the driver, to which we are bound then; anything else is
 * what the application is told. */
CUresult launch_hold(CUstream stream, bool per_thread);
