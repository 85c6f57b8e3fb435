/*
 * The charges of the process, and the stamp of its accounts.
 *
 * Managed memory is not in NVML's figure for a process, but it does take the device's memory: UVM
 * fetches it in chunks of 128 MiB. On an H200 with driver 580, one touched byte takes 128 MiB, 66
 * MiB take 128, and 130 MiB take 256. So the managed granules of the process on a device are added
 * up, and the sum is charged in whole chunks, whether touched or not. The application may touch
 * them at any time, without a call.
 *
 * Always: charged data = device granules (allocation.c) + reservations + chunks of managed memory.
 * If the process is killed on any line, all of it stays charged until another process clears its
 * slot.
 */
#include "account.h"

#include <string.h>

#include "assertion.h"
#include "lock.h"
#include "pool.h"

#define MANAGED_CHUNK_BYTES ((uint64_t)128 << 20)

static struct lock managed = LOCK_INIT;
static uint64_t managed_bytes[VGPU_DEVICES_MAX]; /* granules, with reservations; under `managed` */

static uint64_t managed_returns; /* atomic */
static uint64_t changes;         /* begun: upper half; begun and not ended: lower half; atomic */

void account_forked(void)
{
	changes = 0;
	lock_init(&managed);
	memset(managed_bytes, 0, sizeof(managed_bytes));
}

void account_begin(void)
{
	__atomic_fetch_add(&changes, ((uint64_t)1 << 32) + 1, __ATOMIC_SEQ_CST);
}

void account_end(void)
{
	__atomic_fetch_sub(&changes, 1, __ATOMIC_SEQ_CST);
}

void quota_ending_begin(void)
{
	account_begin();
}

void quota_ending_end(void)
{
	account_end();
}

bool account_is_changing(void)
{
	return (uint32_t)__atomic_load_n(&changes, __ATOMIC_SEQ_CST) != 0;
}

uint64_t account_stamp(void)
{
	uint64_t seen;

	__atomic_thread_fence(__ATOMIC_ACQUIRE); /* what was read of the accounts before, was */
	seen = __atomic_load_n(&changes, __ATOMIC_SEQ_CST);
	return (uint32_t)seen ? UINT64_MAX : seen;
}

/* -- charging -- */

int account_charge_as(enum region_class class, int device, uint64_t bytes)
{
	const struct account_device *d = account_device(device);

	return region_charge(&account_region, d->index, class, bytes, quota_limit(device));
}

void account_refund_as(enum region_class class, int device, uint64_t bytes)
{
	ASSERT(account_is_changing() || class == REGION_OFFSET);
	account_lower(class, device, bytes);
}

void account_lower(enum region_class class, int device, uint64_t bytes)
{
	if (bytes)
		region_refund(&account_region, account_device(device)->index, class, bytes);
}

int account_charge(int device, uint64_t bytes)
{
	return account_charge_as(REGION_DATA, device, bytes);
}

void account_refund(int device, uint64_t bytes)
{
	account_refund_as(REGION_DATA, device, bytes);
}

void account_charge_anyway(enum region_class class, int device, uint64_t bytes)
{
	if (bytes)
		region_charge_held(&account_region, account_device(device)->index, class, bytes);
}

int account_try_held(int device, uint64_t bytes)
{
	return region_charge(&account_region, account_device(device)->index, REGION_DATA, bytes, 0);
}

void account_orphan(int device, uint64_t bytes)
{
	account_charge_anyway(REGION_MODULE, device, bytes);
}

static uint64_t chunks_of(uint64_t bytes)
{
	return (bytes + MANAGED_CHUNK_BYTES - 1) / MANAGED_CHUNK_BYTES * MANAGED_CHUNK_BYTES;
}

int account_charge_managed(int device, uint64_t bytes)
{
	uint64_t *sum = &managed_bytes[device], more;
	int error = 0;

	lock_acquire(&managed);
	more = chunks_of(*sum + bytes) - chunks_of(*sum);
	if (more)
		error = account_charge(device, more);
	if (!error)
		*sum += bytes;
	lock_release(&managed);
	return error;
}

void account_return_managed(int device, uint64_t bytes)
{
	uint64_t *sum = &managed_bytes[device], before;

	account_managed_returning();
	lock_acquire(&managed);
	before = chunks_of(*sum);
	*sum -= bytes < *sum ? bytes : *sum;
	account_refund(device, before - chunks_of(*sum));
	lock_release(&managed);
}

void account_managed_returning(void)
{
	__atomic_fetch_add(&managed_returns, 1, __ATOMIC_SEQ_CST);
}

uint64_t account_managed_returns(void)
{
	return __atomic_load_n(&managed_returns, __ATOMIC_SEQ_CST);
}

uint64_t account_managed_charge(int device)
{
	uint64_t bytes;

	lock_acquire(&managed);
	bytes = chunks_of(managed_bytes[device]);
	lock_release(&managed);
	return bytes + pool_managed_charge(device);
}
