/* Stream captures, as far as launches and measurements have to know of them. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"

/*
 * Records the event as a fence: it is reached after all work that the context's streams have so
 * far, and delays none of them. False: no event is recorded. Either a capture goes on in this
 * process, which a fence would invalidate, or the driver has no fences (before CUDA 12.5) or
 * refuses one.
 */
bool capture_fence(CUcontext context, CUevent event);

/* Whether captures go on in this process. */
bool capture_any(void);

/* Whether work that the stream is given is captured. Also true when captures go on and the driver
 * does not say whether this stream is captured. The driver will refuse the work, too, as on the
 * default stream while a capture forbids its use. */
bool capture_has(CUstream stream, bool per_thread);

void capture_forked(void); /* in a forked child */
