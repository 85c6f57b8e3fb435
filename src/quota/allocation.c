/*
 * Allocations of cuMemAlloc and its variants. They are reserved before the driver is called, and
 * settled after it. Until they are freed, they are charged by the granules that they occupy
 * (blocks.h).
 *
 * A small allocation may fit into a granule that the device holds for the process already. The
 * reservation has a granule all the same. If the driver did not take one, that granule stays
 * charged as the spare one for the next reservation. Where no granule can be charged, the
 * reservation is tentative: one thread at a time asks the driver without a charge. If the driver
 * took a granule then, the granule is charged, or the allocation is given back.
 *
 * Always: a granule is charged while a block that was settled lies in it, or a reservation or the
 * spare has it. If the process is killed on any line, all of it stays charged until another process
 * clears its slot.
 */
#include "allocation.h"

#include <errno.h>
#include <string.h>

#include "account.h"
#include "export.h"
#include "lock.h"
#include "moved.h"

#define SMALL_BYTES ((uint64_t)1 << 20) /* the driver gives bigger ones granules of their own */

static bool spare[VGPU_DEVICES_MAX]; /* a granule is charged and in nobody's reservation; atomic */
static struct lock tentative = LOCK_INIT; /* held by the thread whose reservation is tentative */
static uint64_t tentatives;               /* begun and ended; written under `tentative`, atomic */
static uint64_t frees_in_part;            /* as account_frees_in_part says; atomic */

void allocations_forked(void)
{
	memset(spare, 0, sizeof(spare));
	lock_init(&tentative);
	tentatives = 0;
	frees_in_part = 0;
}

static int charge_as(bool is_managed, int device, uint64_t bytes)
{
	return is_managed ? account_charge_managed(device, bytes) : account_charge(device, bytes);
}

static void refund_as(bool is_managed, int device, uint64_t bytes)
{
	if (is_managed)
		account_return_managed(device, bytes);
	else
		account_refund(device, bytes);
}

/* -- the spare granule -- */

static bool take_spare(int device)
{
	return __atomic_load_n(&spare[device], __ATOMIC_RELAXED) &&
	       __atomic_exchange_n(&spare[device], false, __ATOMIC_ACQUIRE);
}

/* A charged granule that was not needed. */
static void leave_spare(int device)
{
	if (__atomic_exchange_n(&spare[device], true, __ATOMIC_RELEASE))
		account_refund(device, GRANULE_BYTES); /* there is one */
}

uint64_t account_spare_charge(int device)
{
	return __atomic_load_n(&spare[device], __ATOMIC_RELAXED) ? GRANULE_BYTES : 0;
}

void account_return_spare(int device)
{
	if (take_spare(device))
		account_refund(device, GRANULE_BYTES);
}

/* -- allocations -- */

uint64_t account_tentatives(void)
{
	return __atomic_load_n(&tentatives, __ATOMIC_SEQ_CST);
}

static void begin_tentative(void)
{
	lock_acquire(&tentative);
	__atomic_fetch_add(&tentatives, 1, __ATOMIC_SEQ_CST);
}

/* Whether the driver may fit it into a granule that is held. */
static bool is_small(bool is_managed, uint64_t size_bytes)
{
	return !is_managed && size_bytes <= SMALL_BYTES;
}

static void end_tentative(const struct quota_reservation *reservation)
{
	if (!reservation->tentative)
		return;
	__atomic_fetch_add(&tentatives, 1, __ATOMIC_SEQ_CST);
	lock_release(&tentative);
}

int quota_reserve(int device, bool is_managed, uint64_t size_bytes,
		  struct quota_reservation *ret_reservation)
{
	struct quota_reservation reservation = {
		.device = device, .managed = is_managed, .bytes = granules_of(size_bytes)};
	bool small = is_small(is_managed, size_bytes);
	int error = 0;

	if (size_bytes > SIZE_BYTES_MOST)
		return -EDQUOT;
	account_begin();
	if (!small || !take_spare(device))
		error = charge_as(is_managed, device, reservation.bytes);
	if (error == -EDQUOT && small) {
		begin_tentative();
		reservation.tentative = true;
		reservation.bytes = 0;
		error = 0;
	}
	if (error) {
		account_end();
		return error;
	}
	*ret_reservation = reservation;
	return 0;
}

static void trace_allocation(enum trace_kind kind, int device, uint64_t bytes, uint64_t charged)
{
	trace_add(kind, (int)account_device(device)->index, (int64_t)bytes, (int64_t)charged);
}

void quota_cancel(const struct quota_reservation *reservation)
{
	if (trace_wants(TRACE_MEMORY))
		trace_allocation(TRACE_CANCELLED, reservation->device, reservation->bytes, 0);
	if (reservation->refused.size_bytes)
		blocks_left(&reservation->refused, false);
	refund_as(reservation->managed, reservation->device, reservation->bytes);
	end_tentative(reservation);
	account_end();
}

/* If the block took more than is reserved, it may be refused. Nobody finds it until that is
 * certain: an export of a block that is refused would keep its memory. */
int quota_settle(struct quota_reservation *reservation, const struct block *block)
{
	uint64_t taken, left;
	struct block removed;
	int error = blocks_enter_charged(block, reservation->bytes, &taken);

	if (error)
		return -EDQUOT;
	if (taken == 0 && reservation->bytes == GRANULE_BYTES && !reservation->managed)
		leave_spare(reservation->device);
	else if (taken < reservation->bytes)
		refund_as(reservation->managed, reservation->device, reservation->bytes - taken);
	else if (taken > reservation->bytes)
		error = charge_as(reservation->managed, reservation->device,
				  taken - reservation->bytes);
	if (error) {
		/* A small block may have come into its granule meanwhile, and was not charged. */
		if (blocks_remove(block->address, &removed, &left) && left < taken)
			account_charge_anyway(REGION_DATA, reservation->device, taken - left);
		reservation->refused = *block;
		return -EDQUOT;
	}
	if (taken > reservation->bytes)
		blocks_settled(block);
	if (trace_wants(TRACE_MEMORY))
		trace_allocation(TRACE_ALLOCATED, reservation->device, block->size_bytes, taken);
	end_tentative(reservation);
	account_end();
	return 0;
}

bool quota_find_block(uint64_t address, struct quota_block *ret_block)
{
	struct block block;

	if (!blocks_find(address, &block, &ret_block->bytes))
		return false;
	ret_block->device = block.device;
	ret_block->context = block.context;
	return !block.managed;
}

bool quota_is_block_of(uint64_t context, uint64_t address)
{
	struct block block;
	uint64_t bytes;

	return blocks_find(address, &block, &bytes) && block.context == context;
}

uint64_t account_frees_in_part(void)
{
	return __atomic_load_n(&frees_in_part, __ATOMIC_SEQ_CST);
}

static void begin_free(struct quota_release *release)
{
	release->in_part = release->bytes < blocks_span(&release->block);
	if (release->in_part)
		__atomic_fetch_add(&frees_in_part, ((uint64_t)1 << 32) + 1, __ATOMIC_SEQ_CST);
}

static void end_free(const struct quota_release *release, bool lingers)
{
	blocks_left(&release->block, lingers);
	if (release->in_part)
		__atomic_fetch_sub(&frees_in_part, 1, __ATOMIC_SEQ_CST);
}

bool quota_free_begin(uint64_t address, struct quota_release *ret_release)
{
	struct quota_release release;

	account_begin();
	if (!blocks_leave(address, &release.block, &release.bytes)) {
		account_end();
		return false;
	}
	release.exports = exports_leave(address, release.block.context);
	begin_free(&release);
	*ret_release = release;
	return true;
}

/* Ends the block's exports. Returns the bytes that nothing keeps. */
static uint64_t end_exports(const struct quota_release *release)
{
	return release->bytes -
	       exports_end(release->exports, blocks_span(&release->block), release->bytes);
}

void quota_free_commit(const struct quota_release *release)
{
	uint64_t bytes = end_exports(release);

	end_free(release, false);
	if (release->block.managed)
		moved_end(release->block.address);
	if (bytes) {
		refund_as(release->block.managed, release->block.device, bytes);
		account_return_spare(release->block.device);
	}
	if (trace_wants(TRACE_MEMORY))
		trace_allocation(TRACE_FREED, release->block.device, release->block.size_bytes,
				 bytes);
	account_end();
}

void quota_free_postpone(void)
{
	account_end(); /* the charge stays */
}

/* Memory that an export keeps does not become module memory: NVML does not count it, so the next
 * comparison would refund it. */
void quota_free_orphan(const struct quota_release *release)
{
	const struct block *block = &release->block;
	uint64_t bytes;

	account_begin();
	bytes = end_exports(release);
	end_free(release, true);
	if (!block->managed) /* which no comparison would find gone */
		account_orphan(block->device, bytes);
	else
		moved_end(block->address);
	refund_as(block->managed, block->device, bytes);
	account_end();
}

void quota_free_resume(void)
{
	account_begin();
}

void quota_free_undo(const struct quota_release *release)
{
	uint64_t taken;

	exports_return(release->exports, release->block.address);
	/* Its charge is still there. But other allocations may have come to its granules meanwhile
	 * and been charged for them, or gone from them and given the charge back. */
	if (blocks_enter(&release->block, &taken) == 0) {
		if (taken < release->bytes)
			refund_as(release->block.managed, release->block.device,
				  release->bytes - taken);
		else if (!release->block.managed)
			account_charge_anyway(REGION_DATA, release->block.device,
					      taken - release->bytes);
	}
	end_free(release, false);
	account_end();
}
