/*
 * Which GPUs this process sees, under which numbers, and what they say about themselves.
 *
 * CUDA_VISIBLE_DEVICES lists the machine's GPUs by number, UUID or beginning of a UUID; the list
 * ends at the first entry that is invalid, ambiguous or there already. Read by cuInit, constant
 * afterwards.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static unsigned visible[SIM_GPUS_MAX]; /* the machine's numbers; written by device_discover */
static unsigned visible_count;         /* likewise */

/* The GPU that an entry names, or -1. */
static int entry_gpu(const char *entry, size_t length, unsigned count)
{
	char uuid[SIM_UUID_TEXT];
	int found = -1;

	if (!length)
		return -1;
	if (strspn(entry, "0123456789") == length) {
		unsigned long number = strtoul(entry, NULL, 10);

		return number < count ? (int)number : -1;
	}
	if (length <= 4 || strncasecmp(entry, "GPU-", 4))
		return -1;
	for (unsigned i = 0; i < count; i++) {
		config_uuid_text(i, uuid);
		if (length >= sizeof uuid || strncasecmp(uuid, entry, length))
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

static bool seen(unsigned gpu)
{
	for (unsigned i = 0; i < visible_count; i++) {
		if (visible[i] == gpu)
			return true;
	}
	return false;
}

unsigned device_discover(const struct sim_config *config)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");

	visible_count = 0;
	if (!list) {
		for (unsigned i = 0; i < config->count; i++)
			visible[visible_count++] = i;
		return visible_count;
	}
	for (;;) {
		list += strspn(list, " \t");
		size_t length = strcspn(list, ", \t");
		int gpu = entry_gpu(list, length, config->count);

		if (gpu < 0 || seen((unsigned)gpu))
			break;
		visible[visible_count++] = (unsigned)gpu;
		list += length;
		list += strspn(list, " \t");
		if (*list++ != ',')
			break;
	}
	return visible_count;
}

unsigned device_count(void)
{
	return visible_count;
}

bool device_gpu(CUdevice device, unsigned *ret_gpu)
{
	if (device < 0 || (unsigned)device >= visible_count)
		return false;
	*ret_gpu = visible[device];
	return true;
}

/* How most functions about a device begin: with what there is to refuse, or with its GPU. */
static CUresult enter_device(const char *function, const void *out, CUdevice device,
			     unsigned *ret_gpu)
{
	CUresult result = enter(function);

	if (result)
		return result;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	return device_gpu(device, ret_gpu) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	unsigned gpu;
	CUresult result = enter_device(__func__, device, ordinal, &gpu);

	if (!result)
		*device = ordinal;
	return result;
}

CUresult cuDeviceGetCount(int *count)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)visible_count;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	unsigned gpu;
	CUresult result = enter_device(__func__, bytes, dev, &gpu);

	if (!result)
		*bytes = config_get()->total_bytes[gpu];
	return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	unsigned gpu;
	CUresult result = enter_device(__func__, bytes, dev, &gpu);

	if (!result) {
		uint64_t total = config_get()->total_bytes[gpu];

		*bytes = total > UINT32_MAX ? UINT32_MAX : (unsigned)total;
	}
	return result;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	unsigned gpu;
	CUresult result = enter_device(__func__, name, dev, &gpu);

	if (result)
		return result;
	if (len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)len, "%s", SIM_GPU_NAME);
	return CUDA_SUCCESS;
}

static CUresult uuid_get(const char *function, CUuuid *uuid, CUdevice dev)
{
	unsigned char bytes[16];
	unsigned gpu;
	CUresult result = enter_device(function, uuid, dev, &gpu);

	if (result)
		return result;
	config_uuid_bytes(gpu, bytes);
	memcpy(uuid->bytes, bytes, sizeof bytes);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	return uuid_get(__func__, uuid, dev);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	return uuid_get(__func__, uuid, dev);
}

/* GPU i sits on bus i + 1. */
CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	unsigned gpu;
	CUresult result = enter_device(__func__, pciBusId, dev, &gpu);

	if (result)
		return result;
	if (len <= 0 || snprintf(pciBusId, (size_t)len, "0000:%02x:00.0", gpu + 1) >= len)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
	CUresult result = enter(__func__);
	unsigned domain, bus;

	if (result)
		return result;
	if (!dev || !pciBusId)
		return CUDA_ERROR_INVALID_VALUE;
	if (sscanf(pciBusId, "%x:%x:0", &domain, &bus) != 2 || domain) {
		if (sscanf(pciBusId, "%x:0", &bus) != 1)
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; i < visible_count; i++) {
		if (visible[i] + 1 == bus) {
			*dev = (CUdevice)i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	unsigned gpu;
	CUresult result = enter_device(__func__, major && minor ? major : NULL, dev, &gpu);

	if (!result) {
		*major = SIM_COMPUTE_MAJOR;
		*minor = SIM_COMPUTE_MINOR;
	}
	return result;
}

/* Those not named here are 0. */
static int attribute_get(unsigned attribute, unsigned gpu)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		return 1024;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		return 32;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
		return 1980000;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return SIM_MULTIPROCESSORS;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		return SIM_THREADS_PER_MULTIPROCESSOR;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return (int)gpu + 1;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return SIM_COMPUTE_MAJOR;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		return SIM_COMPUTE_MINOR;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
		return 1;
	default:
		return 0;
	}
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	const unsigned attributes_end = 150; /* CUDA 13.0 knows fewer */
	unsigned gpu;
	CUresult result = enter_device(__func__, pi, dev, &gpu);

	if (result)
		return result;
	if (!attrib || attrib >= attributes_end)
		return CUDA_ERROR_INVALID_VALUE;
	*pi = attribute_get(attrib, gpu);
	return CUDA_SUCCESS;
}
