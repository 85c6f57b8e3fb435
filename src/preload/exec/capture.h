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

/* Whether captures go on in this process. */
bool capture_any(void);

/* Whether what the stream is given is captured. Also true when captures go on and the driver does
 * not say: it will not take the work either, as on the default stream while a capture forbids its
 * use. */
bool capture_has(CUstream stream, bool per_thread);

void capture_forget(void); /* in a forked child */
