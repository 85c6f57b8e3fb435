/*
 * NVML's devices: an application sees those of the slice, in NVML's order, numbered from 0 without
 * gaps. A call that asks for another device, by whatever name, gets NVML's answer for a device that
 * does not exist.
 *
 * How it works. NVML itself looks names up (UUID, serial, bus id), and a device that it finds is
 * returned only if it is in the slice. A table translates the slice's indexes to NVML's. It is made
 * at the first query, and again when NVML counts another number of devices than before. There are
 * two tables, because the first version of the calls counts only devices that the process may use,
 * and the second counts all. Handles are not kept: they may end with nvmlShutdown.
 *
 * A GPU is in the slice if the slice has its UUID or that of one of its MIG instances. An instance
 * is in the slice if the slice has it or its GPU. NVML lists the instances, so those of other
 * slices on a GPU of the slice are seen, although they cannot be used.
 *
 * What always holds. A table is published whole, and only if NVML answered for every device.
 * Otherwise it is used for the one query, and the next query makes another table. A slice that has
 * all devices has no tables. CUDA_VISIBLE_DEVICES has no effect here, as it has none on NVML.
 *
 * The lock guards the tables. It is not held while NVML is asked, which may take the loader's lock.
 */
#include <string.h>

#include "hooks.h"
#include "lock.h"
#include "nvml_view.h"
#include "state.h"

#define DEVICES_MAX 64 /* of one machine; further devices are not shown */

/* The two ways in which NVML's calls count and number devices. */
enum numbering { NUMBERING_V1, NUMBERING_V2, NUMBERINGS };

struct table {
	bool made;
	unsigned real_count; /* NVML's number of devices when the table was made */
	unsigned count;
	unsigned char real[DEVICES_MAX]; /* NVML's index of the slice's device i; ascending */
};

static struct lock tables_lock = LOCK_INIT;
static struct table tables[NUMBERINGS]; /* under the lock */

bool nvml_shows_slice(void)
{
	nvml_bind();
	return state_get() == STATE_ENFORCING;
}

static bool narrows(void)
{
	return nvml_shows_slice() && slice_narrows(state_slice());
}

void nvml_devices_forked(void)
{
	lock_init(&tables_lock);
	memset(tables, 0, sizeof(tables));
}

/* -- what is in the slice ---------------------------------------------------------------------- */

bool nvml_device_uuid(nvmlDevice_t device, char uuid[VGPU_UUID_LEN])
{
	_Static_assert(VGPU_UUID_LEN >= NVML_DEVICE_UUID_V2_BUFFER_SIZE, "room for any");

	memset(uuid, 0, VGPU_UUID_LEN);
	return nvml.nvmlDeviceGetUUID(device, uuid, VGPU_UUID_LEN) == NVML_SUCCESS;
}

/* Drivers before 450 have no MIG instances, and the device is not one. */
static bool is_instance(nvmlDevice_t device)
{
	unsigned is = 0;

	return nvml.nvmlDeviceIsMigDeviceHandle(device, &is) == NVML_SUCCESS && is;
}

static bool slice_has(nvmlDevice_t device)
{
	char uuid[VGPU_UUID_LEN];

	return nvml_device_uuid(device, uuid) && slice_shows(state_slice(), uuid);
}

static bool slice_has_instance_of(nvmlDevice_t gpu)
{
	nvmlDevice_t instance;
	unsigned count = 0;

	if (nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, &count) != NVML_SUCCESS)
		return false;
	for (unsigned i = 0; i < count; i++)
		if (nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &instance) == NVML_SUCCESS &&
		    slice_has(instance))
			return true;
	return false;
}

static bool in_slice(nvmlDevice_t device)
{
	nvmlDevice_t gpu;

	if (slice_has(device))
		return true;
	if (!is_instance(device))
		return slice_has_instance_of(device);
	return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &gpu) == NVML_SUCCESS &&
	       slice_has(gpu);
}

/* -- tables ------------------------------------------------------------------------------------ */

static nvmlReturn_t real_count(enum numbering numbering, unsigned *ret_count)
{
	return numbering == NUMBERING_V1 ? nvml.nvmlDeviceGetCount(ret_count)
					 : nvml.nvmlDeviceGetCount_v2(ret_count);
}

static nvmlReturn_t real_handle(enum numbering numbering, unsigned index, nvmlDevice_t *ret_device)
{
	return numbering == NUMBERING_V1 ? nvml.nvmlDeviceGetHandleByIndex(index, ret_device)
					 : nvml.nvmlDeviceGetHandleByIndex_v2(index, ret_device);
}

/* A device for which NVML has no handle is lost, or one that the process may not use. */
static struct table make_table(enum numbering numbering, unsigned count)
{
	struct table table = {.made = true, .real_count = count};
	char uuid[VGPU_UUID_LEN];
	nvmlDevice_t device;

	for (unsigned i = 0; i < count && i < DEVICES_MAX; i++) {
		if (real_handle(numbering, i, &device) != NVML_SUCCESS ||
		    !nvml_device_uuid(device, uuid))
			table.made = false;
		else if (in_slice(device))
			table.real[table.count++] = (unsigned char)i;
	}
	return table;
}

static nvmlReturn_t get_table(enum numbering numbering, struct table *ret_table)
{
	unsigned count = 0;
	nvmlReturn_t result = real_count(numbering, &count);

	if (result != NVML_SUCCESS)
		return result;
	lock_acquire(&tables_lock);
	*ret_table = tables[numbering];
	lock_release(&tables_lock);
	if (ret_table->made && ret_table->real_count == count)
		return NVML_SUCCESS;
	*ret_table = make_table(numbering, count);
	lock_acquire(&tables_lock);
	tables[numbering] = *ret_table;
	lock_release(&tables_lock);
	return NVML_SUCCESS;
}

/* -- counting and numbering -------------------------------------------------------------------- */

static nvmlReturn_t get_count(enum numbering numbering, unsigned *count)
{
	struct table table;
	nvmlReturn_t result;

	if (!narrows() || !count)
		return real_count(numbering, count);
	result = get_table(numbering, &table);
	if (result == NVML_SUCCESS)
		*count = table.count;
	return result;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
	return get_count(NUMBERING_V1, deviceCount);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
	return get_count(NUMBERING_V2, deviceCount);
}

static nvmlReturn_t get_handle(enum numbering numbering, unsigned index, nvmlDevice_t *device)
{
	struct table table;
	nvmlReturn_t result;

	if (!narrows())
		return real_handle(numbering, index, device);
	result = get_table(numbering, &table);
	if (result != NVML_SUCCESS)
		return result;
	if (index >= table.count)
		return NVML_ERROR_INVALID_ARGUMENT;
	return real_handle(numbering, table.real[index], device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return get_handle(NUMBERING_V1, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	return get_handle(NUMBERING_V2, index, device);
}

/* The index of an instance is its place on its GPU, and is not translated. */
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	struct table table;
	unsigned real;
	nvmlReturn_t result;

	if (!narrows() || !index || is_instance(device))
		return nvml.nvmlDeviceGetIndex(device, index);
	result = nvml.nvmlDeviceGetIndex(device, &real);
	if (result == NVML_SUCCESS)
		result = get_table(NUMBERING_V2, &table);
	if (result != NVML_SUCCESS)
		return result;
	for (unsigned i = 0; i < table.count; i++)
		if (table.real[i] == real) {
			*index = i;
			return NVML_SUCCESS;
		}
	return NVML_ERROR_INVALID_ARGUMENT;
}

/* -- names ------------------------------------------------------------------------------------- */

/* NVML may have found a device. The caller gets it if it is in the slice. */
static nvmlReturn_t give(nvmlReturn_t result, const nvmlDevice_t *found, nvmlDevice_t *device)
{
	if (result != NVML_SUCCESS)
		return result;
	if (!in_slice(*found))
		return NVML_ERROR_NOT_FOUND;
	*device = *found;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	nvmlDevice_t found;

	if (!narrows() || !device)
		return nvml.nvmlDeviceGetHandleByUUID(uuid, device);
	return give(nvml.nvmlDeviceGetHandleByUUID(uuid, &found), &found, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
	nvmlDevice_t found;

	if (!narrows() || !device)
		return nvml.nvmlDeviceGetHandleByUUIDV(uuid, device);
	return give(nvml.nvmlDeviceGetHandleByUUIDV(uuid, &found), &found, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	nvmlDevice_t found;

	if (!narrows() || !device)
		return nvml.nvmlDeviceGetHandleBySerial(serial, device);
	return give(nvml.nvmlDeviceGetHandleBySerial(serial, &found), &found, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
	nvmlDevice_t found;

	if (!narrows() || !device)
		return nvml.nvmlDeviceGetHandleByPciBusId(pciBusId, device);
	return give(nvml.nvmlDeviceGetHandleByPciBusId(pciBusId, &found), &found, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
	nvmlDevice_t found;

	if (!narrows() || !device)
		return nvml.nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
	return give(nvml.nvmlDeviceGetHandleByPciBusId_v2(pciBusId, &found), &found, device);
}

/* -- nearness ---------------------------------------------------------------------------------- */

/* Gives the caller those of NVML's list that are in the slice. With *count 0, the caller asks only
 * for the number. */
static nvmlReturn_t give_list(const nvmlDevice_t *found, unsigned found_count, unsigned *count,
			      nvmlDevice_t *devices)
{
	unsigned room = *count, kept = 0;

	for (unsigned i = 0; i < found_count; i++) {
		if (!in_slice(found[i]))
			continue;
		if (kept < room)
			devices[kept] = found[i];
		kept++;
	}
	*count = room && room < kept ? room : kept;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
					      unsigned int *count, nvmlDevice_t *deviceArray)
{
	nvmlDevice_t found[DEVICES_MAX];
	unsigned found_count = 0;
	nvmlReturn_t result;

	if (!narrows() || !count || (*count && !deviceArray))
		return nvml.nvmlDeviceGetTopologyNearestGpus(device, level, count, deviceArray);
	result = nvml.nvmlDeviceGetTopologyNearestGpus(device, level, &found_count, NULL);
	found_count = found_count < DEVICES_MAX ? found_count : DEVICES_MAX;
	if (result == NVML_SUCCESS && found_count)
		result = nvml.nvmlDeviceGetTopologyNearestGpus(device, level, &found_count, found);
	return result == NVML_SUCCESS ? give_list(found, found_count, count, deviceArray) : result;
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpuNumber, unsigned int *count,
					 nvmlDevice_t *deviceArray)
{
	nvmlDevice_t found[DEVICES_MAX];
	unsigned found_count = 0;
	nvmlReturn_t result;

	if (!narrows() || !count || (*count && !deviceArray))
		return nvml.nvmlSystemGetTopologyGpuSet(cpuNumber, count, deviceArray);
	result = nvml.nvmlSystemGetTopologyGpuSet(cpuNumber, &found_count, NULL);
	found_count = found_count < DEVICES_MAX ? found_count : DEVICES_MAX;
	if (result == NVML_SUCCESS && found_count)
		result = nvml.nvmlSystemGetTopologyGpuSet(cpuNumber, &found_count, found);
	return result == NVML_SUCCESS ? give_list(found, found_count, count, deviceArray) : result;
}
