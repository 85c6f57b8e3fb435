/* Stream captures, towards what measures. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"

/*
 * Records the event behind all that the context's streams were given so far, in none of which it is
 * in the way. False: it cannot be, as a capture goes on in this process, which it would spoil, or
 * as the driver has no such thing (before CUDA 12.5), or does not do it there.
 */
bool capture_fence(CUcontext context, CUevent event);

/* Whether one goes on in this process, or may. */
bool capture_goes_on(void);

void capture_forget(void); /* in a forked child */
