#include "reconcile.h"

#include <errno.h>

#include "nvml.h"
#include "quota.h"
#include "state.h"

void reconcile_books(CUdevice device)
{
	uint64_t ticket, bytes;
	char uuid[VGPU_UUID_LEN];
	int saved, error;

	if (!quota_reconcile_due(device, &ticket))
		return;
	saved = errno; /* NVML opens files */
	error = state_device_uuid(device, uuid) ? nvml_own_usage(uuid, &bytes) : -ENOENT;
	if (error != -EAGAIN)
		quota_reconcile(device, ticket, error ? NULL : &bytes);
	errno = saved;
}
