/* A process that holds a piece of GPU 0, and tells on request whether it could have more. */
#pragma once

#include "cuda_api.h"

#define PIECE (256 * MIB)
#define EACH  (CONTEXT + HIDDEN + PIECE) /* bytes that it is charged */

/* The body for member_start. It sends 1 when it holds its piece, and ends when it receives
 * 0. */
static inline void hold(int wire)
{
	CUdeviceptr address;
	uint64_t bytes;

	cuda_start(0);
	take(PIECE);
	tell(wire, 1);
	while ((bytes = hear(wire))) {
		bool taken = cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS;

		if (taken)
			give(address);
		tell(wire, taken);
	}
}

static inline bool can_take(const struct member *member, uint64_t bytes)
{
	tell(member->wire, bytes);
	return hear(member->wire);
}
