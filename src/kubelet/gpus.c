/*
 * A GPU is healthy while NVML finds it by its UUID and reports its memory. For a GPU that fell off
 * the bus, or was removed from the machine, NVML does neither. Each look asks for the handle again,
 * because NVML may give another one to a GPU that was reset. A critical error makes a GPU unhealthy
 * until this program ends, because NVML does not report when the error is mended.
 */
#include "gpus.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvml_library.h"
#include "say.h"

struct gpus_library {
	void *handle;
	nvmlDeviceGetCount_v2_fn *count;
	nvmlDeviceGetHandleByIndex_v2_fn *by_index;
	nvmlDeviceGetHandleByUUID_fn *by_uuid;
	nvmlDeviceGetUUID_fn *uuid;
	nvmlDeviceGetMemoryInfo_fn *memory;
	/* Old drivers may lack these, and the pointers are NULL then. */
	nvmlDeviceGetMigMode_fn *mig_mode;
	nvmlDeviceGetMinorNumber_fn *minor;
	nvmlDeviceGetPciInfo_v3_fn *pci;
	nvmlDeviceGetName_fn *name;
};

#define ERRORS_A_LOOK 64 /* at most */

#define FIND(library, name) ((name##_fn *)dlsym((library)->handle, #name))

static bool find_functions(struct gpus_library *library)
{
	library->count = FIND(library, nvmlDeviceGetCount_v2);
	library->by_index = FIND(library, nvmlDeviceGetHandleByIndex_v2);
	library->by_uuid = FIND(library, nvmlDeviceGetHandleByUUID);
	library->uuid = FIND(library, nvmlDeviceGetUUID);
	library->memory = FIND(library, nvmlDeviceGetMemoryInfo);
	library->mig_mode = FIND(library, nvmlDeviceGetMigMode);
	library->minor = FIND(library, nvmlDeviceGetMinorNumber);
	library->pci = FIND(library, nvmlDeviceGetPciInfo_v3);
	library->name = FIND(library, nvmlDeviceGetName);
	return library->count && library->by_index && library->by_uuid && library->uuid &&
	       library->memory;
}

/* -- a GPU ------------------------------------------------------------------------------------- */

/* The GPU's NUMA node, or -1. sysfs writes the PCI domain with four digits, NVML's bus ID with
 * eight, so the path is made from the numbers. */
static int numa_node_of(const struct gpus_library *library, nvmlDevice_t device)
{
	nvmlPciInfo_t pci;
	char path[128];
	FILE *file;
	int node = -1;

	if (!library->pci || library->pci(device, &pci) != NVML_SUCCESS)
		return -1;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node", pci.domain,
		 pci.bus, pci.device);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%d", &node) != 1 || node < 0)
		node = -1;
	fclose(file);
	return node;
}

static bool is_mig(const struct gpus_library *library, nvmlDevice_t device)
{
	unsigned current, pending;

	return library->mig_mode && library->mig_mode(device, &current, &pending) == NVML_SUCCESS &&
	       current;
}

static bool ask(const struct gpus_library *library, unsigned index, struct gpu *ret_gpu)
{
	nvmlMemory_t memory;
	nvmlDevice_t device;
	unsigned minor;

	*ret_gpu = (struct gpu){.index = index, .minor = -1, .numa = -1};
	if (library->by_index(index, &device) != NVML_SUCCESS || is_mig(library, device) ||
	    library->uuid(device, ret_gpu->uuid, sizeof(ret_gpu->uuid)) != NVML_SUCCESS)
		return false;
	ret_gpu->healthy = library->memory(device, &memory) == NVML_SUCCESS;
	if (ret_gpu->healthy)
		ret_gpu->total_bytes = memory.total;
	if (library->minor && library->minor(device, &minor) == NVML_SUCCESS)
		ret_gpu->minor = (int)minor;
	if (library->name)
		library->name(device, ret_gpu->name, sizeof(ret_gpu->name) - 1);
	ret_gpu->numa = numa_node_of(library, device);
	return true;
}

static bool is_healthy(const struct gpus_library *library, const struct gpu *gpu)
{
	nvmlMemory_t memory;
	nvmlDevice_t device;

	return library->by_uuid(gpu->uuid, &device) == NVML_SUCCESS &&
	       library->memory(device, &memory) == NVML_SUCCESS;
}

static struct gpu *find(struct gpus *gpus, const char *uuid)
{
	for (unsigned i = 0; i < gpus->count; i++)
		if (!strcmp(gpus->gpu[i].uuid, uuid))
			return &gpus->gpu[i];
	return NULL;
}

/* Reads some errors from NVML. A GPU that has one error has many, so the rest is left for the
 * next look. */
static void read_errors(struct gpus *gpus)
{
	char uuid[VGPU_UUID_LEN];
	unsigned xid;

	for (int i = 0; gpus->xids && i < ERRORS_A_LOOK && xids_next(gpus->xids, uuid, &xid); i++) {
		struct gpu *gpu = find(gpus, uuid);

		if (gpu && !gpu->xid && !xids_is_ignored(gpus->ignored, xid))
			gpu->xid = xid;
	}
}

/* -- all of them ------------------------------------------------------------------------------- */

/* Asks NVML for events of critical errors. A GPU without such events is judged by NVML's
 * answers alone. */
static void listen(struct gpus *gpus)
{
	gpus->xids = xids_open(gpus->library->handle);
	for (unsigned i = 0; gpus->xids && i < gpus->count; i++)
		xids_listen(gpus->xids, gpus->gpu[i].uuid);
}

static int find_gpus(struct gpus *gpus, struct fault *fault)
{
	unsigned count = 0;

	if (gpus->library->count(&count) != NVML_SUCCESS)
		return fault_set(fault, -EIO,
				 "NVML does not count the GPUs: see whether nvidia-smi works here");
	for (unsigned i = 0; i < count; i++) {
		struct gpu gpu;

		if (gpus->count < VGPU_DEVICES_MAX && ask(gpus->library, i, &gpu))
			gpus->gpu[gpus->count++] = gpu;
		else
			gpus->left_out++;
	}
	listen(gpus);
	return 0;
}

static void say_unhealthy(const struct gpus *gpus)
{
	for (unsigned i = 0; i < gpus->count; i++) {
		const struct gpu *gpu = &gpus->gpu[i];

		if (gpu->xid)
			say(LOG_ERR,
			    "GPU %u (%s) has had the error XID %u: it gets no new containers until "
			    "it is reset and this program is started again",
			    gpu->index, gpu->uuid, gpu->xid);
		else if (!gpu->healthy)
			say(LOG_ERR,
			    "NVML does not answer for GPU %u (%s): it gets no new containers",
			    gpu->index, gpu->uuid);
	}
}

int gpus_open(struct gpus *ret_gpus, const struct xids_ignored *ignored, struct fault *fault)
{
	struct gpus gpus = {.library = calloc(1, sizeof(*gpus.library)), .ignored = ignored};
	int error;

	if (!gpus.library)
		return fault_set(fault, -ENOMEM, "there is no memory to open NVML");
	error = nvml_library_open(&gpus.library->handle, fault);
	if (error) {
		free(gpus.library);
		return error;
	}
	error = find_functions(gpus.library) ? find_gpus(&gpus, fault) : nvml_library_lacks(fault);
	if (error) {
		gpus_close(&gpus);
		return error;
	}
	say_unhealthy(&gpus);
	*ret_gpus = gpus;
	return 0;
}

void gpus_close(struct gpus *gpus)
{
	if (gpus->library) {
		xids_close(gpus->xids);
		nvml_library_close(gpus->library->handle);
		free(gpus->library);
	}
	gpus->library = NULL;
}

bool gpus_look(struct gpus *gpus)
{
	bool changed = false;

	read_errors(gpus);
	for (unsigned i = 0; i < gpus->count; i++) {
		bool healthy = !gpus->gpu[i].xid && is_healthy(gpus->library, &gpus->gpu[i]);

		changed |= healthy != gpus->gpu[i].healthy;
		gpus->gpu[i].healthy = healthy;
	}
	if (changed) {
		say(LOG_NOTICE, "the health of GPUs has changed");
		say_unhealthy(gpus);
	}
	return changed;
}
