/*
 * Inside quota/: the memory of small arrays, which share granules with other arrays of their
 * context. The caller serialises all of it (holding.c's lock).
 *
 * Only the driver knows which arrays share a granule, so the charge is an upper bound of the memory
 * that they take. It is exact if all arrays have the same size. Otherwise it may be too high, until
 * a comparison with NVML lowers it.
 */
#pragma once

#include <stdint.h>

/* One more array of so many bytes: 0, -EDQUOT or -ETIMEDOUT. */
int small_add(int device, uint64_t context, uint64_t size_bytes);
void small_remove(int device, uint64_t context, uint64_t size_bytes);

/* The bytes by which the charge may be too high: its excess over the fewest granules into which the
 * arrays fit. */
uint64_t small_doubt(int device);
/* Lowers the charge by so many bytes, at most by small_doubt. */
void small_lower(int device, uint64_t bytes);

void small_forked(void); /* in a forked child */
