#include "reconcile.h"

#include <errno.h>

#include "nvml.h"
#include "quota.h"
#include "state.h"

void reconcile_books(CUdevice device)
{
	uint64_t ticket, bytes;
	char uuid[VGPU_UUID_LEN];
	int saved;

	if (!quota_reconcile_due(device, &ticket))
		return;
	saved = errno; /* NVML opens files */
	if (state_device_uuid(device, uuid) && nvml_own_usage(uuid, &bytes))
		quota_reconcile(device, ticket, &bytes);
	else
		quota_reconcile(device, ticket, NULL);
	errno = saved;
}
