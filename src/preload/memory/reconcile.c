/*
 * NVML's figure and the accounts are read at two times. The accounts are lowered only if nothing
 * changed between the two. Changes by hooks change the accounts' stamp. Memory that pools give back
 * at a synchronisation in another thread is seen by reading their figures before and after.
 *
 * A program with many threads may change its accounts all the time. If a reconciliation is needed,
 * the thread that reconciles sets `resting`. Threads that are about to allocate then wait, until
 * the calls under way have ended and NVML was asked. The wait is bounded: if a call is in the
 * driver for longer, the accounts stay as high as they are. Before a refusal the bound is larger,
 * unless such a wait has failed in the last second.
 *
 * One thread reconciles at a time, as the ledger records one peak while NVML is asked.
 */
#include "reconcile.h"

#include <errno.h>

#include "clock.h"
#include "compare.h"
#include "import.h"
#include "lock.h"
#include "nvml.h"
#include "pools.h"
#include "self.h"
#include "state.h"
#include "sys.h"

static struct lock comparing = LOCK_INIT; /* a thread never waits for it: lock_try */

/* Threads that are about to allocate have to wait. Written under `comparing`, atomic. */
static bool resting;

#define TRIES   3  /* at once, while other threads allocate */
#define TICKETS 2  /* tickets in a row, if pools turn out to have changed */
#define NAPS    20 /* for another thread's comparison */
#define NAP_NS  (50 * NS_PER_US)

#define NAPS_REFUSAL (REST_REFUSAL_NS / NAP_NS) /* before a refusal */

#define REST_NS         (10 * NS_PER_MS)
#define REST_REFUSAL_NS (100 * NS_PER_MS) /* before a refusal: threads may wait for a processor */
#define REST_FAILED_NS  NS_PER_S /* refusals do not wait so soon after such a wait failed */

static uint64_t rest_failed_ns; /* when a wait before a refusal last failed; under `comparing` */

static bool is_resting(void)
{
	return __atomic_load_n(&resting, __ATOMIC_ACQUIRE);
}

/* Waits while another thread has set `resting`. The calling thread has no allocation under way. */
static void wait_for_rest(void)
{
	uint64_t until_ns = clock_now_ns() + 2 * REST_REFUSAL_NS;

	while (is_resting() && clock_now_ns() < until_ns)
		sys_sleep_ns(NAP_NS);
}

/* Reads NVML's figure, and the accounts' ticket, which later says whether the accounts have changed
 * since. If the pools' figures turn out to have changed, the accounts change, and another ticket is
 * taken. */
static int look(CUdevice device, struct quota_ticket *ret_ticket, uint64_t *ret_bytes)
{
	char uuid[VGPU_UUID_LEN];
	unsigned tickets = 0;
	int error;

	pools_correct(device); /* otherwise memory that is charged ahead would count as held */
	do
		*ret_ticket = quota_reconcile_ticket(device);
	while (pools_correct(device) && ++tickets < TICKETS);
	error = state_device_uuid(device, uuid) ? nvml_own_usage(uuid, ret_bytes) : -ENOENT;
	if (pools_correct(device))
		ret_ticket->stamp = QUOTA_NO_STAMP;
	return error;
}

void reconcile_forked(void)
{
	lock_init(&comparing);
	resting = false;
	rest_failed_ns = 0;
}

/* If memory is found to be freed, the accounts change, and NVML's figure is read again. */
static bool look_and_settle(CUdevice device)
{
	struct quota_ticket ticket;
	uint64_t bytes;
	bool doubted;
	int error;

	quota_shares_look();
	error = look(device, &ticket, &bytes);
	doubted = !error && quota_doubts(device, &ticket, bytes);
	if ((error == -ENOENT || doubted) && self_find(device, doubted))
		error = look(device, &ticket, &bytes);
	if (!error && async_free_found_gone(device, quota_excess(device, &ticket, bytes)))
		error = look(device, &ticket, &bytes);
	return error != -EAGAIN && quota_reconcile(device, &ticket, error ? NULL : &bytes);
}

static bool compare_locked(CUdevice device)
{
	uint64_t from_ns = clock_now_ns();
	bool compared = look_and_settle(device);

	quota_reconcile_took(clock_now_ns() - from_ns);
	return compared;
}

/* Threads wait before allocations, and not before frees. So each thread may make one more free
 * before no call is under way. */
static bool compare_at_rest_locked(CUdevice device, uint64_t most_ns)
{
	uint64_t until_ns = clock_now_ns() + most_ns;
	bool looked = false, compared = false;

	__atomic_store_n(&resting, true, __ATOMIC_RELEASE);
	while (!compared && clock_now_ns() < until_ns) {
		if (quota_is_at_rest()) {
			compared = compare_locked(device);
			looked = true;
		} else {
			sys_sleep_ns(NAP_NS);
		}
	}
	if (!looked)
		compared = compare_locked(device);
	__atomic_store_n(&resting, false, __ATOMIC_RELEASE);
	return compared;
}

/* False: the accounts changed between the two figures, or another thread held `comparing` during
 * all naps. `refuses`: the caller refuses an allocation unless the accounts turn out too high. */
static bool compare(CUdevice device, unsigned naps, bool refuses)
{
	bool compared;

	while (!lock_try(&comparing)) {
		if (naps-- == 0)
			return false;
		sys_sleep_ns(NAP_NS);
	}
	if (refuses && clock_now_ns() - rest_failed_ns >= REST_FAILED_NS) {
		compared = compare_at_rest_locked(device, REST_REFUSAL_NS);
		if (!compared)
			rest_failed_ns = clock_now_ns();
	} else if (quota_wants_rest(device)) {
		compared = compare_at_rest_locked(device, REST_NS);
	} else {
		compared = compare_locked(device);
	}
	lock_release(&comparing);
	return compared;
}

void reconcile_books(CUdevice device)
{
	if (is_resting())
		wait_for_rest();
	if (quota_reconcile_due(device))
		compare(device, 0, false);
}

void reconcile_at_wait(CUdevice device)
{
	if (is_resting())
		wait_for_rest();
	if (quota_reconcile_due_at_wait(device))
		compare(device, 0, false);
}

static void try_to_compare(CUdevice device, bool refuses)
{
	bool compared = false;

	for (unsigned i = 0; i < TRIES && !compared; i++)
		compared = compare(device, NAPS, false);
	if (!compared && refuses)
		compare(device, NAPS_REFUSAL, true);
}

void reconcile_now(CUdevice device)
{
	try_to_compare(device, false);
}

void reconcile_at_rest(CUdevice device)
{
	try_to_compare(device, true);
}

void reconcile_soon(CUdevice device)
{
	quota_reconcile_soon(device);
}
