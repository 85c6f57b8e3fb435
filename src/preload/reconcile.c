/*
 * The comparison is of two moments, and good only if nothing moved between them. The books have a
 * stamp for what we do ourselves; what pools give back at a synchronisation in another thread is
 * seen by reading their figures before and after.
 */
#include "reconcile.h"

#include <errno.h>

#include "nvml.h"
#include "pools.h"
#include "quota.h"
#include "share.h"
#include "state.h"

#define TRIES   3 /* at once, while other threads allocate */
#define TICKETS 2 /* while pools turn out to have changed */

/* What NVML says, and the books' ticket, which tells whether they were the same all the while. What
 * pools turn out to have changed changes the books: then the ticket is taken once more. */
static int look(CUdevice device, struct quota_ticket *ret_ticket, uint64_t *ret_bytes)
{
	char uuid[VGPU_UUID_LEN];
	unsigned tickets = 0;
	int error;

	do
		*ret_ticket = quota_reconcile_ticket(device);
	while (pools_correct(device) && ++tickets < TICKETS);
	error = state_device_uuid(device, uuid) ? nvml_own_usage(uuid, ret_bytes) : -ENOENT;
	if (pools_correct(device))
		ret_ticket->stamp = QUOTA_NO_STAMP;
	return error;
}

/* False: the figures were of different moments. What is found gone makes the books others: they
 * need another figure. */
static bool compare(CUdevice device)
{
	struct quota_ticket ticket;
	uint64_t bytes;
	int error;

	share_look();
	error = look(device, &ticket, &bytes);
	if (!error && async_free_found_gone(device, quota_excess(device, ticket, bytes)))
		error = look(device, &ticket, &bytes);
	return error != -EAGAIN && quota_reconcile(device, ticket, error ? NULL : &bytes);
}

void reconcile_books(CUdevice device)
{
	int saved;

	if (!quota_reconcile_due(device))
		return;
	saved = errno; /* NVML opens files */
	compare(device);
	errno = saved;
}

void reconcile_now(CUdevice device)
{
	int saved = errno;

	for (unsigned i = 0; i < TRIES && !compare(device); i++)
		;
	errno = saved;
}

void reconcile_soon(CUdevice device)
{
	quota_reconcile_soon(device);
}
