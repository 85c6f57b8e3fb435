/* Oversubscription: memory beyond the card, in slices that allow it (CUDA_OVERSUBSCRIBE, or the
 * policy). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocation.h"
#include "cuda_abi.h"

/* Whether this slice may oversubscribe. False if no slice applies. */
bool oversubscribe_allowed(void);

/* Turns the reservation, which was for device memory, into one for managed memory. False: the quota
 * has no room for that, and the reservation is cancelled. */
bool oversubscribe_claim(struct quota_reservation *reservation, uint64_t size_bytes);

/* Allocates managed memory whose preferred location is the device. CUDA_SUCCESS, or
 * CUDA_ERROR_OUT_OF_MEMORY, as the driver answered to the first call. */
CUresult oversubscribe_take(CUdevice device, uint64_t size_bytes, CUdeviceptr *ret_address);

/* Allocates and charges managed memory for an allocation that the driver had no room for. In
 * alloc.c. CUDA_SUCCESS, or the error for the application. */
CUresult oversubscribe_make(CUdevice device, uint64_t size_bytes, CUdeviceptr *ret_address);

/* The driver has answered the function `what`, whose memory has to be on the card. If the card had
 * no room and the slice oversubscribes, a line says so, once: *said is set. */
void oversubscribe_cannot(CUresult result, bool *said, const char *what);

/* The figure that the application gets for total or free memory: the lesser of the slice's and the
 * card's; or the slice's, if the slice oversubscribes. */
uint64_t oversubscribe_shown(uint64_t slice_bytes, uint64_t card_bytes);
