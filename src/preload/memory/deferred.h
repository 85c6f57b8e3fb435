/* Frees in stream order of managed memory, which the driver does not do. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"
#include "quota.h"

/*
 * The driver has refused to free the block in the order of the stream: it is freed once the stream
 * has done the work that it has been given. False: that cannot be done, as in a capture, and
 * nothing has changed.
 */
bool deferred_free(CUdeviceptr address, CUstream stream, const struct quota_release *release);

/* Frees what streams have come to. Cheap where nothing waits for that; nothing while a stream is
 * captured. */
void deferred_poll(void);

/* The context is gone, with its memory. */
void deferred_end_context(CUcontext context);

void deferred_forget(void); /* in a forked child */
