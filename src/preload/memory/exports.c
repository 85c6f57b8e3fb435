/*
 * Device memory that goes from process to process: CUDA IPC, VMM handles as file descriptors or
 * fabric handles, pools, DMA-BUFs, and memory of other APIs (cuImportExternalMemory).
 *
 * Within a slice, such memory is charged once. The exporter has the charge, and puts a key into the
 * region's table of shares. The key of a handle is a hash, and that of file descriptors a number
 * that is never used again. An importer looks the key up. If the key is there and the memory is not
 * larger than its charge, the importer is not charged. If the exporter frees the memory first, or
 * dies, the charge moves to an importer (region_share_…). Memory that no process of the slice
 * exports is charged to the importer as long as it has the memory open.
 *
 * A file descriptor by itself keeps the memory on the device, and no process's NVML figure has that
 * memory. So the memory stays charged while any process has a descriptor of it
 * (region/descriptor.c finds out). Where that cannot be found out, the memory stays charged until
 * this process ends. An export that cannot be recorded is refused. The record is made before the
 * driver exports a block, as another thread may free the block meanwhile. A block keeps all
 * granules that it lies in, and stays charged with all of them, also with a granule that another
 * block has charged.
 *
 * The tables below have all exports and imports, under one lock. The lock is not held while the
 * driver is called, and is taken before the region's.
 */
#include "exports.h"

#include "hash.h"
#include "headroom.h"
#include "hooks.h"
#include "lock.h"
#include "region.h"
#include "sys.h"

#define EXPORTS_MAX 4096
#define IMPORTS_MAX 4096

/* Memory of this process that it has exported. */
struct export
{
	uint64_t
		what; /* the address of a block, or quota_holding_number; 0: descriptors are left */
	CUcontext context;             /* the memory ends with it; or NULL */
	struct region_descriptors key; /* file is 0 for an export by handle */
	uint64_t bytes;                /* charged as hidden, as only descriptors keep them */
	int device;
	bool listed;      /* in the region's table of shares */
	bool unsure;      /* it cannot be found out whether a descriptor is left */
	uint32_t pending; /* the driver is exporting it: the number of that call; or 0 */
};

/* Memory that this process has imported. */
struct import {
	uint64_t what;     /* the address, the VMM handle or the pool */
	CUcontext context; /* the import ends with it; or NULL */
	uint64_t key;      /* 0: no process of the slice exports the memory */
	uint64_t bytes;    /* of the charge that the key names */
	bool for_good;     /* it was exported again, so its end cannot be seen */
};

static struct lock lock = LOCK_INIT;
static struct export exports[EXPORTS_MAX]; /* under `lock` */
static unsigned export_count;              /* written under `lock`, read without */
static uint32_t serials;                   /* of calls that export; under `lock` */
static struct import imports[IMPORTS_MAX]; /* under `lock` */
static unsigned import_count;              /* written under `lock`, read without */

void share_forked(void)
{
	lock_init(&lock);
	export_count = 0;
	import_count = 0;
}

/* The lowest bit is set: never 0, and never a key of descriptors, which is even. */
static uint64_t key_of(const void *bytes, size_t len)
{
	return hash_bytes(bytes, len) | 1;
}

/* -- what we hand out -------------------------------------------------------------------------- */

/* False: the table is full. */
static bool add_export_locked(const struct export *export)
{
	if (export_count == EXPORTS_MAX)
		return false;
	exports[export_count] = *export;
	__atomic_store_n(&export_count, export_count + 1, __ATOMIC_RELEASE);
	return true;
}

static void remove_export_locked(unsigned i)
{
	exports[i] = exports[export_count - 1];
	__atomic_store_n(&export_count, export_count - 1, __ATOMIC_RELEASE);
}

static bool is_exported_locked(uint64_t what, uint64_t key)
{
	for (unsigned i = 0; i < export_count; i++)
		if (exports[i].what == what && exports[i].key.key == key)
			return true;
	return false;
}

void share_export_handle(uint64_t what, const void *handle, size_t len, CUdevice device,
			 uint64_t bytes, CUcontext context)
{
	struct export export = {.what = what,
				.context = context,
				.key = {key_of(handle, len), 0},
				.device = device,
				.listed = true};

	lock_acquire(&lock);
	/* If the region's table is full, importers are charged for the memory themselves. */
	if (!is_exported_locked(what, export.key.key) &&
	    quota_share_export(device, &export.key, bytes) == 0 && !add_export_locked(&export))
		quota_share_withdraw(device, export.key.key, 0, 0);
	lock_release(&lock);
}

/* The record of the memory's descriptors, or NULL. */
static struct export *find_descriptors_locked(uint64_t what)
{
	for (unsigned i = 0; i < export_count; i++)
		if (exports[i].what == what && exports[i].key.file && !exports[i].pending)
			return &exports[i];
	return NULL;
}

/* Fills in the export of the memory's first descriptor. */
static bool export_fd_locked(int fd, uint64_t bytes, struct export *export)
{
	bool added;

	export->unsure = region_descriptor_mark(fd, &export->key) != 0;
	if (export->unsure)
		export->key.file = 1; /* not 0: this is an export by descriptor */
	added = add_export_locked(export);
	if (added && !export->unsure)
		exports[export_count - 1].listed =
			quota_share_export(export->device, &export->key, bytes) == 0;
	return added;
}

/* False: there is no place for the record. */
static bool record_fd_locked(uint64_t what, int fd, CUdevice device, uint64_t bytes,
			     CUcontext context)
{
	struct export export = {.what = what, .context = context, .device = device}, *known;

	known = find_descriptors_locked(what);
	if (!known)
		return export_fd_locked(fd, bytes, &export);
	/* Descriptors without a mark, or of a file that the region does not know, cannot be found.
	 */
	if (region_descriptor_mark(fd, &known->key) != 0 ||
	    (known->listed && quota_share_export(device, &known->key, bytes) != 0))
		known->unsure = true;
	return true;
}

CUresult share_export_fd(uint64_t what, int fd, CUdevice device, uint64_t bytes, CUcontext context)
{
	bool recorded;

	lock_acquire(&lock);
	recorded = record_fd_locked(what, fd, device, bytes, context);
	lock_release(&lock);
	if (recorded)
		return CUDA_SUCCESS;
	sys_close(fd);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

bool share_export_begin(uint64_t what, CUdevice device, CUcontext context, uint32_t *ret_serial)
{
	struct export export = {
		.what = what, .context = context, .key = {0, 1}, .device = device, .unsure = true};
	bool added;

	lock_acquire(&lock);
	serials += serials == UINT32_MAX ? 2 : 1; /* never 0 */
	export.pending = *ret_serial = serials;
	added = add_export_locked(&export);
	lock_release(&lock);
	return added;
}

static unsigned find_pending_locked(uint32_t serial)
{
	unsigned i = 0;

	while (exports[i].pending != serial)
		i++;
	return i;
}

/* The block was freed while the driver exported it. The region keeps its charge while a descriptor
 * of it is open anywhere. If the region has no place, the charge stays here, as hidden. */
static void end_freed_locked(unsigned i, CUresult result, int fd)
{
	struct export *export = &exports[i];

	export->pending = 0;
	if (result != CUDA_SUCCESS) {
		quota_hidden_gone(export->device, export->bytes);
		remove_export_locked(i);
		return;
	}
	export->key = (struct region_descriptors){0, 0};
	export->unsure = region_descriptor_mark(fd, &export->key) != 0;
	if (export->unsure) {
		export->key.file = 1;
	} else if (quota_share_export(export->device, &export->key, export->bytes) == 0) {
		quota_share_withdraw(export->device, export->key.key, export->bytes, 0);
		quota_hidden_gone(export->device, export->bytes);
		remove_export_locked(i);
	}
}

CUresult share_export_end(uint32_t serial, CUresult result, int fd, uint64_t bytes)
{
	struct export export;
	bool recorded = true;
	unsigned i;

	lock_acquire(&lock);
	i = find_pending_locked(serial);
	export = exports[i];
	if (!export.what) {
		end_freed_locked(i, result, fd);
	} else {
		remove_export_locked(i);
		if (result == CUDA_SUCCESS)
			recorded = record_fd_locked(export.what, fd, export.device, bytes,
						    export.context);
	}
	lock_release(&lock);
	if (recorded)
		return result;
	sys_close(fd);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool is_left(const struct export *export)
{
	return export->unsure || quota_share_left(&export->key);
}

/* Ends the i-th export, as this process has freed the memory. Returns whether `bytes` stay charged
 * in place of charged_bytes: in the region's table of shares, or else here as hidden. */
static bool end_export_locked(unsigned i, uint64_t bytes, uint64_t charged_bytes)
{
	struct export *export = &exports[i];
	bool stays = export->listed &&
		     quota_share_withdraw(export->device, export->key.key, bytes, charged_bytes);

	export->listed = false;
	if (stays && !export->unsure) {
		remove_export_locked(i);
		return true;
	}
	if (!export->key.file || !is_left(export)) {
		remove_export_locked(i);
		return false;
	}
	export->what = 0;
	export->bytes = bytes;
	quota_hide(export->device, bytes, stays ? 0 : charged_bytes);
	return true;
}

/*
 * This process has freed the memory; other processes or descriptors may keep `bytes` of it. Returns
 * how much of charged_bytes is not to be refunded.
 */
static uint64_t end_exports(uint64_t what, uint64_t bytes, uint64_t charged_bytes)
{
	uint64_t left = charged_bytes;

	lock_acquire(&lock);
	for (unsigned i = export_count; i-- > 0;)
		if (exports[i].what == what && end_export_locked(i, bytes, left))
			left = 0;
	lock_release(&lock);
	return charged_bytes - left;
}

bool share_look(void)
{
	bool gone;

	if (__atomic_load_n(&import_count, __ATOMIC_ACQUIRE))
		quota_reap(); /* moves the charges of a dead exporter to the importers */
	gone = quota_share_look();
	if (!__atomic_load_n(&export_count, __ATOMIC_ACQUIRE))
		return gone;
	lock_acquire(&lock);
	for (unsigned i = export_count; i-- > 0;)
		if (!exports[i].what && !is_left(&exports[i])) {
			quota_hidden_gone(exports[i].device, exports[i].bytes);
			remove_export_locked(i);
			gone = true;
		}
	lock_release(&lock);
	return gone;
}

/* Ends the block's exports. Returns the release with the bytes that nothing keeps. */
static struct quota_release without_exports(const struct quota_release *release)
{
	struct quota_release left = *release;

	if (__atomic_load_n(&export_count, __ATOMIC_ACQUIRE))
		left.bytes -= end_exports(release->block.address, blocks_span(&release->block),
					  release->bytes);
	return left;
}

void share_free(const struct quota_release *release)
{
	struct quota_release left = without_exports(release);

	quota_free_commit(&left);
}

/* NVML does not count what a descriptor keeps, so that must not become module memory, which the
 * next comparison would refund. */
void share_free_orphan(const struct quota_release *release)
{
	struct quota_release left;

	quota_free_resume();
	left = without_exports(release);
	quota_free_postpone();
	quota_free_orphan(&left);
}

void share_end_physical(const struct holding_release *release)
{
	struct holding_release left = *release;

	if (__atomic_load_n(&export_count, __ATOMIC_ACQUIRE))
		left.bytes -= end_exports(quota_holding_number(release->serial), release->bytes,
					  release->bytes);
	share_end_import(release->handle);
	quota_holding_unref_commit(&left);
}

/* -- what we get ------------------------------------------------------------------------------- */

static bool add_import(uint64_t what, uint64_t key, uint64_t bytes, CUcontext context)
{
	bool room;

	lock_acquire(&lock);
	room = import_count < IMPORTS_MAX;
	if (room) {
		imports[import_count] = (struct import){what, context, key, bytes, false};
		__atomic_store_n(&import_count, import_count + 1, __ATOMIC_RELEASE);
	}
	lock_release(&lock);
	return room;
}

static struct import *find_import_locked(uint64_t what)
{
	for (unsigned i = 0; i < import_count; i++)
		if (imports[i].what == what)
			return &imports[i];
	return NULL;
}

/* Takes an import of the memory out of the table; or, if `context` is not NULL, one that ends with
 * that context. *ret_last: the table has no other one of the same memory. */
static bool remove_import(uint64_t what, CUcontext context, struct import *ret_import,
			  bool *ret_last)
{
	bool found = false;

	if (!__atomic_load_n(&import_count, __ATOMIC_ACQUIRE))
		return false;
	lock_acquire(&lock);
	for (unsigned i = 0; i < import_count && !found; i++)
		if (context ? imports[i].context == context : imports[i].what == what) {
			found = true;
			*ret_import = imports[i];
			imports[i] = imports[import_count - 1];
			__atomic_store_n(&import_count, import_count - 1, __ATOMIC_RELEASE);
		}
	*ret_last = found && !find_import_locked(ret_import->what);
	lock_release(&lock);
	return found;
}

/* The charge of the key is not this process's, although nothing has ended. */
static void leave_key(uint64_t key)
{
	quota_ending_begin();
	quota_share_import_end(key);
	quota_ending_end();
}

/* Whether no process of the slice exports the memory. That is also so if the memory is larger than
 * the charge that its key has. */
static bool is_outsiders(uint64_t what, uint64_t size_bytes)
{
	struct import *import;
	bool found;
	uint64_t wrong_key = 0;

	if (!__atomic_load_n(&import_count, __ATOMIC_ACQUIRE))
		return false;
	lock_acquire(&lock);
	import = find_import_locked(what);
	if (import && import->key && size_bytes > import->bytes) {
		wrong_key = import->key;
		import->key = 0;
	}
	found = import && import->key == 0;
	lock_release(&lock);
	if (wrong_key)
		leave_key(wrong_key);
	return found;
}

static void import_key(uint64_t key, struct share_import *ret_import)
{
	*ret_import = (struct share_import){.key = key};
	if (key && !quota_share_import(key, &ret_import->bytes))
		ret_import->key = 0;
}

void share_import_begin(const void *handle, size_t len, struct share_import *ret_import)
{
	import_key(key_of(handle, len), ret_import);
}

void share_import_begin_fd(int fd, struct share_import *ret_import)
{
	import_key(quota_share_key(fd), ret_import);
}

bool share_import_end(const struct share_import *import, uint64_t what, uint64_t size_bytes,
		      CUcontext context)
{
	if (!import->key)
		return false;
	if (size_bytes <= import->bytes && add_import(what, import->key, import->bytes, context))
		return true;
	leave_key(import->key);
	return false;
}

void share_import_cancel(const struct share_import *import)
{
	if (import->key)
		leave_key(import->key);
}

bool share_import_handle(uint64_t what, const void *handle, size_t len, uint64_t size_bytes,
			 CUcontext context)
{
	struct share_import import;

	share_import_begin(handle, len, &import);
	return share_import_end(&import, what, size_bytes, context);
}

void share_export_import(uint64_t what, int fd)
{
	struct region_descriptors key = {0, region_descriptor_file(fd)};
	struct import *import;

	lock_acquire(&lock);
	import = find_import_locked(what);
	if (import) {
		key.key = import->key;
		if (!region_is_descriptor_key(key.key) || region_descriptor_mark(fd, &key) != 0)
			import->for_good = true;
	}
	lock_release(&lock);
}

static void end_holding(uint64_t what)
{
	struct holding_release release;

	if (quota_holding_unref_begin(HOLDING_IMPORT, what, &release))
		quota_holding_unref_commit(&release);
}

CUresult share_adopt(const struct holding_reservation *reservation, uint64_t what,
		     CUcontext context)
{
	if (quota_holding_add(reservation, what) != 0) {
		quota_holding_cancel(reservation);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (add_import(what, 0, 0, context))
		return CUDA_SUCCESS;
	end_holding(what);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether the process has imported that memory of outsiders already, and pays for it. */
static bool is_paid(uint64_t what)
{
	const struct import *import;
	bool paid;

	if (!__atomic_load_n(&import_count, __ATOMIC_ACQUIRE))
		return false;
	lock_acquire(&lock);
	import = find_import_locked(what);
	paid = import && !import->key;
	lock_release(&lock);
	return paid;
}

/* The driver gives memory that is opened again the address that it has, and counts. So does the
 * table: the charge goes with the last import of the memory. */
CUresult share_import_outside(uint64_t what, CUdevice device, uint64_t bytes, CUcontext context)
{
	const struct place place = {context, device};
	struct holding_reservation reservation;
	CUresult result;

	if (is_paid(what))
		return add_import(what, 0, 0, context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	result = headroom_reserve_holding(HOLDING_IMPORT, &place, bytes, &reservation);
	return result == CUDA_SUCCESS ? share_adopt(&reservation, what, context) : result;
}

bool share_import_later(uint64_t what)
{
	return add_import(what, 0, 0, NULL);
}

CUresult share_map(CUmemGenericAllocationHandle handle, CUdevice device, size_t size_bytes)
{
	const struct place place = {NULL, device};
	struct holding_reservation reservation;
	uint64_t charged = 0;
	CUresult result;
	int unused;

	if (!is_outsiders(handle, size_bytes))
		return CUDA_SUCCESS;
	if (quota_holding_charge(HOLDING_IMPORT, handle, &unused, &charged) &&
	    charged >= size_bytes)
		return CUDA_SUCCESS;
	quota_ending_end(); /* a comparison may have to find room */
	result = headroom_reserve_holding(HOLDING_IMPORT, &place, size_bytes, &reservation);
	quota_ending_begin();
	if (result == CUDA_SUCCESS && quota_holding_add(&reservation, handle) != 0) {
		quota_holding_cancel(&reservation);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return result;
}

bool share_is_charged(uint64_t what)
{
	return !is_outsiders(what, 0) || quota_holding_is_known(HOLDING_IMPORT, what);
}

/* The import is not in the table any more. */
static void end_import(const struct import *import, bool last)
{
	if (import->for_good)
		return;
	if (import->key)
		quota_share_import_end(import->key);
	else if (last)
		end_holding(import->what);
}

void share_end_import(uint64_t what)
{
	struct import import;
	bool last;

	if (remove_import(what, NULL, &import, &last))
		end_import(&import, last);
}

void share_ending(void)
{
	quota_ending_begin();
}

bool share_free_begin(CUdeviceptr address, struct quota_release *ret_release)
{
	if (address && quota_attached() && quota_free_begin(address, ret_release))
		return true;
	quota_ending_begin();
	return false;
}

CUresult share_ended(CUresult result, uint64_t what)
{
	if (result == CUDA_SUCCESS && quota_attached())
		share_end_import(what);
	quota_ending_end();
	return result;
}

void share_end_pointer(CUdeviceptr address)
{
	if (__atomic_load_n(&export_count, __ATOMIC_ACQUIRE))
		end_exports(address, 0, 0);
	share_end_import(address);
}

/* -- contexts ---------------------------------------------------------------------------------- */

static bool find_export_of(CUcontext context, uint64_t *ret_what)
{
	bool found = false;

	lock_acquire(&lock);
	for (unsigned i = 0; i < export_count && !found; i++)
		if (exports[i].context == context && exports[i].what) {
			found = true;
			*ret_what = exports[i].what;
		}
	lock_release(&lock);
	return found;
}

void share_end_context(CUcontext context)
{
	struct quota_release release;
	uint64_t what;

	while (context && find_export_of(context, &what))
		if (quota_free_begin(what, &release))
			share_free(&release);
		else
			end_exports(what, 0, 0);
	share_end_imports_of(context);
}

void share_end_imports_of(CUcontext context)
{
	struct import import;
	bool last;

	while (context && remove_import(0, context, &import, &last))
		end_import(&import, last);
}

void share_imported_in(CUcontext context, uint64_t ends_before)
{
	if (!quota_context_has_ended((uintptr_t)context, ends_before))
		return;
	quota_ending_begin();
	share_end_imports_of(context);
	quota_ending_end();
}
