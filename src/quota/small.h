/*
 * Inside quota/: what small arrays take, which share granules among those of their context. The
 * caller serialises all of it (holding.c's lock).
 *
 * Only the driver knows which go together, so what is charged is a bound: never less than they
 * take, to the granule if all are alike; and otherwise more, until a comparison with NVML lowers it
 * to what they took then.
 */
#pragma once

#include <stdint.h>

/* One more array of so many bytes: 0, -EDQUOT or -ETIMEDOUT. */
int small_add(int device, uint64_t context, uint64_t size_bytes);
void small_remove(int device, uint64_t context, uint64_t size_bytes);

/* What may be charged too much: as much as would be if they lay as closely as they can. */
uint64_t small_doubt(int device);
/* Gives so much of that back. */
void small_lower(int device, uint64_t bytes);

void small_forget(void); /* in a forked child */
