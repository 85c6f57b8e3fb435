/* NVML's figures for memory: nvidia-smi and similar programs show the slice's. */
#include "hooks.h"
#include "nvml.h"
#include "nvml_view.h"
#include "oversubscribe.h"
#include "view.h"

/* The slice's limit and use of memory on an NVML device. False: there is no limit. */
static bool slice_of(nvmlDevice_t device, uint64_t *ret_limit, uint64_t *ret_used)
{
	char uuid[VGPU_UUID_LEN];

	return nvml_device_uuid(device, uuid) && view_memory(uuid, ret_limit, ret_used);
}

/* total is the slice's limit; or the GPU's memory if that is smaller, unless the slice
 * oversubscribes. used and free add up to total. */
static void show(uint64_t limit, uint64_t used, unsigned long long *total,
		 unsigned long long *ret_free, unsigned long long *ret_used)
{
	*total = oversubscribe_shown(limit, *total);
	*ret_used = used < *total ? used : *total;
	*ret_free = *total - *ret_used;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	uint64_t limit, used;
	nvmlReturn_t result;

	nvml_bind();
	result = nvml.nvmlDeviceGetMemoryInfo(device, memory);
	if (result == NVML_SUCCESS && slice_of(device, &limit, &used))
		show(limit, used, &memory->total, &memory->free, &memory->used);
	return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	uint64_t limit, used;
	nvmlReturn_t result;

	nvml_bind();
	result = nvml.nvmlDeviceGetMemoryInfo_v2(device, memory);
	if (result == NVML_SUCCESS && slice_of(device, &limit, &used)) {
		show(limit, used, &memory->total, &memory->free, &memory->used);
		memory->reserved = 0;
	}
	return result;
}
