/* One table has all imports, under one lock. The lock is not held while the driver is called, and
 * is taken before the region's. */
#include "import.h"

#include <errno.h>

#include "account.h"
#include "assertion.h"
#include "context.h"
#include "export.h"
#include "lock.h"

#define IMPORTS_MAX 4096

struct import {
	uint64_t memory;  /* as import.h says, or a number while it is being opened or closed */
	uint64_t context; /* the import ends with it; or 0 */
	uint64_t key;     /* 0: no process of the slice exports the memory */
	uint64_t bytes;   /* of the charge that the key names */
	uint64_t charge;  /* without a key: the number under which holding.c has the charge */
	unsigned index;   /* in the region, of the device of the key's charge */
	bool for_good;    /* it was exported again, so its end cannot be seen */
	bool of_pool;     /* a pointer of a pool, with a key */
};

static struct lock lock = LOCK_INIT;
static struct import imports[IMPORTS_MAX]; /* under `lock` */
static unsigned count;                     /* written under `lock`, read without */
static uint64_t numbers; /* of charges, and of imports that are being closed; atomic */
/* Bytes of charges that imports have left here for good, by the device's index in the region;
 * atomic
 */
static uint64_t kept[VGPU_DEVICES_MAX];

void imports_forked(void)
{
	lock_init(&lock);
	count = 0;
	for (unsigned index = 0; index < VGPU_DEVICES_MAX; index++)
		kept[index] = 0;
}

/* -- the table -- */

static bool is_empty(void)
{
	return __atomic_load_n(&count, __ATOMIC_ACQUIRE) == 0;
}

static bool add_locked(const struct import *import)
{
	if (count == IMPORTS_MAX)
		return false;
	imports[count] = *import;
	__atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
	return true;
}

static bool add(const struct import *import)
{
	bool added;

	lock_acquire(&lock);
	added = add_locked(import);
	lock_release(&lock);
	return added;
}

static struct import *find_locked(uint64_t memory)
{
	for (unsigned i = 0; i < count; i++)
		if (imports[i].memory == memory)
			return &imports[i];
	return NULL;
}

static struct import *find_of_locked(uint64_t memory, uint64_t context)
{
	for (unsigned i = 0; i < count; i++)
		if (imports[i].memory == memory && imports[i].context == context)
			return &imports[i];
	return NULL;
}

static bool take_locked(struct import *import, struct import *ret_import)
{
	if (!import)
		return false;
	*ret_import = *import;
	*import = imports[count - 1];
	__atomic_store_n(&count, count - 1, __ATOMIC_RELEASE);
	return true;
}

/* Takes an import of the memory out of the table. */
static bool take(uint64_t memory, struct import *ret_import)
{
	bool found;

	if (is_empty())
		return false;
	lock_acquire(&lock);
	found = take_locked(find_locked(memory), ret_import);
	lock_release(&lock);
	return found;
}

static bool take_of(uint64_t context, struct import *ret_import)
{
	struct import *found = NULL;
	bool took;

	if (is_empty())
		return false;
	lock_acquire(&lock);
	for (unsigned i = 0; i < count && !found; i++)
		if (imports[i].context == context)
			found = &imports[i];
	took = take_locked(found, ret_import);
	lock_release(&lock);
	return took;
}

/* Whether another import of the table has the charge, too. */
static bool is_shared(uint64_t charge)
{
	bool shared = false;

	lock_acquire(&lock);
	for (unsigned i = 0; i < count; i++)
		shared |= imports[i].charge == charge;
	lock_release(&lock);
	return shared;
}

/* -- charges -- */

static uint64_t new_number(void)
{
	return __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
}

static void end_charge(uint64_t charge)
{
	struct holding_release release;

	if (quota_holding_unref_begin(HOLDING_IMPORT, charge, &release))
		quota_holding_unref_commit(&release);
}

static bool has_moved(const struct import *import)
{
	return import->key && region_share_has_moved_here(&account_region, import->key);
}

/* The import is in the table no more. A pool's pointer whose exporter has let go before keeps its
 * charge until this process ends. So long, the driver has the memory, in no process's figure, even
 * after the pointer is freed and the pool destroyed (H200, driver 580.159). */
static void end(const struct import *import)
{
	ASSERT(account_is_changing()); /* a charge that had moved here goes */
	if (import->for_good)
		return;
	if (import->of_pool && has_moved(import)) {
		__atomic_add_fetch(&kept[import->index], import->bytes, __ATOMIC_RELAXED);
		return;
	}
	if (import->key)
		region_share_import_end(&account_region, import->key);
	else if (!is_shared(import->charge))
		end_charge(import->charge);
}

/* -- importing -- */

static void begin(uint64_t key, struct quota_import *ret_import)
{
	account_begin();
	*ret_import = (struct quota_import){.key = key};
	if (key &&
	    region_share_import(&account_region, key, &ret_import->index, &ret_import->bytes) != 1)
		ret_import->key = 0;
}

void quota_import_begin(const void *handle, size_t len, struct quota_import *ret_import)
{
	begin(export_key(handle, len), ret_import);
}

void quota_import_begin_fd(int fd, struct quota_import *ret_import)
{
	begin(region_descriptor_key(&account_region, fd), ret_import);
}

void quota_import_begin_unknown(struct quota_import *ret_import)
{
	begin(0, ret_import);
}

void quota_import_cancel(const struct quota_import *import)
{
	if (import->key)
		region_share_import_end(&account_region, import->key);
	account_end();
}

bool quota_import_record(const struct quota_import *import, uint64_t memory, uint64_t size_bytes,
			 uint64_t context)
{
	const struct import recorded = {.memory = memory,
					.context = context,
					.key = import->key,
					.bytes = import->bytes,
					.index = import->index};

	if (import->key && size_bytes <= import->bytes && add(&recorded)) {
		account_end();
		return true;
	}
	quota_import_cancel(import);
	return false;
}

/* The lock is held throughout: another thread may be closing the import that has the charge. */
int quota_import_again(uint64_t memory, uint64_t context)
{
	const struct import *import;
	struct import again;
	int added = 0;

	if (is_empty())
		return 0;
	lock_acquire(&lock);
	import = find_of_locked(memory, context);
	if (import && !import->key) {
		again = *import;
		added = add_locked(&again) ? 1 : -ENOMEM;
	}
	lock_release(&lock);
	return added;
}

int quota_import_charge(const struct holding_reservation *reservation, uint64_t memory,
			uint64_t context)
{
	const struct import import = {.memory = memory, .context = context, .charge = new_number()};

	if (quota_holding_add(reservation, import.charge) != 0) {
		quota_holding_cancel(reservation);
		return -ENOMEM;
	}
	if (add(&import))
		return 0;
	end_charge(import.charge);
	return -ENOMEM;
}

bool quota_import_later(uint64_t memory)
{
	const struct import import = {.memory = memory, .charge = new_number()};

	return add(&import);
}

bool quota_import_is_due(uint64_t memory, uint64_t size_bytes)
{
	uint64_t wrong_key = 0, charge = 0, charged;
	struct import *import;
	int device;

	if (is_empty())
		return false;
	lock_acquire(&lock);
	import = find_locked(memory);
	if (import && import->key && size_bytes > import->bytes) {
		wrong_key = import->key;
		import->key = 0;
		import->charge = new_number();
	}
	if (import && !import->key)
		charge = import->charge;
	lock_release(&lock);
	ASSERT(account_is_changing());
	if (wrong_key)
		region_share_import_end(&account_region, wrong_key);
	return charge && (!quota_holding_charge(HOLDING_IMPORT, charge, &device, &charged) ||
			  charged < size_bytes);
}

int quota_import_pay(const struct holding_reservation *reservation, uint64_t memory)
{
	const struct import *import;
	uint64_t charge = 0;

	lock_acquire(&lock);
	import = find_locked(memory);
	if (import)
		charge = import->charge;
	lock_release(&lock);
	if (charge && quota_holding_add(reservation, charge) == 0)
		return 0;
	quota_holding_cancel(reservation);
	return -ENOMEM;
}

void quota_import_exported(uint64_t memory, int fd)
{
	struct region_descriptors key = {0, region_descriptor_file(fd)};
	struct import *import;

	lock_acquire(&lock);
	import = find_locked(memory);
	if (import) {
		key.key = import->key;
		if (!region_is_descriptor_key(key.key) || region_descriptor_mark(fd, &key) != 0)
			import->for_good = true;
	}
	lock_release(&lock);
}

/* -- what ends -- */

void quota_import_ended(uint64_t memory)
{
	struct import import;

	if (take(memory, &import))
		end(&import);
}

/* Gives an import of the memory another name. */
static bool rename_import(uint64_t from, uint64_t to)
{
	struct import *import;

	if (is_empty())
		return false;
	lock_acquire(&lock);
	import = find_locked(from);
	if (import)
		import->memory = to;
	lock_release(&lock);
	return import != NULL;
}

uint64_t quota_import_expect(const struct quota_import *import)
{
	const struct import expected = {.memory = EXPORT_FREED_BITS | new_number(),
					.key = import->key,
					.bytes = import->bytes,
					.index = import->index,
					.of_pool = true};

	return import->key && add(&expected) ? expected.memory : 0;
}

void quota_import_arrived(uint64_t number, uint64_t memory)
{
	if (memory)
		rename_import(number, memory);
	else
		quota_import_ended(number);
	account_end();
}

/* The import has a number from before the driver's call on: after it, another thread may have
 * imported other memory at the same address. It stays in the table, as its context may end. */
void quota_pointer_free_begin(uint64_t address, struct quota_pointer *ret_pointer)
{
	const uint64_t number = EXPORT_FREED_BITS | new_number();

	account_begin();
	*ret_pointer = (struct quota_pointer){.address = address};
	if (!export_is_address(address))
		return;
	ret_pointer->exports = exports_leave(address, 0);
	if (rename_import(address, number))
		ret_pointer->import = number;
}

void quota_pointer_free_end(const struct quota_pointer *pointer, bool is_freed)
{
	if (is_freed) {
		exports_end_replaced(pointer->exports);
		quota_import_ended(pointer->import);
	} else {
		exports_return(pointer->exports, pointer->address);
		rename_import(pointer->import, pointer->address);
	}
	account_end();
}

void quota_pointer_free_postpone(const struct quota_pointer *pointer)
{
	exports_end_replaced(pointer->exports);
	account_end();
}

void quota_pointer_free_late(uint64_t import)
{
	account_begin();
	quota_import_ended(import);
	account_end();
}

bool quota_import_has_moved(uint64_t memory, int *ret_device, uint64_t *ret_bytes)
{
	const struct account_device *device;
	struct import import = {.key = 0};
	const struct import *found;

	lock_acquire(&lock);
	found = find_locked(memory);
	if (found)
		import = *found;
	lock_release(&lock);
	if (!has_moved(&import))
		return false;
	*ret_bytes = import.bytes;
	for (*ret_device = 0; *ret_device < VGPU_DEVICES_MAX; ++*ret_device) {
		device = account_device(*ret_device);
		if (device && device->index == import.index)
			return true;
	}
	return false;
}

uint64_t imports_moved(int device)
{
	const unsigned index = account_device(device)->index;
	uint64_t bytes = __atomic_load_n(&kept[index], __ATOMIC_RELAXED);

	if (is_empty())
		return bytes;
	lock_acquire(&lock);
	for (unsigned i = 0; i < count; i++)
		if (imports[i].of_pool && imports[i].index == index && has_moved(&imports[i]))
			bytes += imports[i].bytes;
	lock_release(&lock);
	return bytes;
}

void imports_end_context(uint64_t context)
{
	struct import import;

	while (context && take_of(context, &import))
		end(&import);
}

void quota_import_made_in(uint64_t context, uint64_t ends_before)
{
	if (!quota_context_has_ended(context, ends_before))
		return;
	account_begin();
	imports_end_context(context);
	account_end();
}

bool quota_shares_look(void)
{
	if (!is_empty())
		region_reap(&account_region);
	return quota_exports_look();
}
