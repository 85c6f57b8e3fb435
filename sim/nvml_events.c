/*
 * The simulated NVML's events: the critical errors of GPUs, which NVIDIA calls XIDs.
 *
 *   VGPU_SIM_NVML_XIDS   a file. Each of its lines has a GPU's number and an XID: "0 79". Lines may
 *                        be added at any time, and each set of events sees each line once.
 *
 * A wait does not sleep: it returns NVML_ERROR_TIMEOUT at once if there is no further line.
 */
#include "nvml_calls.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct nvmlEventSet_st {
	bool registered[SIM_GPUS_MAX];
	long read_bytes; /* how much of the file this set has read */
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	nvmlReturn_t result = nvml_enter(__func__);

	if (result)
		return result;
	if (!set)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	*set = calloc(1, sizeof **set);
	return nvml_leave(*set ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	nvmlReturn_t result = nvml_enter(__func__);

	if (result)
		return result;
	free(set);
	return nvml_leave(set ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes,
				      nvmlEventSet_t set)
{
	nvmlReturn_t result = nvml_enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!nvml_gpu(device, set, &gpu))
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	if (eventTypes != nvmlEventTypeXidCriticalError)
		return nvml_leave(NVML_ERROR_NOT_SUPPORTED);
	set->registered[gpu] = true;
	return nvml_leave(NVML_SUCCESS);
}

/* The next whole line of the file that concerns a registered GPU. */
static bool next_line(nvmlEventSet_t set, unsigned *ret_gpu, unsigned *ret_xid)
{
	const char *path = getenv("VGPU_SIM_NVML_XIDS");
	FILE *file = path ? fopen(path, "re") : NULL;
	bool found = false;
	char line[64];

	if (!file)
		return false;
	fseek(file, set->read_bytes, SEEK_SET);
	while (!found && fgets(line, sizeof line, file)) {
		set->read_bytes = ftell(file);
		found = sscanf(line, "%u %u", ret_gpu, ret_xid) == 2 && *ret_gpu < SIM_GPUS_MAX &&
			set->registered[*ret_gpu];
	}
	fclose(file);
	return found;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	nvmlReturn_t result = nvml_enter(__func__);
	unsigned gpu, xid;

	(void)timeoutms;
	if (result)
		return result;
	if (!set || !data)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	if (!next_line(set, &gpu, &xid))
		return nvml_leave(NVML_ERROR_TIMEOUT);
	*data = (nvmlEventData_t){nvml_device(gpu), nvmlEventTypeXidCriticalError, xid, UINT_MAX,
				  UINT_MAX};
	return nvml_leave(NVML_SUCCESS);
}
