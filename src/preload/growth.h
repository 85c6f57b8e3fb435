/* What the driver takes on its own account, of a size that nobody knows before: code, limits, green
 * contexts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"

struct growth {
	bool counted;
	bool looked; /* free_bytes is known */
	CUdevice device;
	uint64_t free_bytes; /* of the device, before */
	uint64_t held_bytes; /* reserved for it */
};

/* Before the driver is asked: there must be room for least_bytes; as much as there is, up to
 * most_bytes, is reserved. device -1: the current context's. CUDA_SUCCESS: call the driver, then
 * growth_end. */
CUresult growth_begin(struct growth *growth, CUdevice device, uint64_t least_bytes,
		      uint64_t most_bytes);

/* After it. False: it has taken more than there is room for; undo it, then growth_refuse. */
bool growth_end(struct growth *growth, CUresult result);
CUresult growth_refuse(const struct growth *growth);

/* Something of the kind was given up. */
void growth_undone(CUdevice device);

/* The driver will take more when it likes: at the first launch of a function, as a rule. */
void growth_expected(void);
