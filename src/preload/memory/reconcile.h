/* Reconciliation: the accounts are compared with NVML's figure for this process. */
#pragma once

#include "cuda_abi.h"

/*
 * Reconciles if that is due (quota_reconcile_due: a new context's cost is not known yet, or 20 ms
 * have passed). Hooks of allocations and queries call this, and hooks of synchronisations
 * reconcile_at_wait. So no thread is needed, and other calls take no longer. The process must be
 * attached.
 */
void reconcile_books(CUdevice device);
/* The same after a wait for work, where a slice that is nearly full makes nothing urgent. */
void reconcile_at_wait(CUdevice device);

/* Reconciles at once, as the driver took or gave back an amount that is not known. */
void reconcile_now(CUdevice device);
/* Reconciles at once, as a refusal depends on it. If other threads change the accounts all the
 * time, they have to wait for a moment. The calling thread must have no allocation under way. */
void reconcile_at_rest(CUdevice device);
/* Makes a reconciliation due in 10 ms at the latest. reconcile_books then makes it. */
void reconcile_soon(CUdevice device);

void reconcile_forked(void); /* in a forked child */
