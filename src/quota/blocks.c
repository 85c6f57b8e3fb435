/*
 * There are two tables. `granules` has an entry for each granule in which an allocation begins or
 * ends, with the number of these allocations. `spans` has an entry for each allocation that reaches
 * over more than one granule, keyed by its address, with its size. The granules strictly between a
 * span's first and last are its own and need no entry. An allocation within one granule is only
 * counted. Eight million allocations of 1 KiB take as much room here as the 4,000 granules in which
 * they lie.
 */
#include "blocks.h"

#include <errno.h>

#include "lock.h"
#include "table.h"

#define GRANULE_SHIFT 21

static struct lock lock = LOCK_INIT;
static struct table granules, spans; /* under `lock` */

static uint64_t first_granule(const struct block *block)
{
	return block->address >> GRANULE_SHIFT;
}

static uint64_t last_granule(const struct block *block)
{
	return (block->address + block->size_bytes - 1) >> GRANULE_SHIFT;
}

/* Bytes of the granules strictly inside. */
static uint64_t inner_bytes(const struct block *block)
{
	uint64_t reach = last_granule(block) - first_granule(block);

	return reach > 1 ? (reach - 1) << GRANULE_SHIFT : 0;
}

/* Counts the block in one granule. Returns what that takes, or a negative errno. */
static int64_t enter_granule(const struct block *block, uint64_t granule)
{
	struct entry *entry = table_find(&granules, granule);

	if (entry) {
		entry->amount++;
		return 0;
	}
	entry = table_add(&granules, granule);
	if (!entry)
		return -ENOMEM;
	entry->context = block->context;
	entry->amount = 1;
	entry->device = (uint16_t)block->device;
	entry->managed = block->managed;
	return (int64_t)GRANULE_BYTES;
}

/* The reverse: returns the bytes that go back. */
static uint64_t leave_granule(uint64_t granule)
{
	struct entry *entry = table_find(&granules, granule);

	if (!entry || --entry->amount > 0)
		return 0;
	table_remove(&granules, entry);
	return GRANULE_BYTES;
}

static int64_t enter_span(const struct block *block)
{
	struct entry *entry = table_find(&spans, block->address);
	int64_t first, last;

	if (!entry)
		entry = table_add(&spans, block->address);
	if (!entry)
		return -ENOMEM;
	entry->context = block->context;
	entry->amount = block->size_bytes;
	entry->device = (uint16_t)block->device;
	entry->managed = block->managed;
	first = enter_granule(block, first_granule(block));
	last = first < 0 ? first : enter_granule(block, last_granule(block));
	if (last < 0) {
		if (first >= 0)
			leave_granule(first_granule(block));
		table_remove(&spans, table_find(&spans, block->address));
		return last;
	}
	return first + (int64_t)inner_bytes(block) + last;
}

int blocks_enter(const struct block *block, uint64_t *ret_bytes)
{
	int64_t taken;

	lock_acquire(&lock);
	if (first_granule(block) == last_granule(block))
		taken = enter_granule(block, first_granule(block));
	else
		taken = enter_span(block);
	lock_release(&lock);
	if (taken < 0)
		return (int)taken;
	*ret_bytes = (uint64_t)taken;
	return 0;
}

static struct block block_of(uint64_t address, uint64_t size_bytes, const struct entry *entry)
{
	return (struct block){.address = address,
			      .size_bytes = size_bytes,
			      .context = entry->context,
			      .device = entry->device,
			      .managed = entry->managed};
}

bool blocks_remove(uint64_t address, struct block *ret_block, uint64_t *ret_bytes)
{
	struct entry *entry;

	lock_acquire(&lock);
	entry = table_find(&spans, address);
	if (entry) {
		*ret_block = block_of(address, entry->amount, entry);
		table_remove(&spans, entry);
		*ret_bytes = leave_granule(first_granule(ret_block)) + inner_bytes(ret_block) +
			     leave_granule(last_granule(ret_block));
		lock_release(&lock);
		return true;
	}
	entry = table_find(&granules, address >> GRANULE_SHIFT);
	if (entry) {
		*ret_block = block_of(address, 1, entry);
		*ret_bytes = leave_granule(address >> GRANULE_SHIFT);
	}
	lock_release(&lock);
	return entry != NULL;
}

bool blocks_known(uint64_t address)
{
	bool known;

	lock_acquire(&lock);
	known = table_find(&granules, address >> GRANULE_SHIFT) != NULL;
	lock_release(&lock);
	return known;
}

bool blocks_find(uint64_t address, struct block *ret_block, uint64_t *ret_bytes)
{
	const struct entry *entry;

	lock_acquire(&lock);
	entry = table_find(&spans, address);
	if (entry) {
		*ret_block = block_of(address, entry->amount, entry);
		*ret_bytes = inner_bytes(ret_block) + 2 * GRANULE_BYTES;
	} else {
		entry = table_find(&granules, address >> GRANULE_SHIFT);
		if (entry) {
			*ret_block = block_of(address, 1, entry);
			*ret_bytes = GRANULE_BYTES;
		}
	}
	lock_release(&lock);
	return entry != NULL;
}

/* The sums of bytes while a context's entries are removed. */
struct sweep {
	uint64_t context, bytes, managed_bytes;
};

static void add_up(struct sweep *sweep, const struct entry *entry, uint64_t bytes)
{
	*(entry->managed ? &sweep->managed_bytes : &sweep->bytes) += bytes;
}

static bool sweep_span(void *arg, const struct entry *entry)
{
	struct sweep *sweep = arg;
	struct block block = block_of(entry->key, entry->amount, entry);

	if (entry->context != sweep->context)
		return false;
	add_up(sweep, entry, inner_bytes(&block));
	return true;
}

static bool sweep_granule(void *arg, const struct entry *entry)
{
	struct sweep *sweep = arg;

	if (entry->context != sweep->context)
		return false;
	add_up(sweep, entry, GRANULE_BYTES);
	return true;
}

void blocks_remove_context(uint64_t context, uint64_t *ret_bytes, uint64_t *ret_managed_bytes)
{
	struct sweep sweep = {.context = context};

	lock_acquire(&lock);
	table_remove_if(&spans, sweep_span, &sweep);
	table_remove_if(&granules, sweep_granule, &sweep);
	lock_release(&lock);
	*ret_bytes = sweep.bytes;
	*ret_managed_bytes = sweep.managed_bytes;
}

void blocks_forked(void)
{
	lock_init(&lock);
	table_clear(&granules);
	table_clear(&spans);
}
