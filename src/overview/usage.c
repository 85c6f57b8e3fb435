/*
 * If the driver lacks a function of NVML, or the function fails, only its figures are not
 * known. A process that is in several of NVML's lists (compute, graphics, MPS) has one entry.
 */
#include "usage.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "nvml_library.h"

#define SPARE 16 /* space for processes that start between two calls for the same list */
#define LISTS 3  /* compute, graphics and MPS */

struct usage_source {
	void *library;
	nvmlDeviceGetCount_v2_fn *count;
	nvmlDeviceGetHandleByIndex_v2_fn *by_index;
	nvmlDeviceGetUUID_fn *uuid;
	nvmlDeviceGetMemoryInfo_fn *memory;
	/* Older drivers may lack these. */
	nvmlDeviceGetMemoryInfo_v2_fn *memory_v2;
	nvmlDeviceGetName_fn *name;
	nvmlDeviceGetUtilizationRates_fn *utilization;
	nvmlDeviceGetProcessUtilization_fn *samples;
	nvmlDeviceGetComputeRunningProcesses_v3_fn *list[LISTS]; /* all have this type */
	uint64_t looked_us; /* the last look's time by CLOCK_REALTIME; 0: there was none */
};

/* -- opening ----------------------------------------------------------------------------------- */

#define FIND(source, name) ((name##_fn *)dlsym((source)->library, #name))

/* Finds the function of that list: version 3, or else version 2, whose layout is the same. */
static nvmlDeviceGetComputeRunningProcesses_v3_fn *find_list(void *library, const char *newer,
							     const char *older)
{
	void *found = dlsym(library, newer);

	return (nvmlDeviceGetComputeRunningProcesses_v3_fn *)(found ? found
								    : dlsym(library, older));
}

/* Finds NVML's functions. False: a function is missing that vgpu needs. */
static bool find_functions(struct usage_source *source)
{
	source->count = FIND(source, nvmlDeviceGetCount_v2);
	source->by_index = FIND(source, nvmlDeviceGetHandleByIndex_v2);
	source->uuid = FIND(source, nvmlDeviceGetUUID);
	source->memory = FIND(source, nvmlDeviceGetMemoryInfo);
	source->memory_v2 = FIND(source, nvmlDeviceGetMemoryInfo_v2);
	source->name = FIND(source, nvmlDeviceGetName);
	source->utilization = FIND(source, nvmlDeviceGetUtilizationRates);
	source->samples = FIND(source, nvmlDeviceGetProcessUtilization);
	source->list[0] = find_list(source->library, "nvmlDeviceGetComputeRunningProcesses_v3",
				    "nvmlDeviceGetComputeRunningProcesses_v2");
	source->list[1] = find_list(source->library, "nvmlDeviceGetGraphicsRunningProcesses_v3",
				    "nvmlDeviceGetGraphicsRunningProcesses_v2");
	source->list[2] = find_list(source->library, "nvmlDeviceGetMPSComputeRunningProcesses_v3",
				    "nvmlDeviceGetMPSComputeRunningProcesses_v2");
	return source->count && source->by_index && source->uuid && source->memory;
}

struct usage_source *usage_open(struct fault *fault)
{
	struct usage_source *source = calloc(1, sizeof(*source));

	if (!source) {
		fault_set(fault, -ENOMEM, "there is no memory to open NVML");
		return NULL;
	}
	if (nvml_library_open(&source->library, fault) == 0) {
		if (find_functions(source))
			return source;
		nvml_library_lacks(fault);
		nvml_library_close(source->library);
	}
	free(source);
	return NULL;
}

void usage_close(struct usage_source *source)
{
	if (!source)
		return;
	nvml_library_close(source->library);
	free(source);
}

/* -- processes --------------------------------------------------------------------------------- */

static struct usage_process *find_process(const struct usage_gpu *gpu, unsigned pid)
{
	for (unsigned i = 0; i < gpu->process_count; i++)
		if (gpu->process[i].pid == pid)
			return &gpu->process[i];
	return NULL;
}

/* Adds the processes that the GPU does not have yet. */
static void add_processes(struct usage_gpu *gpu, const nvmlProcessInfo_t *infos, unsigned count)
{
	struct usage_process *more =
		realloc(gpu->process, (gpu->process_count + count) * sizeof(*more));

	if (!more)
		return;
	gpu->process = more;
	for (unsigned i = 0; i < count; i++)
		if (!find_process(gpu, infos[i].pid))
			gpu->process[gpu->process_count++] = (struct usage_process){
				.pid = infos[i].pid,
				.bytes = infos[i].usedGpuMemory == NVML_VALUE_NOT_AVAILABLE
						 ? USAGE_UNKNOWN_BYTES
						 : infos[i].usedGpuMemory,
				.busy_pct = -1,
			};
}

/* Adds the processes of one of NVML's lists. */
static void ask_list(nvmlDeviceGetComputeRunningProcesses_v3_fn *list, nvmlDevice_t device,
		     struct usage_gpu *gpu)
{
	nvmlProcessInfo_t *infos = NULL;
	unsigned count = 0;
	nvmlReturn_t result = list ? list(device, &count, NULL) : NVML_ERROR_FUNCTION_NOT_FOUND;

	for (int tries = 0; result == NVML_ERROR_INSUFFICIENT_SIZE && tries < 3; tries++) {
		nvmlProcessInfo_t *more;

		count += SPARE;
		more = realloc(infos, count * sizeof(*infos));
		if (!more)
			break;
		infos = more;
		result = list(device, &count, infos);
	}
	if (result == NVML_SUCCESS && infos && count > 0)
		add_processes(gpu, infos, count);
	free(infos);
}

/* Sets each process's share to the mean of its samples, or to 0 if it has none. */
static void keep_samples(struct usage_gpu *gpu, const nvmlProcessUtilizationSample_t *samples,
			 unsigned count)
{
	for (unsigned p = 0; p < gpu->process_count; p++) {
		unsigned sum = 0, n = 0;

		for (unsigned i = 0; i < count; i++)
			if (samples[i].pid == gpu->process[p].pid && samples[i].smUtil <= 100) {
				sum += samples[i].smUtil;
				n++;
			}
		gpu->process[p].busy_pct = n ? (int)((sum + n / 2) / n) : 0;
	}
}

/* Asks for the processes' shares of the GPU's time since then. since_us is by CLOCK_REALTIME. */
static void ask_samples(const struct usage_source *source, nvmlDevice_t device, uint64_t since_us,
			struct usage_gpu *gpu)
{
	nvmlProcessUtilizationSample_t *samples = NULL;
	unsigned count = 0;
	nvmlReturn_t result = source->samples ? source->samples(device, NULL, &count, since_us)
					      : NVML_ERROR_FUNCTION_NOT_FOUND;

	if (result == NVML_ERROR_INSUFFICIENT_SIZE) {
		count += SPARE;
		samples = calloc(count, sizeof(*samples));
		if (samples)
			result = source->samples(device, samples, &count, since_us);
	}
	gpu->knows_busy = (result == NVML_SUCCESS && samples) || result == NVML_ERROR_NOT_FOUND;
	if (gpu->knows_busy)
		keep_samples(gpu, samples, result == NVML_SUCCESS ? count : 0);
	free(samples);
}

/* -- devices ----------------------------------------------------------------------------------- */

static void ask_memory(const struct usage_source *source, nvmlDevice_t device,
		       struct usage_gpu *gpu)
{
	nvmlMemory_v2_t memory_v2 = {.version = NVML_MEMORY_V2};
	nvmlMemory_t memory;

	/* Version 2 does not count the driver's reserved memory as used, as nvidia-smi does not. */
	if (source->memory_v2 && source->memory_v2(device, &memory_v2) == NVML_SUCCESS) {
		gpu->total_bytes = memory_v2.total;
		gpu->used_bytes = memory_v2.used;
	} else if (source->memory(device, &memory) == NVML_SUCCESS) {
		gpu->total_bytes = memory.total;
		gpu->used_bytes = memory.used;
	}
}

/* Asks for all figures of a GPU. False: NVML has no GPU of that index, or it does not answer. */
static bool ask_gpu(const struct usage_source *source, unsigned index, uint64_t since_us,
		    struct usage_gpu *ret_gpu)
{
	nvmlUtilization_t utilization;
	nvmlDevice_t device;

	memset(ret_gpu, 0, sizeof(*ret_gpu));
	if (source->by_index(index, &device) != NVML_SUCCESS ||
	    source->uuid(device, ret_gpu->uuid, sizeof(ret_gpu->uuid)) != NVML_SUCCESS)
		return false;
	ret_gpu->index = index;
	ret_gpu->busy_pct = -1;
	if (source->name)
		source->name(device, ret_gpu->name, sizeof(ret_gpu->name));
	if (source->utilization && source->utilization(device, &utilization) == NVML_SUCCESS &&
	    utilization.gpu <= 100)
		ret_gpu->busy_pct = (int)utilization.gpu;
	ask_memory(source, device, ret_gpu);
	for (unsigned i = 0; i < LISTS; i++)
		ask_list(source->list[i], device, ret_gpu);
	ask_samples(source, device, since_us, ret_gpu);
	return true;
}

void usage_take(struct usage_source *source, struct usage *ret_usage)
{
	uint64_t now_us = clock_wall_ns() / NS_PER_US, second_us = NS_PER_S / NS_PER_US;
	uint64_t since_us = source->looked_us ? source->looked_us : now_us - second_us;
	unsigned count = 0;

	memset(ret_usage, 0, sizeof(*ret_usage));
	if (source->count(&count) == NVML_SUCCESS && count > 0)
		ret_usage->gpu = calloc(count, sizeof(*ret_usage->gpu));
	for (unsigned i = 0; ret_usage->gpu && i < count; i++)
		if (ask_gpu(source, i, since_us, &ret_usage->gpu[ret_usage->gpu_count]))
			ret_usage->gpu_count++;
	source->looked_us = now_us;
}

void usage_free(struct usage *usage)
{
	for (unsigned i = 0; i < usage->gpu_count; i++)
		free(usage->gpu[i].process);
	free(usage->gpu);
	*usage = (struct usage){0, NULL};
}
