/* NVML is opened for the question and closed again. */
#include "gpus.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "nvml_library.h"
#include "size.h"

#define ALL        "all"
#define DIGITS     "0123456789"
#define UUID_CHARS DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-"

struct nvml {
	void *handle;
	nvmlDeviceGetCount_v2_fn *count;
	nvmlDeviceGetHandleByIndex_v2_fn *by_index;
	nvmlDeviceGetUUID_fn *uuid;
	nvmlDeviceGetMemoryInfo_fn *memory;
	/* Older drivers may lack these. */
	nvmlSystemGetDriverVersion_fn *driver_version;
	nvmlSystemGetCudaDriverVersion_v2_fn *cuda_version;
	nvmlDeviceGetMigMode_fn *mig_mode;
	nvmlDeviceGetMigDeviceHandleByIndex_fn *instance;
	nvmlDeviceGetPersistenceMode_fn *persistence_mode;
	nvmlDeviceGetComputeMode_fn *compute_mode;
};

static bool find_functions(struct nvml *nvml)
{
	nvml->count = (nvmlDeviceGetCount_v2_fn *)dlsym(nvml->handle, "nvmlDeviceGetCount_v2");
	nvml->by_index = (nvmlDeviceGetHandleByIndex_v2_fn *)dlsym(nvml->handle,
								   "nvmlDeviceGetHandleByIndex_v2");
	nvml->uuid = (nvmlDeviceGetUUID_fn *)dlsym(nvml->handle, "nvmlDeviceGetUUID");
	nvml->memory = (nvmlDeviceGetMemoryInfo_fn *)dlsym(nvml->handle, "nvmlDeviceGetMemoryInfo");
	return nvml->count && nvml->by_index && nvml->uuid && nvml->memory;
}

static void find_more_functions(struct nvml *nvml)
{
	void *from = nvml->handle;

	nvml->driver_version =
		(nvmlSystemGetDriverVersion_fn *)dlsym(from, "nvmlSystemGetDriverVersion");
	nvml->cuda_version = (nvmlSystemGetCudaDriverVersion_v2_fn *)dlsym(
		from, "nvmlSystemGetCudaDriverVersion_v2");
	nvml->mig_mode = (nvmlDeviceGetMigMode_fn *)dlsym(from, "nvmlDeviceGetMigMode");
	nvml->instance = (nvmlDeviceGetMigDeviceHandleByIndex_fn *)dlsym(
		from, "nvmlDeviceGetMigDeviceHandleByIndex");
	nvml->persistence_mode =
		(nvmlDeviceGetPersistenceMode_fn *)dlsym(from, "nvmlDeviceGetPersistenceMode");
	nvml->compute_mode = (nvmlDeviceGetComputeMode_fn *)dlsym(from, "nvmlDeviceGetComputeMode");
}

static int open_nvml(struct nvml *nvml, struct fault *fault)
{
	int error;

	memset(nvml, 0, sizeof(*nvml));
	error = nvml_library_open(&nvml->handle, fault);
	if (error || find_functions(nvml))
		return error;
	nvml_library_close(nvml->handle);
	return nvml_library_lacks(fault);
}

static nvmlReturn_t ask_gpu(const struct nvml *nvml, unsigned index, struct gpu *ret_gpu)
{
	nvmlMemory_t memory;
	nvmlDevice_t device;
	nvmlReturn_t result = nvml->by_index(index, &device);

	if (result == NVML_SUCCESS)
		result = nvml->uuid(device, ret_gpu->uuid, sizeof(ret_gpu->uuid));
	if (result == NVML_SUCCESS)
		result = nvml->memory(device, &memory);
	if (result != NVML_SUCCESS)
		return result;
	ret_gpu->index = index;
	ret_gpu->memory_bytes = memory.total;
	return NVML_SUCCESS;
}

static int ask_all(const struct nvml *nvml, struct gpus *ret_gpus, struct fault *fault)
{
	unsigned count = 0;
	nvmlReturn_t result = nvml->count(&count);

	if (result == NVML_SUCCESS && count == 0)
		return fault_set(fault, -ENOENT,
				 "the NVIDIA driver has no GPU here: see whether nvidia-smi lists "
				 "any");
	memset(ret_gpus, 0, sizeof(*ret_gpus));
	for (unsigned i = 0; result == NVML_SUCCESS && i < count && i < GPUS_MAX; i++) {
		result = ask_gpu(nvml, i, &ret_gpus->gpu[i]);
		ret_gpus->count = i + 1;
	}
	if (result != NVML_SUCCESS)
		return fault_set(fault, -EIO,
				 "NVML does not tell what GPUs there are (error %d): see whether "
				 "nvidia-smi works here",
				 (int)result);
	return 0;
}

static void ask_instances(const struct nvml *nvml, nvmlDevice_t device, struct gpu_modes *modes)
{
	for (unsigned i = 0; nvml->instance && i < GPUS_INSTANCES_MAX; i++) {
		nvmlDevice_t instance;

		if (nvml->instance(device, i, &instance) == NVML_SUCCESS &&
		    nvml->uuid(instance, modes->instance[modes->instance_count], VGPU_UUID_LEN) ==
			    NVML_SUCCESS)
			modes->instance_count++;
	}
}

static void ask_modes(const struct nvml *nvml, unsigned index, struct gpu_modes *ret_modes)
{
	nvmlComputeMode_t compute;
	nvmlEnableState_t state;
	unsigned current, pending;
	nvmlDevice_t device;

	ret_modes->mig = ret_modes->persistence = ret_modes->compute = -1;
	if (nvml->by_index(index, &device) != NVML_SUCCESS)
		return;
	if (nvml->mig_mode && nvml->mig_mode(device, &current, &pending) == NVML_SUCCESS)
		ret_modes->mig = current == NVML_DEVICE_MIG_ENABLE;
	if (nvml->persistence_mode && nvml->persistence_mode(device, &state) == NVML_SUCCESS)
		ret_modes->persistence = state == NVML_FEATURE_ENABLED;
	if (nvml->compute_mode && nvml->compute_mode(device, &compute) == NVML_SUCCESS)
		ret_modes->compute = (int)compute;
	if (ret_modes->mig == 1)
		ask_instances(nvml, device, ret_modes);
}

static void ask_driver(struct nvml *nvml, unsigned gpu_count, struct gpus_driver *ret_driver)
{
	memset(ret_driver, 0, sizeof(*ret_driver));
	find_more_functions(nvml);
	if (nvml->driver_version)
		nvml->driver_version(ret_driver->version, sizeof(ret_driver->version));
	if (nvml->cuda_version)
		nvml->cuda_version(&ret_driver->cuda);
	for (unsigned i = 0; i < gpu_count; i++)
		ask_modes(nvml, i, &ret_driver->modes[i]);
}

int gpus_examine(struct gpus *ret_gpus, struct gpus_driver *ret_driver, struct fault *fault)
{
	struct nvml nvml;
	int error = open_nvml(&nvml, fault);

	if (error)
		return error;
	error = ask_all(&nvml, ret_gpus, fault);
	if (!error && ret_driver)
		ask_driver(&nvml, ret_gpus->count, ret_driver);
	nvml_library_close(nvml.handle);
	return error;
}

int gpus_find(struct gpus *ret_gpus, struct fault *fault)
{
	return gpus_examine(ret_gpus, NULL, fault);
}

const struct gpu *gpus_by_uuid(const struct gpus *gpus, const char *uuid)
{
	for (unsigned i = 0; i < gpus->count; i++)
		if (strcmp(gpus->gpu[i].uuid, uuid) == 0)
			return &gpus->gpu[i];
	return NULL;
}

/* -- lists ------------------------------------------------------------------------------------- */

/* The next entry of a list, as far as its form goes. */
struct entry {
	char text[VGPU_UUID_LEN];
	bool is_number;
	uint64_t first, last; /* of a number: one, or a range */
};

/* "2" or "0-3": 0, or -EINVAL with a fault. */
static int read_numbers(struct entry *entry, struct fault *fault)
{
	size_t len = strspn(entry->text, DIGITS);
	char first[VGPU_UUID_LEN];

	snprintf(first, sizeof(first), "%.*s", (int)len, entry->text);
	entry->is_number = true;
	if (number_parse(first, UINT32_MAX, &entry->first))
		return fault_set(fault, -EINVAL, "there is no GPU %s: it is too large a number",
				 entry->text);
	entry->last = entry->first;
	if (!entry->text[len])
		return 0;
	if (entry->text[len] != '-' || strspn(entry->text + len + 1, DIGITS) == 0 ||
	    entry->text[len + 1 + strspn(entry->text + len + 1, DIGITS)] ||
	    number_parse(entry->text + len + 1, UINT32_MAX, &entry->last))
		return fault_set(fault, -EINVAL,
				 "\"%s\" names no GPU: write an index such as 1, a range such as "
				 "0-2, or a UUID",
				 entry->text);
	if (entry->last < entry->first)
		return fault_set(fault, -EINVAL,
				 "the range of GPUs %s is empty: write the lower index first",
				 entry->text);
	return 0;
}

static int read_entry(const char *list, size_t len, struct entry *ret_entry, struct fault *fault)
{
	*ret_entry = (struct entry){.is_number = false};
	if (len == 0 || len >= sizeof(ret_entry->text))
		return fault_set(fault, -EINVAL,
				 "an entry of the list of GPUs is %s: write indices or UUIDs with "
				 "commas between them",
				 len ? "too long" : "empty");
	memcpy(ret_entry->text, list, len);
	if (strchr(DIGITS, ret_entry->text[0]))
		return read_numbers(ret_entry, fault);
	if (strspn(ret_entry->text, UUID_CHARS) != len || strcmp(ret_entry->text, ALL) == 0)
		return fault_set(fault, -EINVAL,
				 "\"%s\" names no GPU: write an index such as 1, a range such as "
				 "0-2, or a UUID (nvidia-smi -L lists them); \"" ALL
				 "\" stands alone",
				 ret_entry->text);
	return 0;
}

int gpus_check_list(const char *list, struct fault *fault)
{
	if (strcmp(list, ALL) == 0)
		return 0;
	for (;;) {
		size_t len = strcspn(list, ",");
		struct entry entry;
		int error = read_entry(list, len, &entry, fault);

		if (error || list[len] == '\0')
			return error;
		list += len + 1;
	}
}

static int find_uuid(const struct gpus *all, const char *entry, const struct gpu **ret_gpu,
		     struct fault *fault)
{
	size_t len = strlen(entry);
	unsigned found = 0;

	for (unsigned i = 0; i < all->count; i++)
		if (strncmp(all->gpu[i].uuid, entry, len) == 0) {
			*ret_gpu = &all->gpu[i];
			found++;
		}
	if (found == 1)
		return 0;
	if (found > 1)
		return fault_set(fault, -EINVAL,
				 "%u GPUs have a UUID that starts with %s: write more of it", found,
				 entry);
	return fault_set(fault, -EINVAL,
			 "there is no GPU \"%s\": write an index, a UUID (nvidia-smi -L lists "
			 "them), or all",
			 entry);
}

static int add(const struct gpu *gpu, struct gpus *selected, struct fault *fault)
{
	if (gpus_by_uuid(selected, gpu->uuid))
		return fault_set(fault, -EINVAL, "GPU %u (%s) is listed twice: leave one",
				 gpu->index, gpu->uuid);
	selected->gpu[selected->count++] = *gpu;
	return 0;
}

static int add_entry(const struct gpus *all, const struct entry *entry, struct gpus *selected,
		     struct fault *fault)
{
	const struct gpu *gpu = NULL;
	int error = 0;

	if (!entry->is_number) {
		error = find_uuid(all, entry->text, &gpu, fault);
		return error ? error : add(gpu, selected, fault);
	}
	if (entry->last >= all->count)
		return fault_set(fault, -EINVAL,
				 "there is no GPU %llu: this machine has %u, counted from 0",
				 (unsigned long long)entry->last, all->count);
	for (uint64_t i = entry->first; !error && i <= entry->last; i++)
		error = add(&all->gpu[i], selected, fault);
	return error;
}

int gpus_select(const struct gpus *all, const char *list, struct gpus *ret_selected,
		struct fault *fault)
{
	struct gpus selected;

	memset(&selected, 0, sizeof(selected));
	if (strcmp(list, ALL) == 0) {
		*ret_selected = *all;
		return 0;
	}
	for (;;) {
		size_t len = strcspn(list, ",");
		struct entry entry;
		int error = read_entry(list, len, &entry, fault);

		if (!error)
			error = add_entry(all, &entry, &selected, fault);
		if (error)
			return error;
		if (list[len] == '\0')
			break;
		list += len + 1;
	}
	*ret_selected = selected;
	return 0;
}
