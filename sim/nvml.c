/*
 * The simulated NVML: the machine as the shared state has it. It needs no CUDA in the process, has
 * no slot, and does not read CUDA_VISIBLE_DEVICES.
 *
 *   VGPU_SIM_NVML_MIG           a GPU that is divided into two instances   (nvml_devices.c)
 *   VGPU_SIM_NVML_COMPUTE_MODE  the compute mode of all GPUs               (nvml_devices.c)
 *   VGPU_SIM_NVML_PERSISTENCE   the persistence mode of all GPUs           (nvml_devices.c)
 *   VGPU_SIM_NVML_PIDS          the pids in process lists                  (nvml_processes.c)
 *   VGPU_SIM_NVML_LISTS         the process lists that are not empty       (nvml_processes.c)
 *   VGPU_SIM_NVML_XIDS          errors of GPUs                             (nvml_events.c)
 *
 * Calls of nvmlInit are counted. After the last nvmlShutdown, no function works until the next
 * nvmlInit. One lock is held for the whole of every call. In a forked child, the parent's nvmlInit
 * counts, and the child opens the state file for itself.
 */
#include "nvml_calls.h"
#include "peak.h"

#include "faults.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

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
	machine_forked();
}

static void fork_watch(void)
{
	pthread_atfork(NULL, NULL, forked);
}

/* Takes the loader's lock, as NVML of driver 580 does: it was seen to open libcuda.so.1 and, 17
 * times, the program. */
static void call_the_loader(void)
{
	void *program = dlopen(NULL, RTLD_LAZY);

	if (program)
		dlclose(program);
}

static nvmlReturn_t init(const char *function)
{
	nvmlReturn_t result = (nvmlReturn_t)faults_enter(function);

	if (result)
		return result;
	call_the_loader();
	pthread_once(&fork_once, fork_watch);
	pthread_mutex_lock(&lock);
	if (machine_attach())
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

/* Attaching again has an effect only in a forked child. */
nvmlReturn_t nvml_enter(const char *function)
{
	nvmlReturn_t result = (nvmlReturn_t)faults_enter(function);

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	if (inits && !machine_attach())
		return NVML_SUCCESS;
	pthread_mutex_unlock(&lock);
	return inits ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvml_leave(nvmlReturn_t result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t result = nvml_enter(__func__);

	if (result)
		return result;
	if (!--inits)
		machine_detach();
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvml_text(const char *text, char *out, unsigned length)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlReturn_t result = nvml_enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!nvml_gpu(device, memory, &gpu))
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	memory->total = config_get()->total_bytes[gpu];
	memory->used = machine_used_bytes(gpu);
	memory->free = memory->total - memory->used;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlReturn_t result = nvml_enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!nvml_gpu(device, memory, &gpu))
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	if (memory->version != NVML_MEMORY_V2)
		return nvml_leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	memory->total = config_get()->total_bytes[gpu];
	memory->used = machine_used_bytes(gpu);
	memory->reserved = 0;
	memory->free = memory->total - memory->used;
	return nvml_leave(NVML_SUCCESS);
}

__attribute__((visibility("default"))) uint64_t vgpu_sim_peak(unsigned gpu)
{
	return gpu < SIM_GPUS_MAX ? machine_peak(gpu) : 0;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1Memory)
{
	nvmlReturn_t result = nvml_enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!nvml_gpu(device, bar1Memory, &gpu))
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	bar1Memory->bar1Total = config_get()->total_bytes[gpu];
	bar1Memory->bar1Used = 1 << 20;
	bar1Memory->bar1Free = bar1Memory->bar1Total - bar1Memory->bar1Used;
	return nvml_leave(NVML_SUCCESS);
}

static nvmlReturn_t version_get(const char *function, const char *text, char *version,
				unsigned length)
{
	nvmlReturn_t result = nvml_enter(function);

	return result ? result : nvml_leave(nvml_text(text, version, length));
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
	nvmlReturn_t result = nvml_enter(function);

	if (result)
		return result;
	if (!ret_version)
		return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
	*ret_version = config_get()->driver_version;
	return nvml_leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
	return cuda_version_get(__func__, cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
	return cuda_version_get(__func__, cudaDriverVersion);
}
