/* Reconciliation: the accounts are compared with NVML's figure for this process. */
#pragma once

#include "cuda_abi.h"

/*
 * Compares the accounts with NVML's figure if that is due (quota_reconcile_due). Hooks of
 * allocations and queries call this function, and hooks of synchronisations reconcile_at_wait. So
 * the library needs no thread, and other calls take no longer. The process must be attached.
 */
void reconcile_books(CUdevice device);
/* As reconcile_books, after a wait for work (quota_reconcile_due_at_wait). */
void reconcile_at_wait(CUdevice device);

/* Compares at once, because the driver took or gave back an amount that is not known. */
void reconcile_now(CUdevice device);
/* Compares at once, because a refusal depends on it. If other threads change the accounts all the
 * time, they have to wait for a moment. The calling thread must have no allocation under way. */
void reconcile_at_rest(CUdevice device);
/* Makes a comparison due in 10 ms at the latest. reconcile_books then makes it. */
void reconcile_soon(CUdevice device);

void reconcile_forked(void); /* in a forked child */
