/* Green contexts, towards the hooks that allocate. */
#pragma once

#include "cuda_abi.h"

/* The context that an allocation made in `context` belongs to: the device's primary one, where
 * that is a green context's (seen with driver 580: its memory outlives it). */
CUcontext green_owner(CUcontext context, CUdevice device);

void green_forget(void); /* in a forked child */
