/*
 * There are two tables. `granules` has an entry for each granule in which an allocation begins or
 * ends, with the number of these allocations. `spans` has an entry for each allocation that reaches
 * over more than one granule, keyed by its address, with its size. The granules strictly between a
 * span's first and last are its own and need no entry. An allocation within one granule is only
 * counted. Eight million allocations of 1 KiB take as much room here as the 4,000 granules in which
 * they lie.
 *
 * Two more tables have marks by address, of allocations that the driver has while the accounts do
 * not have them for good: they are being made or freed. Nothing else tells those within one granule
 * from others in it. `leaving` has the number of those that blocks_left ends. `lingering` has those
 * that end with their context. Both end when the driver gives the address to another allocation: a
 * mark in `leaving` then does not count any more. Where there is no memory for a mark, all
 * allocations count as leaving.
 *
 * The driver ends a context before the accounts do. In between, it may give the place of one of its
 * blocks to a block of another context. The entry is the new block's then, and the bytes of the old
 * one are kept for blocks_remove_context.
 */
#include "blocks.h"

#include <errno.h>

#include "lock.h"
#include "table.h"

#define GRANULE_SHIFT 21

static struct lock lock = LOCK_INIT;
static struct table granules, spans;    /* under `lock` */
static struct table leaving, lingering; /* by address; under `lock` */
static uint64_t unmarked;               /* how many marks had no memory; under `lock` */
static uint64_t ending;                 /* the context that the driver is ending, or 0; `lock` */
static uint64_t ended_bytes, ended_managed_bytes; /* of its blocks that were replaced; `lock` */

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

/* Whether a block of the first context was replaced by one of the second. */
static bool is_replaced(uint64_t context, uint64_t by)
{
	return ending && context == ending && by != ending;
}

static void replace(struct table *table, struct entry *entry, uint64_t bytes)
{
	*(entry->managed ? &ended_managed_bytes : &ended_bytes) += bytes;
	table_remove(table, entry);
}

/* Counts the block in one granule. Returns what that takes, or a negative errno. */
static int64_t enter_granule(const struct block *block, uint64_t granule)
{
	struct entry *entry = table_find(&granules, granule);

	if (entry && is_replaced(entry->context, block->context)) {
		replace(&granules, entry, GRANULE_BYTES);
		entry = NULL;
	}
	if (entry) {
		entry->count++;
		return 0;
	}
	entry = table_add(&granules, granule);
	if (!entry)
		return -ENOMEM;
	entry->context = block->context;
	entry->count = 1;
	entry->device = (uint16_t)block->device;
	entry->managed = block->managed;
	return (int64_t)GRANULE_BYTES;
}

/* The reverse: returns the bytes that go back. */
static uint64_t leave_granule(const struct block *block, uint64_t granule)
{
	struct entry *entry = table_find(&granules, granule);

	if (!entry || is_replaced(block->context, entry->context) || --entry->count > 0)
		return 0;
	table_remove(&granules, entry);
	return GRANULE_BYTES;
}

static int64_t enter_span(const struct block *block)
{
	struct entry *entry = table_find(&spans, block->address);
	int64_t first, last;

	if (entry && is_replaced(entry->context, block->context)) {
		const struct block ended = {.address = block->address, .size_bytes = entry->amount};

		replace(&spans, entry, inner_bytes(&ended));
		entry = NULL;
	}
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
			leave_granule(block, first_granule(block));
		table_remove(&spans, table_find(&spans, block->address));
		return last;
	}
	return first + (int64_t)inner_bytes(block) + last;
}

/* The driver has given the address to another allocation. */
static void end_marks_locked(uint64_t address)
{
	struct entry *mark = lingering.count ? table_find(&lingering, address) : NULL;

	if (mark)
		table_remove(&lingering, mark);
	mark = leaving.count ? table_find(&leaving, address) : NULL;
	if (mark)
		mark->reused = true;
}

static bool is_reused_locked(uint64_t address)
{
	const struct entry *mark = table_find(&leaving, address);

	return mark && mark->reused;
}

static int64_t enter_locked(const struct block *block)
{
	end_marks_locked(block->address);
	return first_granule(block) == last_granule(block)
		       ? enter_granule(block, first_granule(block))
		       : enter_span(block);
}

static struct block block_of(uint64_t address, uint64_t size_bytes, const struct entry *entry)
{
	return (struct block){.address = address,
			      .size_bytes = size_bytes,
			      .context = entry->context,
			      .device = entry->device,
			      .managed = entry->managed};
}

static bool remove_locked(uint64_t address, struct block *ret_block, uint64_t *ret_bytes)
{
	struct entry *entry = table_find(&spans, address);

	if (entry) {
		*ret_block = block_of(address, entry->amount, entry);
		table_remove(&spans, entry);
		*ret_bytes = leave_granule(ret_block, first_granule(ret_block)) +
			     inner_bytes(ret_block) +
			     leave_granule(ret_block, last_granule(ret_block));
		return true;
	}
	entry = table_find(&granules, address >> GRANULE_SHIFT);
	if (!entry)
		return false;
	*ret_block = block_of(address, 1, entry);
	*ret_bytes = leave_granule(ret_block, address >> GRANULE_SHIFT);
	return true;
}

bool blocks_remove(uint64_t address, struct block *ret_block, uint64_t *ret_bytes)
{
	bool found;

	lock_acquire(&lock);
	found = remove_locked(address, ret_block, ret_bytes);
	lock_release(&lock);
	return found;
}

static void mark_locked(struct table *table, const struct block *block)
{
	struct entry *mark = table_find(table, block->address);

	if (!mark)
		mark = table_add(table, block->address);
	if (mark) {
		mark->context = block->context;
		mark->count++;
		mark->reused = false;
	} else {
		unmarked++;
	}
}

/* Ends a mark in `leaving`. If there is none, there was no memory for it. is_block: the address has
 * a block, whatever other marks say. */
static void unmark_locked(const struct block *block, bool is_block)
{
	struct entry *mark = table_find(&leaving, block->address);

	if (!mark)
		unmarked--;
	else if (--mark->count == 0)
		table_remove(&leaving, mark);
	else
		mark->reused |= is_block;
}

int blocks_enter_charged(const struct block *block, uint64_t charged_bytes, uint64_t *ret_bytes)
{
	int64_t taken;

	lock_acquire(&lock);
	taken = enter_locked(block);
	if (taken >= 0 && (uint64_t)taken > charged_bytes)
		mark_locked(&leaving, block);
	lock_release(&lock);
	if (taken < 0)
		return (int)taken;
	*ret_bytes = (uint64_t)taken;
	return 0;
}

int blocks_enter(const struct block *block, uint64_t *ret_bytes)
{
	return blocks_enter_charged(block, UINT64_MAX, ret_bytes);
}

void blocks_settled(const struct block *block)
{
	lock_acquire(&lock);
	unmark_locked(block, true);
	lock_release(&lock);
}

bool blocks_leave(uint64_t address, struct block *ret_block, uint64_t *ret_bytes)
{
	bool found;

	lock_acquire(&lock);
	found = remove_locked(address, ret_block, ret_bytes);
	if (found)
		mark_locked(&leaving, ret_block);
	lock_release(&lock);
	return found;
}

void blocks_left(const struct block *block, bool lingers)
{
	lock_acquire(&lock);
	if (lingers && !is_reused_locked(block->address))
		mark_locked(&lingering, block);
	unmark_locked(block, false);
	lock_release(&lock);
}

static bool is_leaving_locked(uint64_t address)
{
	const struct entry *mark = table_find(&leaving, address);

	return unmarked || (mark && !mark->reused) || table_find(&lingering, address);
}

static bool find_locked(uint64_t address, struct block *ret_block, uint64_t *ret_bytes)
{
	const struct entry *entry;

	if (is_leaving_locked(address))
		return false;
	entry = table_find(&spans, address);
	if (entry) {
		*ret_block = block_of(address, entry->amount, entry);
		*ret_bytes = inner_bytes(ret_block) + 2 * GRANULE_BYTES;
		return true;
	}
	entry = table_find(&granules, address >> GRANULE_SHIFT);
	if (!entry)
		return false;
	*ret_block = block_of(address, 1, entry);
	*ret_bytes = GRANULE_BYTES;
	return true;
}

bool blocks_find(uint64_t address, struct block *ret_block, uint64_t *ret_bytes)
{
	bool found;

	lock_acquire(&lock);
	found = find_locked(address, ret_block, ret_bytes);
	lock_release(&lock);
	return found;
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

static bool is_of_context(void *arg, const struct entry *entry)
{
	const struct sweep *sweep = arg;

	return entry->context == sweep->context;
}

void blocks_remove_context(uint64_t context, uint64_t *ret_bytes, uint64_t *ret_managed_bytes)
{
	struct sweep sweep = {.context = context};

	lock_acquire(&lock);
	table_remove_if(&spans, sweep_span, &sweep);
	table_remove_if(&granules, sweep_granule, &sweep);
	table_remove_if(&lingering, is_of_context, &sweep);
	if (context == ending) {
		sweep.bytes += ended_bytes;
		sweep.managed_bytes += ended_managed_bytes;
		ended_bytes = ended_managed_bytes = 0;
	}
	lock_release(&lock);
	*ret_bytes = sweep.bytes;
	*ret_managed_bytes = sweep.managed_bytes;
}

void blocks_context_ending(uint64_t context)
{
	lock_acquire(&lock);
	ending = context;
	ended_bytes = ended_managed_bytes = 0;
	lock_release(&lock);
}

void blocks_forked(void)
{
	lock_init(&lock);
	table_clear(&granules);
	table_clear(&spans);
	table_clear(&leaving);
	table_clear(&lingering);
	unmarked = 0;
	ending = ended_bytes = ended_managed_bytes = 0;
}
