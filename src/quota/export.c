/*
 * One table has all exports, under one lock. The lock is not held while the driver is called, and
 * is taken before the region's.
 *
 * A block's export is recorded before the driver makes it, as another thread may free the block
 * meanwhile. A block keeps all granules that it lies in, and stays charged with all of them, also
 * with a granule that another block has charged.
 */
#include "export.h"

#include <errno.h>

#include "account.h"
#include "allocation.h"
#include "lock.h"

#define EXPORTS_MAX 4096

struct export
{
	uint64_t memory;               /* as export.h says; 0: only descriptors are left */
	uint64_t context;              /* of a block, which ends with it; or 0 */
	uint64_t pool;                 /* of a pointer; or 0 */
	struct region_descriptors key; /* file is 0 for an export by handle */
	uint64_t bytes; /* of the memory; if only descriptors are left, charged as hidden */
	int device;
	bool listed;      /* in the region's table of shares */
	bool unsure;      /* it cannot be found out whether a descriptor is left */
	uint32_t pending; /* the driver is exporting it: the number of that call; or 0 */
};

static struct lock lock = LOCK_INIT;
static struct export exports[EXPORTS_MAX]; /* under `lock` */
static unsigned count;                     /* written under `lock`, read without */
static uint32_t serials;                   /* of calls that export; under `lock` */
static uint32_t numbers;                   /* of blocks that were freed; under `lock` */

void exports_forked(void)
{
	lock_init(&lock);
	count = 0;
}

/* Whether the memory has a number of exports_leave. */
static bool is_freed(uint64_t memory)
{
	return (memory & EXPORT_FREED_BITS) == EXPORT_FREED_BITS;
}

/* -- the region's table of shares -- */

static int list(int device, const struct region_descriptors *key, uint64_t bytes)
{
	return region_share_export_descriptors(&account_region, account_device(device)->index, key,
					       bytes);
}

/* The process gives the memory up, of whose charge no other block shares charged_bytes. True: the
 * slice is charged `bytes` instead from now on, here or in another process. */
static bool withdraw(int device, uint64_t key, uint64_t bytes, uint64_t charged_bytes)
{
	uint64_t more = bytes > charged_bytes ? bytes - charged_bytes : 0;
	bool stays;

	account_begin();
	account_charge_anyway(REGION_DATA, device, more);
	/* In case of an error the charge stays: another process may rely on the entry. */
	stays = region_share_withdraw(&account_region, key, bytes) != 0;
	if (!stays && more)
		account_refund(device, more);
	account_end();
	return stays;
}

/* Whether any process may still have a descriptor of the memory. */
static bool is_left(const struct export *export)
{
	return export->unsure || region_descriptors_left(&account_region, &export->key) != 0;
}

/* From now on, `bytes` are on the device and in no process's NVML figure. charged_bytes of them
 * were charged as data. */
static void hide(int device, uint64_t bytes, uint64_t charged_bytes)
{
	account_charge_anyway(REGION_OFFSET, device, bytes);
	account_refund(device, charged_bytes);
}

static void hidden_gone(const struct export *export)
{
	account_refund_as(REGION_OFFSET, export->device, export->bytes);
}

/* -- the table -- */

/* False: the table is full. */
static bool add_locked(const struct export *export)
{
	if (count == EXPORTS_MAX)
		return false;
	exports[count] = *export;
	__atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
	return true;
}

static void remove_locked(unsigned i)
{
	exports[i] = exports[count - 1];
	__atomic_store_n(&count, count - 1, __ATOMIC_RELEASE);
}

static bool is_empty(void)
{
	return __atomic_load_n(&count, __ATOMIC_ACQUIRE) == 0;
}

static bool is_known_locked(uint64_t memory, uint64_t key)
{
	for (unsigned i = 0; i < count; i++)
		if (exports[i].memory == memory && exports[i].key.key == key)
			return true;
	return false;
}

/* The record of the memory's descriptors, or NULL. */
static struct export *find_descriptors_locked(uint64_t memory)
{
	for (unsigned i = 0; i < count; i++)
		if (exports[i].memory == memory && exports[i].key.file && !exports[i].pending)
			return &exports[i];
	return NULL;
}

static unsigned find_pending_locked(uint32_t serial)
{
	unsigned i = 0;

	while (exports[i].pending != serial)
		i++;
	return i;
}

/* -- exporting -- */

static void record_handle_locked(struct export *export, const void *handle, size_t len,
				 uint64_t bytes)
{
	export->key = (struct region_descriptors){export_key(handle, len), 0};
	export->listed = true;
	export->bytes = bytes;
	if (!is_known_locked(export->memory, export->key.key) &&
	    list(export->device, &export->key, bytes) == 0 && !add_locked(export))
		withdraw(export->device, export->key.key, 0, 0);
}

void quota_export_handle(uint64_t memory, const void *handle, size_t len, int device,
			 uint64_t bytes, uint64_t context)
{
	struct export export = {.memory = memory, .context = context, .device = device};

	lock_acquire(&lock);
	record_handle_locked(&export, handle, len, bytes);
	lock_release(&lock);
}

void quota_export_pointer(uint64_t address, const void *handle, size_t len, int device,
			  uint64_t bytes, uint64_t pool)
{
	struct export export = {.memory = address, .pool = pool, .device = device};

	lock_acquire(&lock);
	record_handle_locked(&export, handle, len, bytes);
	lock_release(&lock);
}

/* Records the memory's first descriptor. */
static bool record_first_locked(struct export *export, int fd, uint64_t bytes)
{
	bool added;

	export->unsure = region_descriptor_mark(fd, &export->key) != 0;
	if (export->unsure)
		export->key.file = 1; /* not 0: this is an export by descriptor */
	export->bytes = bytes;
	added = add_locked(export);
	if (added && !export->unsure)
		exports[count - 1].listed = list(export->device, &export->key, bytes) == 0;
	return added;
}

/* False: there is no place for the record. */
static bool record_fd_locked(struct export *export, int fd, uint64_t bytes)
{
	struct export *known = find_descriptors_locked(export->memory);

	if (!known)
		return record_first_locked(export, fd, bytes);
	/* Descriptors without a mark, or of a file that the region does not know, cannot be found.
	 */
	if (region_descriptor_mark(fd, &known->key) != 0 ||
	    (known->listed && list(export->device, &known->key, bytes) != 0))
		known->unsure = true;
	return true;
}

int quota_export_fd(uint64_t memory, int fd, int device, uint64_t bytes)
{
	struct export export = {.memory = memory, .device = device};
	bool recorded;

	lock_acquire(&lock);
	recorded = record_fd_locked(&export, fd, bytes);
	lock_release(&lock);
	return recorded ? 0 : -ENOMEM;
}

/* -- exporting a block, which another thread may free meanwhile -- */

/* Whether the accounts still have the block. */
static bool is_there(uint64_t address, const struct quota_block *block)
{
	struct block now;
	uint64_t bytes;

	return blocks_find(address, &now, &bytes) && !now.managed && now.device == block->device &&
	       now.context == block->context && bytes == block->bytes;
}

/* The block is looked for once the record is made: a free that began before may have looked for
 * records already. */
bool quota_export_begin(uint64_t address, const struct quota_block *block, uint32_t *ret_serial,
			bool *ret_full)
{
	struct export export = {.memory = address,
				.context = block->context,
				.key = {0, 1},
				.device = block->device,
				.unsure = true};

	lock_acquire(&lock);
	serials += serials == UINT32_MAX ? 2 : 1; /* never 0 */
	export.pending = *ret_serial = serials;
	*ret_full = !add_locked(&export);
	lock_release(&lock);
	if (*ret_full)
		return false;
	if (is_there(address, block))
		return true;
	quota_export_cancel(export.pending);
	return false;
}

/* Takes the record of the call out of the table, which then has a place for another one. */
static struct export take_pending_locked(uint32_t serial)
{
	unsigned i = find_pending_locked(serial);
	struct export export = exports[i];

	remove_locked(i);
	export.pending = 0;
	export.key = (struct region_descriptors){0, 0};
	export.unsure = false;
	return export;
}

/* A block that was freed while the driver exported it has its charge as hidden. */
static void drop_hidden(const struct export *export)
{
	if (!export->memory)
		hidden_gone(export);
}

/* A handle does not keep a block that was freed. */
void quota_export_end_handle(uint32_t serial, const struct quota_block *block, const void *handle,
			     size_t len)
{
	struct export export;

	lock_acquire(&lock);
	export = take_pending_locked(serial);
	drop_hidden(&export);
	if (export.memory)
		record_handle_locked(&export, handle, len, block->bytes);
	lock_release(&lock);
}

/* The block was freed meanwhile. The caller closes the descriptor, but another thread may have
 * copied it. The region keeps the block's charge while a copy is open anywhere. If the region has
 * no place, the charge stays here, as hidden. */
static void end_freed_locked(struct export *export, int fd)
{
	export->unsure = region_descriptor_mark(fd, &export->key) != 0;
	if (!export->unsure && list(export->device, &export->key, export->bytes) == 0) {
		withdraw(export->device, export->key.key, export->bytes, 0);
		hidden_gone(export);
		return;
	}
	if (export->unsure)
		export->key.file = 1;
	add_locked(export);
}

bool quota_export_end_fd(uint32_t serial, const struct quota_block *block, int fd)
{
	struct export export;
	bool stays;

	lock_acquire(&lock);
	export = take_pending_locked(serial);
	stays = export.memory && !is_freed(export.memory);
	if (export.memory)
		record_fd_locked(&export, fd, block->bytes);
	else
		end_freed_locked(&export, fd);
	lock_release(&lock);
	return stays;
}

void quota_export_cancel(uint32_t serial)
{
	struct export export;

	lock_acquire(&lock);
	export = take_pending_locked(serial);
	drop_hidden(&export);
	lock_release(&lock);
}

/* -- the end of exported memory -- */

uint64_t exports_leave(uint64_t address, uint64_t context)
{
	uint64_t number = 0;

	if (is_empty())
		return 0;
	lock_acquire(&lock);
	for (unsigned i = 0; i < count; i++)
		if (exports[i].memory == address && exports[i].context == context) {
			number = EXPORT_FREED_BITS | (numbers + 1);
			exports[i].memory = number;
		}
	numbers += number != 0;
	lock_release(&lock);
	return number;
}

void exports_return(uint64_t number, uint64_t address)
{
	if (!number)
		return;
	lock_acquire(&lock);
	for (unsigned i = 0; i < count; i++)
		if (exports[i].memory == number)
			exports[i].memory = address;
	lock_release(&lock);
}

/* Ends the i-th export, as this process has freed the memory. Returns whether `bytes` stay charged
 * in place of charged_bytes: in the region's table of shares, or else here as hidden. */
static bool end_locked(unsigned i, uint64_t bytes, uint64_t charged_bytes)
{
	struct export *export = &exports[i];
	bool stays =
		export->listed && withdraw(export->device, export->key.key, bytes, charged_bytes);

	export->listed = false;
	if (stays && !export->unsure) {
		remove_locked(i);
		return true;
	}
	if (!export->key.file || !is_left(export)) {
		remove_locked(i);
		return false;
	}
	export->memory = 0;
	export->bytes = bytes;
	hide(export->device, bytes, stays ? 0 : charged_bytes);
	return true;
}

uint64_t exports_end(uint64_t memory, uint64_t bytes, uint64_t charged_bytes)
{
	uint64_t left = charged_bytes;

	if (!memory || is_empty())
		return 0;
	lock_acquire(&lock);
	for (unsigned i = count; i-- > 0;)
		if (exports[i].memory == memory && end_locked(i, bytes, left))
			left = 0;
	lock_release(&lock);
	return charged_bytes - left;
}

void exports_end_replaced(uint64_t memory)
{
	if (!memory || is_empty())
		return;
	lock_acquire(&lock);
	for (unsigned i = count; i-- > 0;)
		if (exports[i].memory == memory)
			end_locked(i, exports[i].bytes, 0);
	lock_release(&lock);
}

void exports_end_pool(uint64_t pool)
{
	if (is_empty())
		return;
	lock_acquire(&lock);
	for (unsigned i = count; i-- > 0;)
		if (exports[i].pool == pool)
			end_locked(i, exports[i].bytes, 0);
	lock_release(&lock);
}

bool exports_find_of(uint64_t context, uint64_t *ret_address)
{
	bool found = false;

	if (is_empty())
		return false;
	lock_acquire(&lock);
	for (unsigned i = 0; i < count && !found; i++)
		if (exports[i].context == context && exports[i].memory &&
		    !is_freed(exports[i].memory)) {
			found = true;
			*ret_address = exports[i].memory;
		}
	lock_release(&lock);
	return found;
}

/* Memory that the region gives back was in no process's NVML figure, so the accounts do not change.
 */
bool quota_exports_look(void)
{
	bool gone = region_share_look(&account_region);

	if (is_empty())
		return gone;
	lock_acquire(&lock);
	for (unsigned i = count; i-- > 0;)
		if (!exports[i].memory && !is_left(&exports[i])) {
			hidden_gone(&exports[i]);
			remove_locked(i);
			gone = true;
		}
	lock_release(&lock);
	return gone;
}
