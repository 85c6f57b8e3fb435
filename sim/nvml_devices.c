/*
 * The simulated NVML's devices: their number, handles and names.
 *
 *   VGPU_SIM_NVML_MIG   a GPU's number: the GPU is divided into two instances, with handles and
 *                       UUIDs of their own (MIG-51300000-0000-4000-8000-0000000000gi, where g is
 *                       the GPU and i is 1 or 2)
 *   VGPU_SIM_NVML_COMPUTE_MODE   the compute mode of every GPU, by NVML's number; default 0
 *   VGPU_SIM_NVML_PERSISTENCE    0: persistence mode is off; default: on
 *
 * A handle is the address of an element of `handles`: a GPU's, followed by its instances'. GPU i
 * has the serial number 13200000 + i, sits on bus i + 1, and is /dev/nvidia with the number that is
 * as far from the end as i is from the beginning: minor numbers are not indexes.
 */
#include "nvml_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
	INSTANCES = 2,
	HANDLES = 1 + INSTANCES, /* a GPU */
	SERIAL_TEXT = 24,
};

struct nvmlDevice_st {
	char unused;
};

static struct nvmlDevice_st handles[SIM_GPUS_MAX * HANDLES];

/* Whether that GPU is divided into instances. */
static bool is_cut(unsigned gpu)
{
	const char *number = getenv("VGPU_SIM_NVML_MIG");

	return number && *number && strtoul(number, NULL, 10) == gpu;
}

static unsigned gpu_of(nvmlDevice_t device)
{
	return (unsigned)(device - handles) / HANDLES;
}

/* The number of the instance on its GPU, from 1; 0 for a GPU as a whole. */
static unsigned instance_of(nvmlDevice_t device)
{
	return (unsigned)(device - handles) % HANDLES;
}

nvmlDevice_t nvml_device(unsigned gpu)
{
	return &handles[gpu * HANDLES];
}

bool nvml_gpu(nvmlDevice_t device, const void *out, unsigned *ret_gpu)
{
	if (!out || device < handles || device >= handles + config_get()->count * HANDLES)
		return false;
	*ret_gpu = gpu_of(device);
	return instance_of(device) == 0 || is_cut(*ret_gpu);
}

static void uuid_of(nvmlDevice_t device, char ret_text[SIM_UUID_TEXT])
{
	config_uuid_text(gpu_of(device), ret_text);
	if (instance_of(device) == 0)
		return;
	memcpy(ret_text, "MIG", 3);
	ret_text[38] = "0123456789abcdef"[gpu_of(device)];
	ret_text[39] = (char)('0' + instance_of(device));
}

static nvmlReturn_t count_get(const char *function, unsigned *ret_count)
{
	nvmlReturn_t result = nvml_enter(function);

	if (result)
		return result;
	if (!ret_count)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	*ret_count = config_get()->count;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
	return count_get(__func__, deviceCount);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
	return count_get(__func__, deviceCount);
}

static nvmlReturn_t handle_get(const char *function, unsigned index, nvmlDevice_t *ret_device)
{
	nvmlReturn_t result = nvml_enter(function);

	if (result)
		return result;
	if (!ret_device || index >= config_get()->count)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	*ret_device = nvml_device(index);
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return handle_get(__func__, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	return handle_get(__func__, index, device);
}

/* Calls each(handle, arg) for the GPUs and their instances until it returns true: that handle. */
static nvmlDevice_t find(bool (*each)(nvmlDevice_t device, const void *arg), const void *arg)
{
	for (unsigned i = 0; i < config_get()->count * HANDLES; i++) {
		unsigned gpu;

		if (nvml_gpu(&handles[i], handles, &gpu) && each(&handles[i], arg))
			return &handles[i];
	}
	return NULL;
}

/* Finds the device by a name that the caller has given, which may be NULL. */
static nvmlReturn_t find_get(const char *function, const void *name, nvmlDevice_t *ret_device,
			     bool (*each)(nvmlDevice_t device, const void *arg))
{
	nvmlReturn_t result = nvml_enter(function);

	if (result)
		return result;
	if (!name || !ret_device)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	nvmlDevice_t found = find(each, name);
	if (!found)
		return nvml_leave(NVML_ERROR_NOT_FOUND);
	*ret_device = found;
	return nvml_leave(NVML_SUCCESS);
}

static bool has_uuid(nvmlDevice_t device, const void *uuid)
{
	char text[SIM_UUID_TEXT];

	uuid_of(device, text);
	return !strcasecmp(text, uuid);
}

static bool has_uuid_bytes(nvmlDevice_t device, const void *bytes)
{
	unsigned char own[16];

	config_uuid_bytes(gpu_of(device), own);
	return !instance_of(device) && !memcmp(own, bytes, sizeof own);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	return find_get(__func__, uuid, device, has_uuid);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
	if (uuid && uuid->version != NVML_UUID_V1) {
		nvmlReturn_t result = nvml_enter(__func__);

		return result ? result : nvml_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	}
	if (uuid && uuid->type == NVML_UUID_TYPE_ASCII)
		return find_get(__func__, uuid->value.str, device, has_uuid);
	if (uuid && uuid->type == NVML_UUID_TYPE_BINARY)
		return find_get(__func__, uuid->value.bytes, device, has_uuid_bytes);
	return find_get(__func__, NULL, device, has_uuid);
}

static bool has_serial(nvmlDevice_t device, const void *serial)
{
	char text[SERIAL_TEXT];

	snprintf(text, sizeof text, "132000%02u", gpu_of(device));
	return !instance_of(device) && !strcmp(text, serial);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	return find_get(__func__, serial, device, has_serial);
}

/* The three ways to write it: domain:bus:device.function, domain:bus:device, bus:device.function.
 */
static bool has_bus_id(nvmlDevice_t device, const void *bus_id)
{
	unsigned domain = 0, bus, slot;

	if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
		domain = 0;
		if (sscanf(bus_id, "%x:%x.0", &bus, &slot) != 2)
			return false;
	}
	return !instance_of(device) && !domain && bus == gpu_of(device) + 1 && !slot;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
	return find_get(__func__, pciBusId, device, has_bus_id);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
	return find_get(__func__, pciBusId, device, has_bus_id);
}

/* Most functions about a device begin with this: it returns an error, or enters. */
static nvmlReturn_t enter_device(const char *function, nvmlDevice_t device, const void *out,
				 unsigned *ret_gpu)
{
	nvmlReturn_t result = nvml_enter(function);

	if (result)
		return result;
	return nvml_gpu(device, out, ret_gpu) ? NVML_SUCCESS
					      : nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, index, &gpu);

	if (result)
		return result;
	*index = instance_of(device) ? instance_of(device) - 1 : gpu;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, minorNumber, &gpu);

	if (result)
		return result;
	*minorNumber = config_get()->count - 1 - gpu;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
	unsigned gpu;
	char text[SERIAL_TEXT];
	nvmlReturn_t result = enter_device(__func__, device, serial, &gpu);

	if (result)
		return result;
	snprintf(text, sizeof text, "132000%02u", gpu);
	return nvml_leave(nvml_text(text, serial, length));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, pci, &gpu);

	if (result)
		return result;
	*pci = (nvmlPciInfo_t){.bus = gpu + 1, .pciDeviceId = 0x233010de};
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", gpu + 1);
	snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", gpu + 1);
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	unsigned gpu;
	char text[SIM_UUID_TEXT];
	nvmlReturn_t result = enter_device(__func__, device, uuid, &gpu);

	if (result)
		return result;
	uuid_of(device, text);
	return nvml_leave(nvml_text(text, uuid, length));
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, name, &gpu);

	return result ? result : nvml_leave(nvml_text(SIM_GPU_NAME, name, length));
}

/* -- modes --------------------------------------------------------------------------------------
 */

/* The number in the environment variable. */
static unsigned setting(const char *name, unsigned otherwise)
{
	const char *number = getenv(name);

	return number && *number ? (unsigned)strtoul(number, NULL, 10) : otherwise;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode,
				  unsigned int *pendingMode)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, currentMode, &gpu);

	if (result)
		return result;
	if (!pendingMode)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	*currentMode = is_cut(gpu) ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
	*pendingMode = *currentMode;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, mode, &gpu);

	if (result)
		return result;
	*mode = setting("VGPU_SIM_NVML_PERSISTENCE", 1) ? NVML_FEATURE_ENABLED
							: NVML_FEATURE_DISABLED;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, mode, &gpu);

	if (result)
		return result;
	*mode = (nvmlComputeMode_t)setting("VGPU_SIM_NVML_COMPUTE_MODE", NVML_COMPUTEMODE_DEFAULT);
	return nvml_leave(NVML_SUCCESS);
}

/* -- nearness: all GPUs are as far from each other as can be, and as near to every CPU -----------
 */

/* Stores the handles of all GPUs except one. With *count 0 the caller asks only for their number.
 */
static nvmlReturn_t store_all_but(unsigned except, unsigned *count, nvmlDevice_t *devices)
{
	unsigned room = *count, found = 0;

	if (room && !devices)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < config_get()->count; i++) {
		if (i == except)
			continue;
		if (found < room)
			devices[found] = nvml_device(i);
		found++;
	}
	*count = room && room < found ? room : found;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
					      unsigned int *count, nvmlDevice_t *deviceArray)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, count, &gpu);

	if (result)
		return result;
	if (level == NVML_TOPOLOGY_SYSTEM)
		return nvml_leave(store_all_but(gpu, count, deviceArray));
	*count = 0;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpuNumber, unsigned int *count,
					 nvmlDevice_t *deviceArray)
{
	nvmlReturn_t result = nvml_enter(__func__);

	(void)cpuNumber;
	if (result)
		return result;
	return nvml_leave(count ? store_all_but(SIM_GPUS_MAX, count, deviceArray)
				: NVML_ERROR_INVALID_ARGUMENT);
}

/* -- instances ----------------------------------------------------------------------------------
 */

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *isMigDevice)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, isMigDevice, &gpu);

	if (result)
		return result;
	*isMigDevice = instance_of(device) != 0;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, count, &gpu);

	if (result)
		return result;
	*count = is_cut(gpu) ? INSTANCES : 0;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
						 nvmlDevice_t *migDevice)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, device, migDevice, &gpu);

	if (result)
		return result;
	if (!is_cut(gpu) || index >= INSTANCES)
		return nvml_leave(NVML_ERROR_NOT_FOUND);
	*migDevice = nvml_device(gpu) + 1 + index;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice,
							  nvmlDevice_t *device)
{
	unsigned gpu;
	nvmlReturn_t result = enter_device(__func__, migDevice, device, &gpu);

	if (result)
		return result;
	*device = nvml_device(gpu);
	return nvml_leave(NVML_SUCCESS);
}
