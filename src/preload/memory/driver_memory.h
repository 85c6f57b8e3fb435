/* What the driver takes on its own account, of a size that nobody knows before: code, limits, green
 * contexts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

struct driver_memory {
	bool counted;
	bool looked; /* free_bytes is known */
	CUdevice device;
	uint64_t free_bytes; /* of the device, before */
	uint64_t own_bytes;  /* quota_own, before */
	uint64_t held_bytes; /* reserved for it; after driver_memory_end, what was booked meanwhile
			      */
};

/* Before the driver is asked: there must be room for least_bytes; as much as there is, up to
 * most_bytes, is reserved. device -1: the current context's. CUDA_SUCCESS: call the driver, then
 * driver_memory_end. */
CUresult driver_memory_begin(struct driver_memory *growth, CUdevice device, uint64_t least_bytes,
			     uint64_t most_bytes);

/* After it. False: it has taken more than there is room for; undo it, then driver_memory_refuse. */
bool driver_memory_end(struct driver_memory *growth, CUresult result);
CUresult driver_memory_refuse(const struct driver_memory *growth);

/* Something of the kind was given up. */
void driver_memory_undone(CUdevice device);

/* The driver hands out what it may load later, as a rule when it is first launched. Who asks for
 * what it has is not about to do that: libraries ask again and again. Whether it is new. */
bool driver_memory_expected(const void *handle);
/* It is not given to the application after all. */
void driver_memory_unexpected(const void *handle);

/* What was handed out may be loaded anew: a handle may be another function's by now, or there is a
 * context that has not used it. */
void driver_memory_expected_anew(void);
