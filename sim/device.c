/*
 * The GPUs that this process sees, their numbers in it, and their attributes.
 *
 * CUDA_VISIBLE_DEVICES is read as driver 580 was seen to read it, on two H200:
 *
 *   - It is a list of numbers; or, if the first entry begins with "GPU-" or "MIG-", of UUIDs or of
 *     beginnings that only one UUID has.
 *   - A number ends at the first character that is no digit ("1x" is 1, "0x1" is 0), and is cut to
 *     32 bits. The case of a UUID's digits does not matter, nor do characters after its end.
 *   - The list ends at the first entry that names no GPU: one that does not exist, or an entry that
 *     is of the other kind, ambiguous, negative or empty.
 *   - If a GPU occurs twice before that, cuInit fails.
 *
 * Each cuInit reads the variable until one succeeds; after that it is constant. All GPUs are
 * equally fast, so CUDA_DEVICE_ORDER changes nothing.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	KIND_CHARS = 4, /* "GPU-" */
	UUID_CHARS = SIM_UUID_TEXT - 1,
};

static unsigned visible[SIM_GPUS_MAX]; /* the machine's numbers; written by device_discover */
static unsigned visible_count;         /* likewise */

static bool is_uuid(const char *entry)
{
	return !strncmp(entry, "GPU-", KIND_CHARS) || !strncmp(entry, "MIG-", KIND_CHARS);
}

static int number_gpu(const char *entry, unsigned count)
{
	char *end;
	int number = (int)strtol(entry, &end, 10);

	return end != entry && number >= 0 && (unsigned)number < count ? number : -1;
}

static int uuid_gpu(const char *entry, unsigned count)
{
	size_t length = strcspn(entry, ", ");
	char uuid[SIM_UUID_TEXT];
	int found = -1;

	if (!is_uuid(entry) || length == KIND_CHARS)
		return -1;
	if (length > UUID_CHARS)
		length = UUID_CHARS;
	for (unsigned i = 0; i < count; i++) {
		config_uuid_text(i, uuid);
		if (strncasecmp(uuid + KIND_CHARS, entry + KIND_CHARS, length - KIND_CHARS))
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

CUresult device_discover(const struct sim_config *config)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	bool uuids = list && is_uuid(list);

	visible_count = 0;
	for (unsigned i = 0; !list && i < config->count; i++)
		visible[visible_count++] = i;
	for (; list; list = *list ? list + 1 : NULL) {
		int gpu = uuids ? uuid_gpu(list, config->count) : number_gpu(list, config->count);

		if (gpu < 0)
			break;
		if (seen((unsigned)gpu)) {
			visible_count = 0;
			return CUDA_ERROR_INVALID_DEVICE;
		}
		visible[visible_count++] = (unsigned)gpu;
		list += strcspn(list, ",");
	}
	return visible_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
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

/* Most functions about a device begin with this: it returns an error, or finds the GPU. */
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

/* GPU i is on bus i + 1. */
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

/*
 * Values by CUdevice_attribute, as an H100 with driver 580 reports them; other attributes are 0.
 * The attributes of its place (bus, device, domain, NUMA, PCI identifiers) are left out. MPS and
 * several other features are not simulated, although these attributes report them.
 */
static const int attributes[] = {
	[1] = 1024,        [2] = 1024,       [3] = 1024,       [4] = 64,          [5] = 2147483647,
	[6] = 65535,       [7] = 65535,      [8] = 49152,      [9] = 65536,       [10] = 32,
	[11] = 2147483647, [12] = 65536,     [13] = 1980000,   [14] = 512,        [15] = 1,
	[16] = 132,        [19] = 1,         [21] = 131072,    [22] = 131072,     [23] = 65536,
	[24] = 16384,      [25] = 16384,     [26] = 16384,     [27] = 32768,      [28] = 32768,
	[29] = 2048,       [30] = 512,       [31] = 1,         [32] = 1,          [36] = 2619000,
	[37] = 5120,       [38] = 52428800,  [39] = 2048,      [40] = 3,          [41] = 1,
	[42] = 32768,      [43] = 2048,      [44] = 1,         [45] = 32768,      [46] = 32768,
	[47] = 8192,       [48] = 8192,      [49] = 32768,     [51] = 32,         [52] = 32768,
	[53] = 32768,      [54] = 2046,      [55] = 32768,     [56] = 131072,     [57] = 65536,
	[58] = 16384,      [59] = 16384,     [60] = 16384,     [61] = 32768,      [62] = 2048,
	[63] = 32768,      [64] = 32768,     [65] = 2048,      [66] = 32768,      [67] = 32768,
	[68] = 2046,       [69] = 268435456, [70] = 131072,    [71] = 65000,      [72] = 2097120,
	[73] = 32768,      [74] = 32768,     [75] = 9,         [77] = 32768,      [78] = 1,
	[79] = 1,          [80] = 1,         [81] = 233472,    [82] = 65536,      [83] = 1,
	[87] = 2,          [89] = 1,         [90] = 1,         [91] = 1,          [95] = 1,
	[96] = 1,          [97] = 232448,    [99] = 1,         [102] = 1,         [103] = 1,
	[106] = 32,        [107] = 1,        [108] = 32768000, [109] = 134217728, [110] = 1,
	[111] = 1024,      [112] = 1,        [113] = 1,        [114] = 1,         [115] = 1,
	[116] = 1,         [117] = 1,        [119] = 9,        [120] = 1,         [121] = 1,
	[122] = 1,         [123] = 1,        [124] = 1,        [125] = 1,         [126] = 4,
	[127] = 1,         [128] = 1,        [129] = 1,        [131] = -1,        [141] = 1,
	[142] = 1,         [144] = 1,        [145] = 1,
};

static int attribute_get(unsigned attribute, unsigned gpu)
{
	if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
		return (int)gpu + 1;
	return attribute < sizeof attributes / sizeof *attributes ? attributes[attribute] : 0;
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	const unsigned attributes_end = 148; /* of driver 580 */
	unsigned gpu;
	CUresult result = enter_device(__func__, pi, dev, &gpu);

	if (result)
		return result;
	if (!attrib || attrib >= attributes_end)
		return CUDA_ERROR_INVALID_VALUE;
	*pi = attribute_get(attrib, gpu);
	return CUDA_SUCCESS;
}
