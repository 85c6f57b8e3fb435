/*
 * Managed variables, which are charged by the granules that they lie in.
 *
 * The driver places the variables of a module next to each other, so several may lie in one
 * granule. `granules` has an entry for each granule with variables, with their number. The granule
 * is charged on the device of the first, until the last is gone. `variables` has an entry for each
 * address that was handed out.
 *
 * A variable ends with its module, and no call says which variables these are. So the caller asks
 * the driver about each address, without the lock. Meanwhile another module may come to the
 * address, and its variable be looked up. Each look-up has a number, by which
 * quota_variable_forget finds that out.
 *
 * The blocks of blocks.c are not used for this: they leave the accounts before the driver frees
 * them, and variables leave after it. A new block may be at the address by then.
 *
 * Always: a granule is charged if and only if a variable of `variables` lies in it. If the process
 * is killed on any line, all of it stays charged until another process clears its slot. The lock is
 * held while the region is charged, so that an address is charged once, whichever threads look it
 * up.
 */
#include "variable.h"

#include <errno.h>

#include "account.h"
#include "blocks.h"
#include "lock.h"
#include "table.h"

static struct lock lock = LOCK_INIT;
static struct table variables; /* by address; under `lock` */
static struct table granules;  /* by number; under `lock` */
static uint64_t look_ups;      /* written under `lock`, atomic */

struct range {
	uint64_t first, end; /* granules */
};

void variables_forked(void)
{
	lock_init(&lock);
	table_clear(&variables);
	table_clear(&granules);
}

static struct range range_of(uint64_t address, uint64_t bytes)
{
	return (struct range){address / GRANULE_BYTES, (address + bytes - 1) / GRANULE_BYTES + 1};
}

/* Bytes of the granules without variables. */
static uint64_t empty_bytes_locked(struct range range)
{
	uint64_t bytes = 0;

	for (uint64_t granule = range.first; granule < range.end; granule++)
		bytes += table_find(&granules, granule) ? 0 : GRANULE_BYTES;
	return bytes;
}

/* Takes a variable out of its granules, and refunds those where no other one lies. */
static void leave_locked(struct range range)
{
	for (uint64_t granule = range.first; granule < range.end; granule++) {
		struct entry *entry = table_find(&granules, granule);
		int device = entry->device;

		if (--entry->count > 0)
			continue;
		table_remove(&granules, entry);
		account_return_managed(device, GRANULE_BYTES);
	}
}

/* Counts a variable in a granule that is charged. False: there is no memory for the record. */
static bool enter_granule_locked(int device, uint64_t granule)
{
	struct entry *entry = table_find(&granules, granule);

	if (!entry) {
		entry = table_add(&granules, granule);
		if (!entry)
			return false;
		entry->device = (uint16_t)device;
	}
	entry->count++;
	return true;
}

static int enter_locked(int device, struct range range)
{
	int error = account_charge_managed(device, empty_bytes_locked(range));

	if (error)
		return error;
	for (uint64_t granule = range.first; granule < range.end; granule++) {
		struct range rest = {granule, range.end};

		if (enter_granule_locked(device, granule))
			continue;
		account_return_managed(device, empty_bytes_locked(rest));
		leave_locked((struct range){range.first, granule});
		return -EDQUOT;
	}
	return 0;
}

static void forget_locked(struct entry *variable)
{
	struct range range = range_of(variable->key, variable->amount);

	table_remove(&variables, variable);
	leave_locked(range);
}

static int charge_locked(int device, uint64_t address, uint64_t bytes)
{
	struct range range = range_of(address, bytes);
	struct entry *variable;
	int error = enter_locked(device, range);

	if (error)
		return error;
	variable = table_add(&variables, address);
	if (!variable) {
		leave_locked(range);
		return -EDQUOT;
	}
	variable->amount = bytes;
	return 0;
}

int quota_variable_charge(int device, uint64_t address, uint64_t bytes)
{
	struct entry *variable;
	int error = 0;

	if (!bytes || !account_device(device))
		return 0;
	account_begin();
	lock_acquire(&lock);
	variable = table_find(&variables, address);
	if (variable && variable->amount < bytes) { /* that one is gone, and another came */
		forget_locked(variable);
		variable = NULL;
	}
	if (!variable)
		error = charge_locked(device, address, bytes);
	if (!error) {
		__atomic_store_n(&look_ups, look_ups + 1, __ATOMIC_RELAXED);
		table_find(&variables, address)->look_up = look_ups;
	}
	lock_release(&lock);
	account_end();
	return error;
}

uint64_t quota_variable_look_ups(void)
{
	return __atomic_load_n(&look_ups, __ATOMIC_RELAXED);
}

/* The variable with the lowest number of a look-up above `after`. */
struct search {
	uint64_t after;
	struct quota_variable found; /* look_up is 0: none so far */
};

static bool compare(void *arg, const struct entry *variable)
{
	struct search *search = arg;

	if (variable->look_up > search->after &&
	    (!search->found.look_up || variable->look_up < search->found.look_up))
		search->found = (struct quota_variable){variable->key, variable->look_up};
	return false; /* it stays in the table */
}

bool quota_variable_next(struct quota_variable *variable)
{
	struct search search = {.after = variable->look_up};

	lock_acquire(&lock);
	table_remove_if(&variables, compare, &search);
	lock_release(&lock);
	if (!search.found.look_up)
		return false;
	*variable = search.found;
	return true;
}

void quota_variable_forget(const struct quota_variable *variable)
{
	struct entry *entry;

	account_begin();
	lock_acquire(&lock);
	entry = table_find(&variables, variable->address);
	if (entry && entry->look_up == variable->look_up)
		forget_locked(entry);
	lock_release(&lock);
	account_end();
}
