/*
 * Ranges of addresses of device memory that is no allocation of memory.c: mappings of virtual
 * memory, and memory of other processes and other libraries.
 *
 * A search tree by range, under one lock, which is taken last in the process. The file that added a
 * region owns the struct and guards it. region_at returns the struct itself, and is for the owner;
 * region_find copies it.
 */
#include "sim.h"

#include <search.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *regions; /* struct region by address; lock */

/* Compares ranges. Ranges that overlap are equal. */
static int region_compare(const void *left, const void *right)
{
	const struct region *a = left, *b = right;

	if (a->address + a->bytes <= b->address)
		return -1;
	return a->address >= b->address + b->bytes;
}

bool region_add(struct region *region)
{
	pthread_mutex_lock(&lock);
	struct region **node = tsearch(region, &regions, region_compare);
	bool added = node && *node == region;
	pthread_mutex_unlock(&lock);
	return added;
}

void region_remove(struct region *region)
{
	pthread_mutex_lock(&lock);
	tdelete(region, &regions, region_compare);
	pthread_mutex_unlock(&lock);
}

static struct region *find_locked(uint64_t address, size_t bytes)
{
	struct region key = {.address = address, .bytes = bytes};
	struct region **node = tfind(&key, &regions, region_compare);

	return node ? *node : NULL;
}

struct region *region_at(uint64_t address, size_t bytes)
{
	pthread_mutex_lock(&lock);
	struct region *region = find_locked(address, bytes);
	pthread_mutex_unlock(&lock);
	return region;
}

bool region_find(uint64_t address, struct memory_range *ret_range)
{
	pthread_mutex_lock(&lock);
	const struct region *region = find_locked(address, 1);
	if (region)
		*ret_range = (struct memory_range){
			.context = region->context,
			.device = region->device,
			.kind = BLOCK_DEVICE,
			.access = atomic_load(&region->access),
			.address = region->address,
			.bytes = region->bytes,
		};
	pthread_mutex_unlock(&lock);
	return region != NULL;
}
