/* The books against NVML's figure for this process. */
#pragma once

#include "cuda_abi.h"

/*
 * Compares them if that is due (quota_reconcile_due says when: a new context's cost is not known
 * yet, or 20 ms have passed). Called on the way of allocations, synchronisations and questions, so
 * that it costs nothing else anything, and no thread is needed. The process must be attached.
 */
void reconcile_books(CUdevice device);

/* At once, and at the next occasion: when the driver took, or gave up, what nobody can tell. */
void reconcile_now(CUdevice device);
void reconcile_soon(CUdevice device);

void reconcile_forget(void); /* in a forked child */
