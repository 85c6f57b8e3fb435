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

#define TRIES 3 /* at once, while other threads allocate */

/* False: the figures were of different moments. */
static bool compare(CUdevice device)
{
	struct quota_ticket ticket;
	uint64_t bytes;
	char uuid[VGPU_UUID_LEN];
	int error;

	share_look();
	pools_correct(device);
	ticket = quota_reconcile_ticket(device);
	error = state_device_uuid(device, uuid) ? nvml_own_usage(uuid, &bytes) : -ENOENT;
	if (error == -EAGAIN)
		return false;
	if (pools_correct(device))
		ticket.stamp = QUOTA_NO_STAMP;
	if (!error && quota_is_quiet(device, ticket) && quota_excess(device, bytes)) {
		async_free_found_gone(device, quota_excess(device, bytes));
		ticket = quota_reconcile_ticket(device);
	}
	return quota_reconcile(device, ticket, error ? NULL : &bytes);
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
