/* The making of contexts (context.c), towards others. */
#pragma once

#include "cuda_abi.h"

/* In a forked child: whoever made or ended a context in the parent does not here. */
void context_making_forget(void);

/* The device's primary context, NULL while nobody has retained it. */
CUcontext context_making_primary(CUdevice device);
