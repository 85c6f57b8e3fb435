/*
 * Ranges of addresses of device memory that is no allocation of memory.c: mappings of virtual
 * memory, and memory of other processes and other libraries.
 *
 * A search tree by range, under one lock, which is taken last in the process. The file that added
 * an entry owns the struct and guards it. address_map_at returns the struct itself, and is for the
 * owner; address_map_find copies it.
 */
#include "sim.h"

#include <search.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *entries; /* struct address_range by address; lock */

/* Compares ranges. Ranges that overlap are equal. */
static int compare(const void *left, const void *right)
{
	const struct address_range *a = left, *b = right;

	if (a->address + a->bytes <= b->address)
		return -1;
	return a->address >= b->address + b->bytes;
}

bool address_map_add(struct address_range *range)
{
	pthread_mutex_lock(&lock);
	struct address_range **node = tsearch(range, &entries, compare);
	bool added = node && *node == range;
	pthread_mutex_unlock(&lock);
	return added;
}

void address_map_remove(struct address_range *range)
{
	pthread_mutex_lock(&lock);
	tdelete(range, &entries, compare);
	pthread_mutex_unlock(&lock);
}

static struct address_range *find_locked(uint64_t address, size_t bytes)
{
	struct address_range key = {.address = address, .bytes = bytes};
	struct address_range **node = tfind(&key, &entries, compare);

	return node ? *node : NULL;
}

struct address_range *address_map_at(uint64_t address, size_t bytes)
{
	pthread_mutex_lock(&lock);
	struct address_range *range = find_locked(address, bytes);
	pthread_mutex_unlock(&lock);
	return range;
}

bool address_map_find(uint64_t address, struct memory_range *ret_range)
{
	pthread_mutex_lock(&lock);
	const struct address_range *range = find_locked(address, 1);
	if (range)
		*ret_range = (struct memory_range){
			.context = range->context,
			.device = range->device,
			.kind = BLOCK_DEVICE,
			.access = atomic_load(&range->access),
			.address = range->address,
			.bytes = range->bytes,
		};
	pthread_mutex_unlock(&lock);
	return range != NULL;
}
