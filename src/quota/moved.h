/* Managed memory that the application moves to another GPU. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The charge for a move. */
struct quota_move {
	int device;
	bool charged; /* there is something to undo */
	uint64_t base;
	uint64_t first, bytes; /* the range on the device before: its first granule, and how much */
	uint32_t serial, before; /* of the move; of the one before it */
};

/*
 * A range of the managed allocation that begins at base is to be moved to the device. The range is
 * charged there as well, until the allocation is freed. 0, -EDQUOT, -ETIMEDOUT. Memory that is not
 * managed, or that was allocated on the device itself, costs nothing.
 */
int quota_move(int device, uint64_t base, uint64_t address, uint64_t bytes,
	       struct quota_move *ret_move);

/* The driver refused. */
void quota_move_undo(const struct quota_move *move);

/* -- inside quota/ -- */

/* The allocation, or all of the context, is gone from every GPU. */
void moved_end(uint64_t base);
void moved_end_context(uint64_t context);
void moved_forked(void); /* in a forked child */
