/*
 * Device memory that goes from process to process: CUDA IPC, VMM handles as file descriptors or
 * fabric handles, pools, DMA-BUFs, and memory of other APIs (cuImportExternalMemory).
 *
 * Within a slice it is charged once. The exporter has it charged and puts a key into the region's
 * share table, a hash of what it hands out; who imports it looks the key up, and is not charged. If
 * the exporter lets go first, or dies, the charge moves to an importer (region_share_…). What
 * nobody of the slice exports is charged to the importer for as long as it has it. The hash of a
 * file descriptor is a mark on its open file that goes with it to any process (sys_mark_file).
 *
 * A file descriptor keeps the memory on the device by itself, in no process's NVML figure: as long
 * as this process has it open after the last reference, its memory stays charged, as `offset`
 * (share_look). A copy that was sent away and not imported is not seen.
 *
 * All that is known is in the tables below, under one lock, which is not held while the driver is
 * called, and comes before the region's.
 */
#include "share.h"

#include "lock.h"
#include "room.h"
#include "sys.h"

#define EXPORTS_MAX 4096
#define IMPORTS_MAX 4096
#define NUMBERS     64 /* that a mark has */

/* What this process handed out of its own. */
struct export
{
	uint64_t what; /* the address of a block, or a VMM handle; 0: only its descriptor is left */
	CUcontext context; /* with which it ends, or NULL */
	uint64_t key;      /* in the share table, 0: not there */
	uint64_t bytes;    /* charged as hidden, of what only descriptors keep */
	unsigned group;    /* several descriptors of one thing, of which one has the bytes */
	int device;
	int fd;     /* its descriptor, or -1 */
	int number; /* the mark on it */
};

/* What it got from others. */
struct import {
	uint64_t what;     /* the address, the VMM handle or the pool */
	CUcontext context; /* with which it ends, or NULL */
	uint64_t key;      /* 0: an outsider's */
};

static struct lock lock = LOCK_INIT;
static struct export exports[EXPORTS_MAX]; /* under `lock` */
static unsigned export_count;              /* written under `lock`, read without */
static struct import imports[IMPORTS_MAX]; /* under `lock` */
static unsigned import_count;              /* written under `lock`, read without */
static unsigned last_group;                /* under `lock` */
static int last_number;                    /* under `lock` */

void share_forget(void)
{
	lock_init(&lock);
	export_count = 0;
	import_count = 0;
}

/* FNV-1a; never 0. */
static uint64_t hash_of(const void *bytes, size_t len)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
	return hash | 1;
}

static uint64_t hash_of_mark(int pid, int number)
{
	const int mark[3] = {0x6b72616d, pid, number};

	return hash_of(mark, sizeof(mark));
}

/* -- what we hand out -------------------------------------------------------------------------- */

static void add_export(const struct export *export)
{
	bool room;

	lock_acquire(&lock);
	room = export_count < EXPORTS_MAX;
	if (room) {
		exports[export_count] = *export;
		__atomic_store_n(&export_count, export_count + 1, __ATOMIC_RELEASE);
	}
	lock_release(&lock);
	if (!room && export->key)
		quota_share_withdraw(export->key, 0); /* importers count it for themselves */
}

static void remove_export_locked(unsigned i)
{
	exports[i] = exports[export_count - 1];
	__atomic_store_n(&export_count, export_count - 1, __ATOMIC_RELEASE);
}

static bool is_exported(uint64_t what, uint64_t key)
{
	bool found = false;

	lock_acquire(&lock);
	for (unsigned i = 0; i < export_count && !found; i++)
		found = exports[i].what == what && exports[i].key == key;
	lock_release(&lock);
	return found;
}

/* A number that no mark has; 0: all are taken, and the descriptor cannot be known again elsewhere.
 */
static int free_number(void)
{
	uint64_t taken = 0;
	int number = 0;

	lock_acquire(&lock);
	for (unsigned i = 0; i < export_count; i++)
		if (exports[i].fd >= 0 && exports[i].key)
			taken |= (uint64_t)1 << (exports[i].number - 1);
	/* In turn: one that was used before may live on in the share table, at an heir's. */
	for (int i = 0; i < NUMBERS && ~taken && !number; i++) {
		last_number = last_number % NUMBERS + 1;
		if (!(taken >> (last_number - 1) & 1))
			number = last_number;
	}
	lock_release(&lock);
	return number;
}

void share_export_handle(uint64_t what, const void *handle, size_t len, CUdevice device,
			 uint64_t bytes, CUcontext context)
{
	struct export export = {.what = what,
				.context = context,
				.key = hash_of(handle, len),
				.device = device,
				.fd = -1};

	if (!is_exported(what, export.key) && quota_share_export(device, export.key, bytes) == 0)
		add_export(&export);
}

static int number_of(uint64_t what)
{
	int number = 0;

	lock_acquire(&lock);
	for (unsigned i = 0; i < export_count && !number; i++)
		if (exports[i].what == what && exports[i].fd >= 0 && exports[i].key)
			number = exports[i].number;
	lock_release(&lock);
	return number;
}

void share_export_fd(uint64_t what, int fd, CUdevice device, uint64_t bytes, CUcontext context)
{
	struct export export = {.what = what, .context = context, .device = device, .fd = fd};
	int number = number_of(what); /* all descriptors of it have one mark, and one key */
	bool first = !number;

	if (first)
		number = free_number();
	export.number = number ? number : NUMBERS;
	if (sys_mark_file(fd, export.number) < 0)
		return;
	export.key = hash_of_mark(sys_getpid(), number);
	if (!first || !number || quota_share_export(device, export.key, bytes) != 0)
		export.key = 0;
	add_export(&export);
}

static bool is_open(const struct export *export)
{
	int pid, number;

	return export->fd >= 0 && sys_read_mark(export->fd, &pid, &number) == 0 &&
	       pid == sys_getpid() && number == export->number;
}

/* Takes the keys out of the share table. True: the charge is another process's. */
static bool withdraw_locked(uint64_t what, uint64_t bytes)
{
	bool moved = false;

	for (unsigned i = 0; i < export_count; i++)
		if (exports[i].what == what && exports[i].key) {
			moved |= quota_share_withdraw(exports[i].key, moved ? 0 : bytes);
			exports[i].key = 0;
		}
	return moved;
}

/* The descriptors that are open keep it, and are one group. False: there are none. */
static bool keep_open_locked(uint64_t what, uint64_t bytes)
{
	bool kept = false;

	last_group++;
	for (unsigned i = export_count; i-- > 0;) {
		if (exports[i].what != what)
			continue;
		if (!is_open(&exports[i])) {
			remove_export_locked(i);
			continue;
		}
		exports[i].what = 0;
		exports[i].group = last_group;
		exports[i].bytes = kept ? 0 : bytes;
		kept = true;
	}
	return kept;
}

/*
 * What was exported is gone as far as this process goes. Returns how much stays charged for it: to
 * another process, or here as hidden, while a descriptor is open.
 */
static uint64_t end_exports(uint64_t what, int device, uint64_t bytes)
{
	bool moved, hidden;

	lock_acquire(&lock);
	moved = withdraw_locked(what, bytes);
	hidden = keep_open_locked(what, moved ? 0 : bytes);
	if (hidden && !moved)
		quota_hide(device, bytes);
	lock_release(&lock);
	return moved || hidden ? bytes : 0;
}

/* Whether another descriptor of the group takes over the bytes. */
static bool pass_on_locked(const struct export *closed)
{
	for (unsigned i = 0; i < export_count; i++)
		if (!exports[i].what && exports[i].group == closed->group &&
		    &exports[i] != closed) {
			exports[i].bytes += closed->bytes;
			return true;
		}
	return false;
}

bool share_look(void)
{
	bool gone = false;

	if (__atomic_load_n(&import_count, __ATOMIC_ACQUIRE))
		quota_reap(); /* what a dead exporter had is the importers' now */
	if (!__atomic_load_n(&export_count, __ATOMIC_ACQUIRE))
		return false;
	lock_acquire(&lock);
	for (unsigned i = export_count; i-- > 0;)
		if (!exports[i].what && !is_open(&exports[i])) {
			if (!pass_on_locked(&exports[i])) {
				quota_hidden_gone(exports[i].device, exports[i].bytes);
				gone = true;
			}
			remove_export_locked(i);
		}
	lock_release(&lock);
	return gone;
}

void share_free(const struct quota_release *release)
{
	struct quota_release left = *release;

	if (__atomic_load_n(&export_count, __ATOMIC_ACQUIRE))
		left.bytes -=
			end_exports(release->block.address, release->block.device, release->bytes);
	quota_free_commit(&left);
}

void share_end_physical(const struct holding_release *release)
{
	struct holding_release left = *release;

	if (__atomic_load_n(&export_count, __ATOMIC_ACQUIRE))
		left.bytes -= end_exports(release->handle, release->device, release->bytes);
	share_end_import(release->handle);
	quota_let_go_commit(&left);
}

/* -- what we get ------------------------------------------------------------------------------- */

static bool add_import(uint64_t what, uint64_t key, CUcontext context)
{
	bool room;

	lock_acquire(&lock);
	room = import_count < IMPORTS_MAX;
	if (room) {
		imports[import_count] = (struct import){what, context, key};
		__atomic_store_n(&import_count, import_count + 1, __ATOMIC_RELEASE);
	}
	lock_release(&lock);
	return room;
}

/* Takes an import out of the table. */
static bool remove_import(uint64_t what, struct import *ret_import)
{
	bool found = false;

	if (!__atomic_load_n(&import_count, __ATOMIC_ACQUIRE))
		return false;
	lock_acquire(&lock);
	for (unsigned i = 0; i < import_count && !found; i++)
		if (imports[i].what == what) {
			found = true;
			*ret_import = imports[i];
			imports[i] = imports[import_count - 1];
			__atomic_store_n(&import_count, import_count - 1, __ATOMIC_RELEASE);
		}
	lock_release(&lock);
	return found;
}

static bool is_outsiders(uint64_t what)
{
	bool found = false;

	if (!__atomic_load_n(&import_count, __ATOMIC_ACQUIRE))
		return false;
	lock_acquire(&lock);
	for (unsigned i = 0; i < import_count && !found; i++)
		found = imports[i].what == what && imports[i].key == 0;
	lock_release(&lock);
	return found;
}

static bool import_key(uint64_t what, uint64_t key, CUcontext context)
{
	uint64_t bytes;

	if (!quota_share_import(key, &bytes))
		return false;
	if (add_import(what, key, context))
		return true;
	quota_share_import_end(key);
	return false;
}

bool share_import_handle(uint64_t what, const void *handle, size_t len, CUcontext context)
{
	return import_key(what, hash_of(handle, len), context);
}

bool share_import_fd(uint64_t what, int fd)
{
	int pid, number;

	return sys_read_mark(fd, &pid, &number) == 0 && pid > 0 && number > 0 &&
	       import_key(what, hash_of_mark(pid, number), NULL);
}

static void end_holding(uint64_t what)
{
	struct holding_release release;

	if (quota_let_go_begin(HOLDING_IMPORT, what, &release))
		quota_let_go_commit(&release);
}

CUresult share_adopt(const struct holding_claim *claim, uint64_t what, CUcontext context)
{
	if (quota_hold(claim, what) != 0) {
		quota_hold_cancel(claim);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (add_import(what, 0, context))
		return CUDA_SUCCESS;
	end_holding(what);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult share_import_outside(uint64_t what, CUdevice device, uint64_t bytes, CUcontext context)
{
	const struct place place = {context, device};
	struct holding_claim claim;
	CUresult result = room_hold(HOLDING_IMPORT, &place, bytes, &claim);

	return result == CUDA_SUCCESS ? share_adopt(&claim, what, context) : result;
}

void share_import_later(uint64_t what)
{
	add_import(what, 0, NULL);
}

CUresult share_map(CUmemGenericAllocationHandle handle, CUdevice device, size_t size_bytes)
{
	const struct place place = {NULL, device};
	struct holding_claim claim;
	CUresult result;

	if (!is_outsiders(handle) || quota_holds(HOLDING_IMPORT, handle))
		return CUDA_SUCCESS;
	result = room_hold(HOLDING_IMPORT, &place, size_bytes, &claim);
	if (result == CUDA_SUCCESS && quota_hold(&claim, handle) != 0) {
		quota_hold_cancel(&claim);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return result;
}

void share_end_import(uint64_t what)
{
	struct import import;

	if (!remove_import(what, &import))
		return;
	if (import.key)
		quota_share_import_end(import.key);
	else
		end_holding(what);
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

static bool find_import_of(CUcontext context, uint64_t *ret_what)
{
	bool found = false;

	lock_acquire(&lock);
	for (unsigned i = 0; i < import_count && !found; i++)
		if (imports[i].context == context) {
			found = true;
			*ret_what = imports[i].what;
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
	while (context && find_import_of(context, &what))
		share_end_import(what);
}
