/* The books against NVML's figure for this process. */
#pragma once

#include "cuda_abi.h"

/*
 * Compares them if that is due (quota_reconcile_due says when: a new context's cost is not known
 * yet, or 20 ms have passed). Called on the way of allocations, synchronisations and questions, so
 * that it costs nothing else anything, and no thread is needed. The process must be attached.
 */
void reconcile_books(CUdevice device);

/* At once, when the driver took, or gave up, what nobody can tell. */
void reconcile_now(CUdevice device);
/* The same, and if other threads are at work all the time, they wait for a moment: when a refusal
 * depends on it. Nothing of the calling thread may be under way. */
void reconcile_at_rest(CUdevice device);
/* At the next occasion. */
void reconcile_soon(CUdevice device);

void reconcile_forget(void); /* in a forked child */
