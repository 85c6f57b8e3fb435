/*
 * The simulated NVML's processes: those of the shared state that have a context on the GPU, whoever
 * they belong to.
 *
 *   VGPU_SIM_NVML_PIDS   foreign: process lists have each pid plus 1000000, as if they were of
 * another pid namespace; none: they are empty
 */
#include "nvml_calls.h"

#include <stdlib.h>
#include <string.h>

enum {
	FOREIGN_PIDS = 1000000,
	PROCESSES_MAX = 1024,
};

/* The processes on the GPU with the pids to be shown. */
static unsigned processes_get(unsigned gpu, struct state_process list[PROCESSES_MAX])
{
	const char *pids = getenv("VGPU_SIM_NVML_PIDS");

	if (pids && !strcmp(pids, "none"))
		return 0;
	unsigned count = state_processes(gpu, list, PROCESSES_MAX);
	if (pids && !strcmp(pids, "foreign")) {
		for (unsigned i = 0; i < count; i++)
			list[i].pid += FOREIGN_PIDS;
	}
	return count;
}

/*
 * NVML's way with sizes: *count is the room on entry and the number of processes on return; too
 * little room is an error, and then nothing but the number is written. `store` writes one into the
 * caller's array.
 */
static nvmlReturn_t
processes_store(const char *function, nvmlDevice_t device, unsigned *count, void *infos,
		void (*store)(void *infos, unsigned i, const struct state_process *process))
{
	static struct state_process list[PROCESSES_MAX]; /* lock */
	nvmlReturn_t result = nvml_enter(function);
	unsigned gpu;

	if (result)
		return result;
	if (!nvml_gpu(device, count, &gpu))
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	unsigned room = *count, found = processes_get(gpu, list);
	*count = found;
	if (found > room)
		return nvml_leave(NVML_ERROR_INSUFFICIENT_SIZE);
	if (found && !infos)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	for (unsigned i = 0; i < found; i++)
		store(infos, i, &list[i]);
	return nvml_leave(NVML_SUCCESS);
}

static void store_v1(void *infos, unsigned i, const struct state_process *process)
{
	((nvmlProcessInfo_v1_t *)infos)[i] = (nvmlProcessInfo_v1_t){
		.pid = process->pid,
		.usedGpuMemory = process->memory_bytes,
	};
}

static void store_v2(void *infos, unsigned i, const struct state_process *process)
{
	((nvmlProcessInfo_v2_t *)infos)[i] = (nvmlProcessInfo_v2_t){
		.pid = process->pid,
		.usedGpuMemory = process->memory_bytes,
		.gpuInstanceId = UINT32_MAX,
		.computeInstanceId = UINT32_MAX,
	};
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
						  nvmlProcessInfo_v1_t *infos)
{
	return processes_store(__func__, device, infoCount, infos, store_v1);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount,
						     nvmlProcessInfo_v2_t *infos)
{
	return processes_store(__func__, device, infoCount, infos, store_v2);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
						     nvmlProcessInfo_t *infos)
{
	return processes_store(__func__, device, infoCount, infos, store_v2);
}
