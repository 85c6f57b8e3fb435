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
	uint64_t free_bytes;     /* of the device, before the driver's call */
	uint64_t before_bytes;   /* quota_driver_bytes, before the reservation */
	uint64_t reserved_bytes; /* for the driver's call */
	uint64_t charged_bytes;  /* by driver_memory_end: of the call, and of others meanwhile */
};

/* Before the driver's call. There must be room for least_bytes. As much as there is, up to
 * most_bytes, is reserved. device -1: the device of the current context. CUDA_SUCCESS: call the
 * driver, then driver_memory_end. */
CUresult driver_memory_begin(struct driver_memory *growth, CUdevice device, uint64_t least_bytes,
			     uint64_t most_bytes);

/* After the driver's call. False: the driver has taken more than there is room for. The caller
 * undoes the call, and then returns driver_memory_refuse. Until then, no comparison lowers the
 * accounts. */
bool driver_memory_end(struct driver_memory *growth, CUresult result);
CUresult driver_memory_refuse(const struct driver_memory *growth);

/* The application has given up such memory, as by unloading code. */
void driver_memory_undone(CUdevice device);
