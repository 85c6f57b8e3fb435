/*
 * The regions of a node that the last look did not read. An entry in a file of turns may belong
 * to one of them, if no region that was read has the entry's key.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "overview.h"

struct unread_region {
	const struct slices_one *one;
	const char *why; /* the reason why it was not read */
	bool has_inode;  /* false: the region may have any inode */
	uint64_t inode;
};

/* The list; it is valid as long as the overview that it was made from. */
struct unread {
	bool failed; /* there was no memory, so the list is incomplete */
	unsigned count;
	struct unread_region *region;
};

/* Lists the slices of the machine whose regions the overview has not read. A slice whose
 * region's file does not exist is not listed. The caller frees the list. */
void unread_list(const struct overview *overview, struct unread *ret_unread);
void unread_free(struct unread *unread);

/* Finds the first region at or after *at that can have the key and whose slice may use the GPU.
 * Sets *at to the place after it; start with *at = 0. Returns NULL if there is none. *ret_pct: the
 * GPU's compute quota in the slice's policy, 1 to 99; 0: none. */
const struct unread_region *unread_next(const struct unread *unread, uint64_t key, const char *uuid,
					unsigned *at, unsigned *ret_pct);
