/* NVML is opened for the question and closed again. */
#include "gpus.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "nvml_library.h"
#include "size.h"

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

static int find_index(const struct gpus *all, const char *entry, const struct gpu **ret_gpu,
		      struct fault *fault)
{
	uint64_t index;

	if (number_parse(entry, UINT32_MAX, &index) || index >= all->count)
		return fault_set(fault, -EINVAL,
				 "there is no GPU %s: this machine has %u, counted from 0", entry,
				 all->count);
	*ret_gpu = &all->gpu[index];
	return 0;
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

static int add_entry(const struct gpus *all, const char *entry, struct gpus *selected,
		     struct fault *fault)
{
	const struct gpu *gpu = NULL;
	int error = entry[0] >= '0' && entry[0] <= '9' ? find_index(all, entry, &gpu, fault)
						       : find_uuid(all, entry, &gpu, fault);

	if (error)
		return error;
	if (gpus_by_uuid(selected, gpu->uuid))
		return fault_set(fault, -EINVAL, "GPU %s is listed twice: leave one", entry);
	selected->gpu[selected->count++] = *gpu;
	return 0;
}

int gpus_select(const struct gpus *all, const char *list, struct gpus *ret_selected,
		struct fault *fault)
{
	struct gpus selected;
	char entry[VGPU_UUID_LEN];

	memset(&selected, 0, sizeof(selected));
	if (strcmp(list, "all") == 0) {
		*ret_selected = *all;
		return 0;
	}
	for (;;) {
		size_t len = strcspn(list, ",");
		int error;

		if (len == 0 || len >= sizeof(entry))
			return fault_set(fault, -EINVAL,
					 "an entry of the list of GPUs is %s: write indices or "
					 "UUIDs with commas between them",
					 len ? "too long" : "empty");
		memcpy(entry, list, len);
		entry[len] = '\0';
		error = add_entry(all, entry, &selected, fault);
		if (error)
			return error;
		if (list[len] == '\0')
			break;
		list += len + 1;
	}
	*ret_selected = selected;
	return 0;
}
