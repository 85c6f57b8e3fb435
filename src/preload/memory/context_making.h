/* Functions of context.c, which makes contexts, that other files call. */
#pragma once

#include "cuda_abi.h"

/* In a forked child: no thread makes or ends a context here, though one did in the parent. */
void context_making_forked(void);

/* The device's primary context; NULL while it is not retained. */
CUcontext context_making_primary(CUdevice device);
