/* The books against NVML's figure for this process. */
#pragma once

#include "cuda_abi.h"

/*
 * Compares them if that is due (quota_reconcile_due says when: a new context's cost is not known
 * yet, or a second has passed). Called on the way of allocations and of questions about memory, so
 * that it costs nothing else anything, and no thread is needed. The process must be attached.
 */
void reconcile_books(CUdevice device);
