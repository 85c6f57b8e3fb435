/*
 * Managed memory that the application has moved to another GPU than the one on which it was
 * allocated and is charged.
 *
 * How it works. For each allocation and GPU there is the range that was ever moved there, from the
 * first of its granules to the last. That range is charged on that GPU, as managed memory. The
 * charge on the allocation's own GPU stays: the next access from there takes the pages back, and no
 * call reports that. Both charges go back with the allocation, or with its context.
 *
 * Always: the charge on a GPU for moved memory is the sum of the ranges of its entries. The lock is
 * held while the region is charged, so that a range is charged once, whichever threads move it. A
 * thread takes this lock before the lock of account.c.
 *
 * A move that the driver refuses is undone. If another thread has begun to move a part of the same
 * allocation to the same GPU since, the range stays charged until the allocation ends. Moves of one
 * call are undone from the last to the first.
 *
 * What it is not: an account of pages that the device takes by itself, when a kernel there touches
 * managed memory. No call reports that either.
 */
#include "moved.h"

#include <errno.h>

#include "account.h"
#include "blocks.h"
#include "lock.h"
#include "table.h"

static struct lock lock = LOCK_INIT;
static struct table moves; /* an allocation's address and a device to a range; under `lock` */
static size_t move_count;  /* of entries; written under `lock`, atomic */
static uint32_t serials;   /* of moves; under `lock` */

/* The range of an entry: `amount` bytes from the granule `first_granule` of the allocation on. */
struct range {
	uint64_t first, end; /* granules */
};

void moved_forked(void)
{
	lock_init(&lock);
	table_clear(&moves);
	move_count = 0;
}

/* Allocations begin at multiples of 256 bytes at least. */
static uint64_t key_of(uint64_t base, int device)
{
	return base | (uint64_t)device;
}

static struct range range_of(const struct entry *entry)
{
	uint64_t first = entry->first_granule;

	return (struct range){first, first + entry->amount / GRANULE_BYTES};
}

static struct range range_with(struct range range, uint64_t base, uint64_t address, uint64_t bytes)
{
	uint64_t start = base / GRANULE_BYTES, first = address / GRANULE_BYTES - start;
	uint64_t end = (address + bytes - 1) / GRANULE_BYTES - start + 1;

	if (range.first == range.end)
		return (struct range){first, end};
	return (struct range){first < range.first ? first : range.first,
			      end > range.end ? end : range.end};
}

static void set_range(struct entry *entry, struct range range)
{
	entry->first_granule = (uint32_t)range.first;
	entry->amount = (range.end - range.first) * GRANULE_BYTES;
}

static void remove_locked(struct entry *entry)
{
	table_remove(&moves, entry);
	__atomic_store_n(&move_count, moves.count, __ATOMIC_RELEASE);
}

/* The entry, or a new one of nothing. */
static struct entry *entry_locked(const struct block *block, uint64_t base, int device)
{
	struct entry *entry = table_find(&moves, key_of(base, device));

	if (entry)
		return entry;
	entry = table_add(&moves, key_of(base, device));
	if (!entry)
		return NULL;
	entry->context = block->context;
	entry->device = (uint16_t)device;
	__atomic_store_n(&move_count, moves.count, __ATOMIC_RELEASE);
	return entry;
}

static int charge_locked(struct entry *entry, struct range range)
{
	uint64_t bytes = (range.end - range.first) * GRANULE_BYTES;
	int error = 0;

	if (bytes > entry->amount)
		error = account_charge_managed(entry->device, bytes - entry->amount);
	if (!error)
		set_range(entry, range);
	if (!entry->amount)
		remove_locked(entry);
	return error;
}

int quota_move(int device, uint64_t base, uint64_t address, uint64_t bytes, struct quota_move *ret)
{
	struct quota_move move = {.device = device, .base = base};
	struct entry *entry;
	struct block block;
	struct range was;
	uint64_t span;
	int error = -EDQUOT;

	*ret = move;
	if (!bytes || !account_device(device) || !blocks_find(base, &block, &span) ||
	    !block.managed || block.device == device)
		return 0;
	account_begin();
	lock_acquire(&lock);
	entry = entry_locked(&block, base, device);
	if (entry) {
		was = range_of(entry);
		move.first = was.first;
		move.bytes = entry->amount;
		move.charged = true;
		move.before = entry->serial;
		move.serial = ++serials;
		error = charge_locked(entry, range_with(was, base, address, bytes));
		if (!error)
			entry->serial = move.serial;
	}
	lock_release(&lock);
	account_end();
	if (!error)
		*ret = move;
	return error;
}

void quota_move_undo(const struct quota_move *move)
{
	struct entry *entry;

	if (!move->charged)
		return;
	account_begin();
	lock_acquire(&lock);
	entry = table_find(&moves, key_of(move->base, move->device));
	if (entry && entry->serial == move->serial) {
		if (entry->amount > move->bytes)
			account_return_managed(move->device, entry->amount - move->bytes);
		entry->first_granule = (uint32_t)move->first;
		entry->amount = move->bytes;
		entry->serial = move->before;
		if (!entry->amount)
			remove_locked(entry);
	}
	lock_release(&lock);
	account_end();
}

void moved_end(uint64_t base)
{
	struct entry *entry;

	if (!__atomic_load_n(&move_count, __ATOMIC_ACQUIRE))
		return;
	lock_acquire(&lock);
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		entry = table_find(&moves, key_of(base, device));
		if (!entry)
			continue;
		account_return_managed(device, entry->amount);
		remove_locked(entry);
	}
	lock_release(&lock);
}

static bool give_back(void *arg, const struct entry *entry)
{
	if (entry->context != *(const uint64_t *)arg)
		return false;
	account_return_managed(entry->device, entry->amount);
	return true;
}

void moved_end_context(uint64_t context)
{
	if (!__atomic_load_n(&move_count, __ATOMIC_ACQUIRE))
		return;
	lock_acquire(&lock);
	table_remove_if(&moves, give_back, &context);
	__atomic_store_n(&move_count, moves.count, __ATOMIC_RELEASE);
	lock_release(&lock);
}
