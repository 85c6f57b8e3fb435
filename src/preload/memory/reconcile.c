/*
 * The comparison is of two moments, and the books are lowered only if nothing moved between them.
 * They have a stamp for what we do ourselves; what pools give back at a synchronisation in another
 * thread is seen by reading their figures before and after.
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

#define TRIES   3  /* at once, while other threads allocate */
#define TICKETS 2  /* while pools turn out to have changed */
#define NAPS    20 /* for another thread's comparison */
#define NAP_NS  (50 * NS_PER_US)

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

/* False: the figures were of different moments, or another thread compares for longer than that. */
static bool compare(CUdevice device, unsigned naps)
{
	bool compared;

	while (!lock_try(&comparing)) {
		if (naps-- == 0)
			return false;
		sys_sleep_ns(NAP_NS);
	}
	compared = compare_locked(device);
	lock_release(&comparing);
	return compared;
}

void reconcile_books(CUdevice device)
{
	int saved;

	if (!quota_reconcile_due(device))
		return;
	saved = errno; /* NVML opens files */
	compare(device, 0);
	errno = saved;
}

void reconcile_now(CUdevice device)
{
	int saved = errno;

	for (unsigned i = 0; i < TRIES && !compare(device, NAPS); i++)
		;
	errno = saved;
}

void reconcile_soon(CUdevice device)
{
	quota_reconcile_soon(device);
}
