/*
 * The simulated NVML's processes: those of the shared state that have a context on the GPU,
 * whichever user they belong to. A list has their pids in the caller's pid namespace, and leaves
 * out processes that are not in that namespace (pids.h).
 *
 *   VGPU_SIM_NVML_PIDS     foreign: process lists have each pid plus 1000000, as if they were of
 *                          another pid namespace; others: the same, without the caller; swapped:
 *                          the caller and the first other process have each other's pid; none:
 *                          lists are empty
 *   VGPU_SIM_NVML_LISTS    all: the lists of graphics and MPS processes are the same as the list of
 *                          compute processes; otherwise they are empty
 *   VGPU_SIM_NVML_FIGURES  none: no process's memory is known
 *   VGPU_SIM_NVML_MANY     how many more processes there are on every GPU
 *
 * Every process is reported to use the GPU. A figure that only has to differ from process to
 * process is the pid.
 */
#include "nvml_calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	FOREIGN_PIDS = 1000000,
	MANY_PIDS = 100000000,
	PROCESSES_MAX = 4096,
};

/* The modes of nvmlProcessDetailList_t. */
enum mode { COMPUTE, GRAPHICS, MPS_COMPUTE, MODES };

/* Inserts invented processes before the `count` real ones (VGPU_SIM_NVML_MANY). */
static unsigned many_add(struct machine_process list[PROCESSES_MAX], unsigned count)
{
	const char *text = getenv("VGPU_SIM_NVML_MANY");
	unsigned many = text ? (unsigned)strtoul(text, NULL, 10) : 0;

	if (!many || count > PROCESSES_MAX || many > PROCESSES_MAX - count)
		return count;
	memmove(list + many, list, count * sizeof *list);
	for (unsigned i = 0; i < many; i++)
		list[i] = (struct machine_process){.pid = MANY_PIDS + i, .memory_bytes = 1 << 20};
	return count + many;
}

static unsigned caller_remove(struct machine_process list[PROCESSES_MAX], unsigned count)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < count; i++)
		if (list[i].pid != (unsigned)getpid())
			list[kept++] = list[i];
	return kept;
}

static void caller_swap(struct machine_process list[PROCESSES_MAX], unsigned count)
{
	unsigned caller = count, other = count;

	for (unsigned i = count; i-- > 0;)
		*(list[i].pid == (unsigned)getpid() ? &caller : &other) = i;
	if (caller == count || other == count)
		return;
	list[caller].pid = list[other].pid;
	list[other].pid = (unsigned)getpid();
}

/* Lists the processes on the GPU, with the pids that are shown. */
static unsigned processes_get(enum mode mode, unsigned gpu,
			      struct machine_process list[PROCESSES_MAX])
{
	const char *pids = getenv("VGPU_SIM_NVML_PIDS"), *lists = getenv("VGPU_SIM_NVML_LISTS");

	if (pids && !strcmp(pids, "none"))
		return 0;
	if (mode != COMPUTE && (!lists || strcmp(lists, "all")))
		return 0;
	unsigned count = machine_processes(gpu, list, PROCESSES_MAX);
	if (pids && !strcmp(pids, "others"))
		count = caller_remove(list, count);
	if (pids && !strcmp(pids, "swapped"))
		caller_swap(list, count);
	if (pids && (!strcmp(pids, "foreign") || !strcmp(pids, "others"))) {
		for (unsigned i = 0; i < count; i++)
			list[i].pid += FOREIGN_PIDS;
	}
	count = many_add(list, count);
	const char *figures = getenv("VGPU_SIM_NVML_FIGURES");
	if (figures && !strcmp(figures, "none")) {
		for (unsigned i = 0; i < count; i++)
			list[i].memory_bytes = NVML_VALUE_NOT_AVAILABLE;
	}
	return count;
}

/*
 * Answers a list by NVML's rules for sizes. *count is the size of the caller's array, and the
 * number of processes on return. If the array is too small, that is an error, and only the number
 * is written. `store` writes one process into the array. The caller has called nvml_enter.
 */
static nvmlReturn_t
processes_store(enum mode mode, nvmlDevice_t device, unsigned *count, void *infos,
		void (*store)(void *infos, unsigned i, const struct machine_process *process))
{
	static struct machine_process list[PROCESSES_MAX]; /* the lock */
	unsigned gpu;

	if (!nvml_gpu(device, count, &gpu))
		return NVML_ERROR_INVALID_ARGUMENT;
	unsigned room = *count, found = processes_get(mode, gpu, list);
	*count = found;
	if (found > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	if (found && !infos)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < found; i++)
		store(infos, i, &list[i]);
	return NVML_SUCCESS;
}

static void store_v1(void *infos, unsigned i, const struct machine_process *process)
{
	((nvmlProcessInfo_v1_t *)infos)[i] = (nvmlProcessInfo_v1_t){
		.pid = process->pid,
		.usedGpuMemory = process->memory_bytes,
	};
}

static void store_v2(void *infos, unsigned i, const struct machine_process *process)
{
	((nvmlProcessInfo_v2_t *)infos)[i] = (nvmlProcessInfo_v2_t){
		.pid = process->pid,
		.usedGpuMemory = process->memory_bytes,
		.gpuInstanceId = UINT32_MAX,
		.computeInstanceId = UINT32_MAX,
	};
}

#define LIST(name, mode, record, store)                                                  \
	nvmlReturn_t name(nvmlDevice_t device, unsigned int *infoCount, record *infos)   \
	{                                                                                \
		nvmlReturn_t result = nvml_enter(__func__);                              \
                                                                                         \
		if (!result)                                                             \
			result = nvml_leave(                                             \
				processes_store(mode, device, infoCount, infos, store)); \
		return result;                                                           \
	}

LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTE, nvmlProcessInfo_v1_t, store_v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, nvmlProcessInfo_v2_t, store_v2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, nvmlProcessInfo_t, store_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, nvmlProcessInfo_v1_t, store_v1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, nvmlProcessInfo_v2_t, store_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, nvmlProcessInfo_t, store_v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, MPS_COMPUTE, nvmlProcessInfo_v1_t, store_v1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS_COMPUTE, nvmlProcessInfo_v2_t, store_v2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS_COMPUTE, nvmlProcessInfo_t, store_v2)

static void store_detail(void *infos, unsigned i, const struct machine_process *process)
{
	((nvmlProcessDetail_v1_t *)infos)[i] = (nvmlProcessDetail_v1_t){
		.pid = process->pid,
		.usedGpuMemory = process->memory_bytes,
		.gpuInstanceId = UINT32_MAX,
		.computeInstanceId = UINT32_MAX,
	};
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
						   nvmlProcessDetailList_t *plist)
{
	nvmlReturn_t result = nvml_enter(__func__);

	if (result)
		return result;
	if (!plist || plist->mode >= MODES)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	if (plist->version != NVML_PROCESS_DETAIL_LIST_V1)
		return nvml_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	return nvml_leave(processes_store((enum mode)plist->mode, device,
					  &plist->numProcArrayEntries, plist->procArray,
					  store_detail));
}

/* -- utilization: of the last second, as the timeline has it -- */

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void store_sample(void *infos, unsigned i, const struct machine_process *process)
{
	((nvmlProcessUtilizationSample_t *)infos)[i] = (nvmlProcessUtilizationSample_t){
		.pid = process->pid,
		.timeStamp = now_us(),
		.smUtil = process->busy_pct,
	};
}

static void store_info(void *infos, unsigned i, const struct machine_process *process)
{
	((nvmlProcessUtilizationInfo_v1_t *)infos)[i] = (nvmlProcessUtilizationInfo_v1_t){
		.pid = process->pid,
		.timeStamp = now_us(),
		.smUtil = process->busy_pct,
	};
}

/* An empty list is an error of its own. Without an array the caller asks only for the number. */
static nvmlReturn_t
samples_store(nvmlDevice_t device, unsigned *count, void *infos, uint64_t since_us,
	      void (*store)(void *infos, unsigned i, const struct machine_process *process))
{
	if (count && !infos)
		*count = 0;
	nvmlReturn_t result = processes_store(COMPUTE, device, count, infos, store);

	if ((!result && !*count) || (result != NVML_ERROR_INVALID_ARGUMENT && since_us > now_us()))
		return NVML_ERROR_NOT_FOUND;
	return result;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
					     nvmlProcessUtilizationSample_t *utilization,
					     unsigned int *processSamplesCount,
					     unsigned long long lastSeenTimeStamp)
{
	nvmlReturn_t result = nvml_enter(__func__);

	return result ? result
		      : nvml_leave(samples_store(device, processSamplesCount, utilization,
						 lastSeenTimeStamp, store_sample));
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
						   nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
	nvmlReturn_t result = nvml_enter(__func__);

	if (result)
		return result;
	if (!procesesUtilInfo)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	if (procesesUtilInfo->version != NVML_PROCESSES_UTILIZATION_V1)
		return nvml_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	return nvml_leave(samples_store(device, &procesesUtilInfo->processSamplesCount,
					procesesUtilInfo->procUtilArray,
					procesesUtilInfo->lastSeenTimeStamp, store_info));
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	nvmlReturn_t result = nvml_enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!nvml_gpu(device, utilization, &gpu))
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	*utilization = (nvmlUtilization_t){.gpu = machine_busy_pct(gpu)};
	return nvml_leave(NVML_SUCCESS);
}

/* -- accounting: of the living ------------------------------------------------------------------
 */

static void store_pid(void *infos, unsigned i, const struct machine_process *process)
{
	((unsigned *)infos)[i] = process->pid;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
					 unsigned int *pids)
{
	nvmlReturn_t result = nvml_enter(__func__);

	return result ? result
		      : nvml_leave(processes_store(COMPUTE, device, count, pids, store_pid));
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
					  nvmlAccountingStats_t *stats)
{
	static struct machine_process list[PROCESSES_MAX]; /* the lock */
	nvmlReturn_t result = nvml_enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!nvml_gpu(device, stats, &gpu))
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	unsigned count = processes_get(COMPUTE, gpu, list);
	for (unsigned i = 0; i < count; i++) {
		if (list[i].pid != pid)
			continue;
		*stats = (nvmlAccountingStats_t){.gpuUtilization = list[i].busy_pct,
						 .maxMemoryUsage = list[i].memory_bytes,
						 .isRunning = 1};
		return nvml_leave(NVML_SUCCESS);
	}
	return nvml_leave(NVML_ERROR_NOT_FOUND);
}

/* The name is the first argument of the process, cut to the length of the buffer. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	nvmlReturn_t result = nvml_enter(__func__);
	char path[32];

	if (result)
		return result;
	if (!name || !length)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return nvml_leave(NVML_ERROR_NOT_FOUND);
	ssize_t got = read(file, name, length - 1);
	close(file);
	name[got < 0 ? 0 : got] = '\0';
	return nvml_leave(NVML_SUCCESS);
}
