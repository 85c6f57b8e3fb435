/*
 * The comparison is of two moments, and the books are lowered only if nothing moved between them.
 * They have a stamp for what we do ourselves; what pools give back at a synchronisation in another
 * thread is seen by reading their figures before and after.
 *
 * A program with many threads may never be at rest. Where the books need it, the thread that
 * compares makes a moment of rest: threads that are about to allocate wait until what is under
 * way is over and NVML was asked. The wait has an end: a call that takes longer than that in the
 * driver leaves the books as high as they are. Before a refusal the wait may be longer, unless that
 * was no use a moment ago.
 *
 * One thread compares at a time, as the ledger has one peak for the time of the question.
 */
#include "reconcile.h"

#include <errno.h>

#include "clock.h"
#include "exports.h"
#include "lock.h"
#include "nvml.h"
#include "pools.h"
#include "quota.h"
#include "self.h"
#include "state.h"
#include "sys.h"

static struct lock comparing = LOCK_INIT; /* only ever tried */

/* Threads that are about to allocate wait. Written under `comparing`, atomic. */
static bool resting;

#define TRIES   3  /* at once, while other threads allocate */
#define TICKETS 2  /* while pools turn out to have changed */
#define NAPS    20 /* for another thread's comparison */
#define NAP_NS  (50 * NS_PER_US)

#define NAPS_REFUSAL (REST_REFUSAL_NS / NAP_NS) /* before a refusal */

#define REST_NS         (10 * NS_PER_MS)
#define REST_REFUSAL_NS (100 * NS_PER_MS) /* before a refusal: threads may wait for a processor */
#define REST_FAILED_NS  NS_PER_S          /* so long after one that failed, none before a refusal */

static uint64_t rest_failed_ns; /* when one did; under `comparing` */

static bool is_resting(void)
{
	return __atomic_load_n(&resting, __ATOMIC_ACQUIRE);
}

/* Before anything of the calling thread is under way. */
static void wait_for_rest(void)
{
	uint64_t until_ns = clock_now_ns() + 2 * REST_REFUSAL_NS;

	while (is_resting() && clock_now_ns() < until_ns)
		sys_sleep_ns(NAP_NS);
}

/* What NVML says, and the books' ticket, which tells whether they were the same all the while. What
 * pools turn out to have changed changes the books: then the ticket is taken once more. */
static int look(CUdevice device, struct quota_ticket *ret_ticket, uint64_t *ret_bytes)
{
	char uuid[VGPU_UUID_LEN];
	unsigned tickets = 0;
	int error;

	pools_correct(device); /* what is charged ahead would be taken to be held */
	do
		*ret_ticket = quota_reconcile_ticket(device);
	while (pools_correct(device) && ++tickets < TICKETS);
	error = state_device_uuid(device, uuid) ? nvml_own_usage(uuid, ret_bytes) : -ENOENT;
	if (pools_correct(device))
		ret_ticket->stamp = QUOTA_NO_STAMP;
	return error;
}

void reconcile_forget(void)
{
	lock_init(&comparing);
	resting = false;
	rest_failed_ns = 0;
}

/* What is found gone makes the books others: they need another figure. */
static bool compare_locked(CUdevice device)
{
	struct quota_ticket ticket;
	uint64_t bytes;
	int error;

	share_look();
	error = look(device, &ticket, &bytes);
	if (error == -ENOENT && self_find(device))
		error = look(device, &ticket, &bytes);
	if (!error && async_free_found_gone(device, quota_excess(device, &ticket, bytes)))
		error = look(device, &ticket, &bytes);
	return error != -EAGAIN && quota_reconcile(device, &ticket, error ? NULL : &bytes);
}

/* Frees are not held up, so several may come before it is quiet: each thread can have one to make.
 */
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
	if (!compared)
		rest_failed_ns = clock_now_ns();
	return compared;
}

/* False: the figures were of different moments, or another thread compares for longer than that.
 * `refuses`: an allocation is refused unless the books are too high. */
static bool compare(CUdevice device, unsigned naps, bool refuses)
{
	bool compared;

	while (!lock_try(&comparing)) {
		if (naps-- == 0)
			return false;
		sys_sleep_ns(NAP_NS);
	}
	if (refuses && clock_now_ns() - rest_failed_ns >= REST_FAILED_NS)
		compared = compare_at_rest_locked(device, REST_REFUSAL_NS);
	else if (quota_wants_rest(device))
		compared = compare_at_rest_locked(device, REST_NS);
	else
		compared = compare_locked(device);
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
