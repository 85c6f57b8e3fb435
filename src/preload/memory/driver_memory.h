/* Memory that the driver takes for itself, of a size that cannot be known beforehand: for code,
 * limits and green contexts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

struct driver_memory {
	bool counted; /* a quota applies */
	bool looked;  /* free_bytes is known */
	CUdevice device;
	uint64_t free_bytes; /* of the device, before */
	uint64_t own_bytes;  /* quota_own, before */
	uint64_t held_bytes; /* reserved; after driver_memory_end: what was charged meanwhile */
};

/* Before the driver's call. There must be room for least_bytes. As much as there is, up to
 * most_bytes, is reserved. device -1: the device of the current context. CUDA_SUCCESS: call the
 * driver, then driver_memory_end. */
CUresult driver_memory_begin(struct driver_memory *growth, CUdevice device, uint64_t least_bytes,
			     uint64_t most_bytes);

/* After the driver's call. False: the driver has taken more than there is room for. The caller
 * undoes the call, and then returns driver_memory_refuse. */
bool driver_memory_end(struct driver_memory *growth, CUresult result);
CUresult driver_memory_refuse(const struct driver_memory *growth);

/* The application has given up such memory, as by unloading code. */
void driver_memory_undone(CUdevice device);

/* The driver hands out a function whose code it may load later, as a rule at the first launch.
 * Returns whether the handle is a new one. Libraries ask for handles that they have, again and
 * again. */
bool driver_memory_expected(const void *handle);
/* The handle is not given to the application after all. */
void driver_memory_unexpected(const void *handle);

/* All handles count as new again: a handle may be another function's after an unload, or there is a
 * new context, which loads code for itself. */
void driver_memory_expected_anew(void);
