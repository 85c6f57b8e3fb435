/* Frees managed memory in stream order, which the driver refuses to do. */
#pragma once

#include <stdbool.h>

#include "allocation.h"
#include "cuda_abi.h"

/*
 * The driver has refused to free the block in stream order. The block is freed after the stream has
 * done the work that it has so far. False: that is not possible, as in a capture, and nothing has
 * changed.
 */
bool deferred_free(CUdeviceptr address, CUstream stream, const struct quota_release *release);

/* Frees the blocks whose streams have come to their frees. Costs little if there is none. Does
 * nothing while a stream is captured. */
void deferred_poll(void);

/* The context has ended, and its memory with it. */
void deferred_end_context(CUcontext context);

void deferred_forked(void); /* in a forked child */
