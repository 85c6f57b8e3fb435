/*
 * The regions of a node that the last look did not read: each may be the one of an entry in a file
 * of turns whose key no region has that was read.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "overview.h"

struct unread_region {
	const struct slices_one *one;
	const char *why;
	bool has_inode; /* false: the region may have any inode */
	uint64_t inode;
};

/* Zeroed at first. Belongs to the overview that unread_list was called with. */
struct unread {
	bool failed; /* there was no memory for the list */
	unsigned count;
	struct unread_region *region;
};

/* Lists the slices of the machine whose regions the overview has not read. A slice without a region
 * is not listed. */
void unread_list(const struct overview *overview, struct unread *ret_unread);
void unread_free(struct unread *unread);

/* The first region at or after *at that can have the key and whose slice may use the GPU; *at is
 * the place after it. NULL: none. ret_pct is the GPU's compute quota in the slice's policy; 0: it
 * has none. */
const struct unread_region *unread_next(const struct unread *unread, uint64_t key, const char *uuid,
					unsigned *at, unsigned *ret_pct);
