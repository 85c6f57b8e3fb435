/* Memory beyond the card, in slices that may have it (CUDA_OVERSUBSCRIBE, or their policy). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "quota.h"

/* Whether this slice may: false where there is none. */
bool oversubscribe_allowed(void);

/* Makes the claim, which was for device memory, one for managed memory. False: there is no room in
 * the quota for it, and the claim is cancelled. */
bool oversubscribe_claim(struct quota_claim *claim, uint64_t size_bytes);

/* CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY, which is what the driver had said already. */
CUresult oversubscribe_take(CUdevice device, uint64_t size_bytes, CUdeviceptr *ret_address);

/* Managed memory of the device, charged, for an allocation that the driver had no room for: by
 * alloc.c. CUDA_SUCCESS, or the error for the application. */
CUresult oversubscribe_make(CUdevice device, uint64_t size_bytes, CUdeviceptr *ret_address);

/* The driver answered the function `what`, whose memory has to lie on the card. Prints a line where
 * the card had no room and the slice oversubscribes, unless *said, and sets that. */
void oversubscribe_cannot(CUresult result, bool *said, const char *what);

/* What the application is told, in all or free: the lesser of the slice's figure and the card's, or
 * the slice's where it may have more than the card. */
uint64_t oversubscribe_shown(uint64_t slice_bytes, uint64_t card_bytes);
