/* Green contexts, for the hooks that allocate. */
#pragma once

#include "cuda_abi.h"

/* The context that an allocation in `context` belongs to. For the context of a green context, that
 * is the device's primary context (seen with driver 580: memory outlives the green context). */
CUcontext green_owner(CUcontext context, CUdevice device);

void green_forked(void); /* in a forked child */
