/*
 * One array of records under one lock, which comes before the region's. A process has a few pools,
 * so they are looked for one by one. The lock is never held while the driver is asked. A thread
 * that reads a figure takes a ticket first. The figure counts as complete only if no other figure
 * has been entered since.
 *
 * The record of a pool stays until the driver has destroyed the pool, as other threads may allocate
 * from it. If the driver gives the handle to another pool before the record is closed, opening that
 * one closes it. A serial distinguishes the two.
 */
#include "pool.h"

#include <errno.h>
#include <string.h>

#include "account.h"
#include "export.h"
#include "lock.h"

#define CHUNK_BYTES         ((uint64_t)32 << 20)
#define MANAGED_CHUNK_BYTES ((uint64_t)128 << 20)
#define DRIVER_POOLS_MAX    (4 * VGPU_DEVICES_MAX) /* default ones, and graph memory */
#define AHEAD_CHUNKS        8                      /* charged ahead at most */
#define AHEAD_PART          16 /* of the slice's room, the most that is charged ahead */

struct pool {
	uint64_t handle;
	uint64_t charged_bytes;
	uint64_t reserved_bytes; /* by the newest figure */
	uint64_t begun_bytes;    /* what allocations under way may add */
	uint64_t unseen_bytes;   /* bytes that other threads may have added since the figure */
	uint64_t figures;        /* how many have been entered */
	uint64_t tried_bytes;    /* quota_pool_try's */
	/* Of what it reserves: nothing was allocated from these when it began to be closed last. */
	uint64_t spare_bytes;
	int device;
	uint32_t serial;
	unsigned closing; /* calls that ask the driver to destroy it */
	uint32_t resets;  /* of its figure, that have ended */
	bool managed, of_driver;
	bool resetting; /* its figure is being reset, and counts only if reset_seen enters it */
	bool passed;    /* allocations are admitted during this reset */
};

static struct lock lock = LOCK_INIT;
static struct pool pools[QUOTA_POOLS_MAX]; /* under `lock` */
static unsigned count;                     /* under `lock` */
static uint32_t serials;                   /* under `lock` */

/* The bytes of managed pools that were destroyed with allocations in use. The library cannot see
 * when the driver frees them, and NVML does not count them. They stay charged. */
static uint64_t managed_left[VGPU_DEVICES_MAX]; /* under `lock` */

static uint64_t tried_ever[VGPU_DEVICES_MAX]; /* the sum of all tries; under `lock` */

void quota_pools_forked(void)
{
	lock_init(&lock);
	count = 0;
	memset(managed_left, 0, sizeof(managed_left));
}

static struct pool *find_locked(uint64_t handle)
{
	for (unsigned i = 0; i < count; i++)
		if (pools[i].handle == handle)
			return &pools[i];
	return NULL;
}

static uint64_t needed_locked(const struct pool *pool)
{
	return pool->reserved_bytes + pool->begun_bytes + pool->unseen_bytes;
}

/* Takes the record out. Returns the bytes of its charge that allocations may still hold. */
static uint64_t remove_locked(struct pool *pool, struct pool *ret_closed)
{
	uint64_t needed = needed_locked(pool);
	uint64_t left = needed - (pool->spare_bytes < needed ? pool->spare_bytes : needed);

	if (left > pool->charged_bytes)
		left = pool->charged_bytes;
	if (pool->managed)
		managed_left[pool->device] += left;
	*ret_closed = *pool;
	*pool = pools[--count];
	return left;
}

/* The charge of a record that was taken out: `left` of it stays. It is module memory from now on,
 * which does not move to an importer if this process ends. So the exports of pointers end first. */
static void settle_closed(const struct pool *closed, uint64_t left)
{
	account_begin();
	exports_end_pool(closed->handle);
	if (closed->managed)
		account_managed_returning();
	else
		account_orphan(closed->device, left);
	account_refund(closed->device, closed->charged_bytes - (closed->managed ? left : 0));
	account_end();
}

static int add_locked(uint64_t handle, int device, unsigned flags)
{
	unsigned room =
		flags & POOL_OF_DRIVER ? QUOTA_POOLS_MAX : QUOTA_POOLS_MAX - DRIVER_POOLS_MAX;

	if (count >= room)
		return -ENOMEM;
	pools[count++] = (struct pool){.handle = handle,
				       .device = device,
				       .serial = ++serials,
				       .managed = flags & POOL_MANAGED,
				       .of_driver = flags & POOL_OF_DRIVER};
	return 0;
}

int quota_pool_open(uint64_t handle, int device, unsigned flags)
{
	struct pool *pool, closed = {0};
	uint64_t left = 0;
	int error = 0;

	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool && pool->closing && !pool->of_driver) {
		left = remove_locked(pool, &closed);
		pool = NULL;
	}
	if (!pool)
		error = add_locked(handle, device, flags);
	lock_release(&lock);
	if (closed.handle)
		settle_closed(&closed, left);
	return error;
}

bool quota_pool_is_known(uint64_t handle, int *ret_device, unsigned *ret_flags)
{
	const struct pool *pool;

	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool) {
		*ret_device = pool->device;
		*ret_flags = (pool->managed ? POOL_MANAGED : 0u) |
			     (pool->of_driver ? POOL_OF_DRIVER : 0u);
	}
	lock_release(&lock);
	return pool != NULL;
}

unsigned quota_pools(int device, uint64_t *ret_pools, unsigned most)
{
	unsigned found = 0;

	lock_acquire(&lock);
	for (unsigned i = 0; i < count; i++)
		if ((device < 0 || pools[i].device == device) && !pools[i].closing && found < most)
			ret_pools[found++] = pools[i].handle;
	lock_release(&lock);
	return found;
}

uint64_t pool_managed_charge(int device)
{
	uint64_t bytes;

	lock_acquire(&lock);
	bytes = managed_left[device];
	for (unsigned i = 0; i < count; i++)
		if (pools[i].managed && pools[i].device == device)
			bytes += pools[i].charged_bytes;
	lock_release(&lock);
	return bytes;
}

/* The charged part of the pool's reserved bytes: all of them, unless the region's lock could not be
 * taken. */
static uint64_t charged_reserved_locked(const struct pool *pool)
{
	return pool->reserved_bytes < pool->charged_bytes ? pool->reserved_bytes
							  : pool->charged_bytes;
}

uint64_t pool_spare_charge(int device)
{
	uint64_t bytes = 0;

	lock_acquire(&lock);
	for (unsigned i = 0; i < count; i++)
		if (!pools[i].managed && pools[i].device == device)
			bytes += pools[i].charged_bytes - charged_reserved_locked(&pools[i]);
	lock_release(&lock);
	return bytes;
}

uint64_t pool_tried(int device, uint64_t *ret_ever)
{
	uint64_t bytes = 0;

	lock_acquire(&lock);
	*ret_ever = tried_ever[device];
	for (unsigned i = 0; i < count; i++)
		if (pools[i].device == device)
			bytes += pools[i].tried_bytes;
	lock_release(&lock);
	return bytes;
}

/* -- allocations ------------------------------------------------------------------------------- */

static uint64_t chunks_of(const struct pool *pool, uint64_t bytes)
{
	uint64_t chunk = pool->managed ? MANAGED_CHUNK_BYTES : CHUNK_BYTES;

	return (bytes + chunk - 1) / chunk * chunk;
}

static void begin_locked(struct pool *pool, uint64_t worst_bytes,
			 struct pool_reservation *ret_reservation)
{
	pool->begun_bytes += worst_bytes;
	account_begin();
	*ret_reservation =
		(struct pool_reservation){pool->device, pool->serial, pool->resets, worst_bytes};
}

static bool is_busy(const struct pool *pool)
{
	return pool->resetting && !pool->passed;
}

int quota_pool_reserve(uint64_t handle, uint64_t size_bytes,
		       struct pool_reservation *ret_reservation)
{
	struct pool *pool;
	uint64_t worst;
	int error = -ENOENT;

	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool && is_busy(pool)) {
		error = -EBUSY;
	} else if (pool) {
		error = -EAGAIN;
		ret_reservation->device = pool->device;
		worst = size_bytes <= SIZE_BYTES_MOST ? chunks_of(pool, size_bytes)
						      : SIZE_BYTES_MOST;
		if (needed_locked(pool) + pool->tried_bytes + worst <= pool->charged_bytes) {
			begin_locked(pool, worst, ret_reservation);
			error = 0;
		}
	}
	lock_release(&lock);
	return error;
}

uint64_t quota_pool_ticket(uint64_t handle, bool *ret_managed)
{
	const struct pool *pool;
	uint64_t ticket;

	lock_acquire(&lock);
	pool = find_locked(handle);
	ticket = pool ? pool->figures : 0;
	*ret_managed = pool && pool->managed;
	lock_release(&lock);
	return ticket;
}

/* Returns whether the figure is the latest. One that is not is ignored, also if it is higher. The
 * memory that it saw may have been given back, and belong to another process. A figure that may
 * have been read after a reset is ignored, too, and does not make the one before the reset old. */
static bool enter_locked(struct pool *pool, const struct pool_figure *figure)
{
	bool latest = figure->ticket == pool->figures && !pool->tried_bytes;
	bool keeps = pool->managed; /* the driver does, to the end */

	if (pool->resetting)
		return false;
	pool->figures++;
	if (!latest)
		return false;
	if (figure->reserved_bytes > pool->reserved_bytes || !keeps)
		pool->reserved_bytes = figure->reserved_bytes;
	pool->unseen_bytes = 0;
	return true;
}

/* Bytes that the pool reserves beyond its charge are held already, so they are charged whatever the
 * limit, and no more than these. A figure may already include the growth by allocations under way.
 * To charge that growth a second time would take room that the slice does not have. */
static bool raise_locked(struct pool *pool)
{
	int error;

	if (pool->charged_bytes >= pool->reserved_bytes)
		return false;
	account_begin(); /* a thread that compares just now must see the change */
	error = account_try_held(pool->device, pool->reserved_bytes - pool->charged_bytes);
	if (!error) /* else with the next figure: bytes that were not charged must not be refunded
		     */
		pool->charged_bytes = pool->reserved_bytes;
	account_end();
	return !error;
}

/* Puts the charge where it must be. */
static bool adjust_locked(struct pool *pool)
{
	uint64_t needed = needed_locked(pool) + pool->tried_bytes;

	if (pool->charged_bytes <= needed)
		return raise_locked(pool);
	account_begin();
	if (pool->managed)
		account_managed_returning();
	account_refund(pool->device, pool->charged_bytes - needed);
	pool->charged_bytes = needed;
	account_end();
	return true;
}

/* How much to charge beyond what is needed, where the slice has room. */
static uint64_t ahead(const struct pool *pool, uint64_t worst)
{
	uint64_t limit = quota_limit(pool->device), used = quota_used(pool->device);
	uint64_t part = limit > used ? (limit - used) / AHEAD_PART : 0;
	uint64_t most = AHEAD_CHUNKS * CHUNK_BYTES;

	if (worst > CHUNK_BYTES)
		return 0;
	if (limit && part < most)
		most = part / CHUNK_BYTES * CHUNK_BYTES;
	return most;
}

static int charge_locked(struct pool *pool, uint64_t worst)
{
	uint64_t needed = needed_locked(pool) + pool->tried_bytes + worst, more;
	uint64_t extra = ahead(pool, worst);
	int error = -EDQUOT;

	if (needed <= pool->charged_bytes)
		return 0;
	more = needed - pool->charged_bytes;
	if (extra) {
		error = account_charge(pool->device, more + extra);
		if (!error)
			more += extra;
	}
	if (error == -EDQUOT)
		error = account_charge(pool->device, more);
	if (!error)
		pool->charged_bytes += more;
	return error;
}

int quota_pool_grow(uint64_t handle, uint64_t size_bytes, const struct pool_figure *figure,
		    struct pool_reservation *ret_reservation)
{
	struct pool *pool;
	int error = -ENOENT;

	if (size_bytes > SIZE_BYTES_MOST)
		return -EDQUOT;
	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool && is_busy(pool)) {
		error = -EBUSY;
	} else if (pool) {
		enter_locked(pool, figure);
		raise_locked(pool);
		error = charge_locked(pool, chunks_of(pool, size_bytes));
		if (!error)
			begin_locked(pool, chunks_of(pool, size_bytes), ret_reservation);
	}
	lock_release(&lock);
	return error;
}

void quota_pool_settle(uint64_t handle, const struct pool_reservation *reservation,
		       const struct pool_figure *figure)
{
	struct pool *pool;

	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool && pool->serial == reservation->serial) {
		pool->begun_bytes -= reservation->worst_bytes;
		if (reservation->resets == pool->resets)
			pool->unseen_bytes += reservation->worst_bytes;
		else
			pool->reserved_bytes += reservation->worst_bytes;
		if (figure) {
			enter_locked(pool, figure);
			adjust_locked(pool);
		} else {
			pool->figures++; /* one that is being read does not have it */
		}
	}
	lock_release(&lock);
	account_end();
}

void quota_pool_try(uint64_t handle, uint64_t size_bytes)
{
	struct pool *pool;

	if (size_bytes)
		account_begin(); /* the accounts are not to be compared meanwhile */
	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool) {
		pool->tried_bytes = chunks_of(pool, size_bytes);
		tried_ever[pool->device] += pool->tried_bytes;
		pool->figures++; /* one that is being read may not have what was tried */
	}
	lock_release(&lock);
	if (!size_bytes)
		account_end();
}

bool quota_pool_correct(uint64_t handle, const struct pool_figure *figure)
{
	struct pool *pool;
	bool changed = false;

	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool) {
		changed = !enter_locked(pool, figure);
		changed |= adjust_locked(pool);
	}
	lock_release(&lock);
	return changed;
}

/* -- resets of a figure ------------------------------------------------------------------------ */

bool quota_pool_reset_begin(uint64_t handle)
{
	struct pool *pool;
	bool found;

	lock_acquire(&lock);
	pool = find_locked(handle);
	found = pool && pool->managed;
	if (found) {
		pool->resetting = true;
		pool->passed = false;
	}
	lock_release(&lock);
	return found;
}

void quota_pool_reset_pass(uint64_t handle)
{
	struct pool *pool;

	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool)
		pool->passed = true;
	lock_release(&lock);
}

bool quota_pool_is_idle(uint64_t handle)
{
	const struct pool *pool;
	bool idle;

	lock_acquire(&lock);
	pool = find_locked(handle);
	idle = !pool || !pool->begun_bytes;
	lock_release(&lock);
	return idle;
}

void quota_pool_reset_seen(uint64_t handle, const struct pool_figure *figure)
{
	struct pool *pool;

	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool) {
		pool->resetting = false;
		enter_locked(pool, figure);
		adjust_locked(pool);
		pool->resetting = true;
	}
	lock_release(&lock);
}

/* Figures that were read during the reset do not count any more. */
void quota_pool_reset_end(uint64_t handle)
{
	struct pool *pool;

	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool) {
		pool->reserved_bytes += pool->unseen_bytes;
		pool->unseen_bytes = 0;
		pool->resets++;
		pool->figures++;
		pool->resetting = false;
	}
	lock_release(&lock);
}

/* -- the ends of pools ------------------------------------------------------------------------- */

bool quota_pool_close_begin(uint64_t handle, bool is_empty, struct pool_closing *ret_closing)
{
	struct pool *pool;

	account_begin(); /* until the end, the device may have less than is charged */
	lock_acquire(&lock);
	pool = find_locked(handle);
	if (pool) {
		pool->closing++;
		pool->spare_bytes = is_empty ? pool->reserved_bytes : 0;
		*ret_closing = (struct pool_closing){handle, pool->serial, pool->device};
	}
	lock_release(&lock);
	if (!pool)
		account_end();
	return pool != NULL;
}

void quota_pool_close_end(const struct pool_closing *closing, bool destroyed)
{
	struct pool *pool, closed = {0};
	uint64_t left = 0;

	lock_acquire(&lock);
	pool = find_locked(closing->pool);
	if (pool && pool->serial == closing->serial) {
		pool->closing--;
		if (destroyed)
			left = remove_locked(pool, &closed);
	}
	lock_release(&lock);
	if (closed.handle)
		settle_closed(&closed, left);
	account_end();
}
