/*
 * The simulated NVML: the machine as the shared state has it. It needs no CUDA in the process,
 * holds no slot, and does not care for CUDA_VISIBLE_DEVICES.
 *
 *   VGPU_SIM_NVML_PIDS   foreign: process lists have each pid plus 1000000, as if they were of
 * another pid namespace; none: they are empty
 *
 * nvmlInit counts; between the last nvmlShutdown and the next nvmlInit nothing else works. One lock
 * is held for the whole of every call. A forked child has what its parent had, over a file of its
 * own.
 */
#include "nvml_abi.h"

#include "config.h"
#include "faults.h"
#include "state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#pragma GCC visibility push(default)
#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#define NVML_SIM(name, parameters)             nvmlReturn_t name parameters;
#include "nvml.def"
#pragma GCC visibility pop

enum {
	FOREIGN_PIDS = 1000000,
	PROCESSES_MAX = 1024,
};

struct nvmlDevice_st {
	char unused; /* a handle is the address of one of these, by GPU */
};

typedef void (*function_pointer)(void);

static const struct {
	const char *name;
	function_pointer function; /* a row without a definition does not link */
} exports[] = {
#define NVML_HOOK(name, parameters, arguments) {#name, (function_pointer)name},
#define NVML_CALL(name, parameters)            {#name, (function_pointer)name},
#define NVML_SIM(name, parameters)             {#name, (function_pointer)name},
#include "nvml.def"
};

static struct nvmlDevice_st handles[SIM_GPUS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned inits; /* lock */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

bool library_exports(const char *name)
{
	for (size_t i = 0; i < sizeof exports / sizeof *exports; i++) {
		if (exports[i].function && !strcmp(exports[i].name, name))
			return true;
	}
	return false;
}

static void forked(void)
{
	pthread_mutex_init(&lock, NULL);
	state_forked();
}

static void fork_watch(void)
{
	pthread_atfork(NULL, NULL, forked);
}

static nvmlReturn_t init(const char *function)
{
	nvmlReturn_t result = (nvmlReturn_t)faults_enter(function);

	if (result)
		return result;
	pthread_once(&fork_once, fork_watch);
	pthread_mutex_lock(&lock);
	if (state_attach())
		result = NVML_ERROR_DRIVER_NOT_LOADED;
	else
		inits++;
	pthread_mutex_unlock(&lock);
	return result;
}

nvmlReturn_t nvmlInit(void)
{
	return init(__func__);
}

nvmlReturn_t nvmlInit_v2(void)
{
	return init(__func__);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	return init(__func__);
}

/*
 * First in every function, with __func__: on success the lock is held, and leave() is to follow.
 * Attaching does something only in a forked child.
 */
static nvmlReturn_t enter(const char *function)
{
	nvmlReturn_t result = (nvmlReturn_t)faults_enter(function);

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	if (inits && !state_attach())
		return NVML_SUCCESS;
	pthread_mutex_unlock(&lock);
	return inits ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t leave(nvmlReturn_t result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t result = enter(__func__);

	if (result)
		return result;
	if (!--inits)
		state_detach();
	return leave(NVML_SUCCESS);
}

/* Handle and out parameter are good; the GPU. */
static bool gpu_of(nvmlDevice_t device, const void *out, unsigned *ret_gpu)
{
	if (!out || device < handles || device >= handles + config_get()->count)
		return false;
	*ret_gpu = (unsigned)(device - handles);
	return true;
}

static nvmlReturn_t text_copy(const char *text, char *out, unsigned length)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

static nvmlReturn_t count_get(const char *function, unsigned *ret_count)
{
	nvmlReturn_t result = enter(function);

	if (result)
		return result;
	if (!ret_count)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	*ret_count = config_get()->count;
	return leave(NVML_SUCCESS);
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
	nvmlReturn_t result = enter(function);

	if (result)
		return result;
	if (!ret_device || index >= config_get()->count)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	*ret_device = &handles[index];
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return handle_get(__func__, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	return handle_get(__func__, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	nvmlReturn_t result = enter(__func__);
	char text[SIM_UUID_TEXT];

	if (result)
		return result;
	if (!uuid || !device)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	for (unsigned i = 0; i < config_get()->count; i++) {
		config_uuid_text(i, text);
		if (!strcasecmp(text, uuid)) {
			*device = &handles[i];
			return leave(NVML_SUCCESS);
		}
	}
	return leave(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	nvmlReturn_t result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!gpu_of(device, index, &gpu))
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	*index = gpu;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	nvmlReturn_t result = enter(__func__);
	char text[SIM_UUID_TEXT];
	unsigned gpu;

	if (result)
		return result;
	if (!gpu_of(device, uuid, &gpu))
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	config_uuid_text(gpu, text);
	return leave(text_copy(text, uuid, length));
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	nvmlReturn_t result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!gpu_of(device, name, &gpu))
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	return leave(text_copy(SIM_GPU_NAME, name, length));
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlReturn_t result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!gpu_of(device, memory, &gpu))
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	memory->total = config_get()->total_bytes[gpu];
	memory->used = state_used_bytes(gpu);
	memory->free = memory->total - memory->used;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlReturn_t result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!gpu_of(device, memory, &gpu))
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	if (memory->version != NVML_MEMORY_V2)
		return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	memory->total = config_get()->total_bytes[gpu];
	memory->used = state_used_bytes(gpu);
	memory->reserved = 0;
	memory->free = memory->total - memory->used;
	return leave(NVML_SUCCESS);
}

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
	nvmlReturn_t result = enter(function);
	unsigned gpu;

	if (result)
		return result;
	if (!gpu_of(device, count, &gpu))
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	unsigned room = *count, found = processes_get(gpu, list);
	*count = found;
	if (found > room)
		return leave(NVML_ERROR_INSUFFICIENT_SIZE);
	if (found && !infos)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	for (unsigned i = 0; i < found; i++)
		store(infos, i, &list[i]);
	return leave(NVML_SUCCESS);
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

static nvmlReturn_t version_get(const char *function, const char *text, char *version,
				unsigned length)
{
	nvmlReturn_t result = enter(function);

	return result ? result : leave(text_copy(text, version, length));
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return version_get(__func__, "580.0.sim", version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	return version_get(__func__, "13.580.0.sim", version, length);
}

static nvmlReturn_t cuda_version_get(const char *function, int *ret_version)
{
	nvmlReturn_t result = enter(function);

	if (result)
		return result;
	if (!ret_version)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	*ret_version = config_get()->driver_version;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
	return cuda_version_get(__func__, cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
	return cuda_version_get(__func__, cudaDriverVersion);
}
