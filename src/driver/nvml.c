/* The table of NVML's functions, filled as cuda.c's is, and our own questions, by way of it. */
#include "nvml.h"

#include <dlfcn.h>
#include <stddef.h>

#include "libc.h"
#include "library.h"
#include "sys.h"

#define PROCESSES_MAX 1024 /* asked for at once */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define NVML_HOOK(name, parameters, arguments)        \
	static nvmlReturn_t no_##name parameters      \
	{                                             \
		return NVML_ERROR_FUNCTION_NOT_FOUND; \
	}
#define NVML_CALL(name, parameters) NVML_HOOK(name, parameters, )
#include "nvml.def"
#pragma GCC diagnostic pop

struct nvml_functions nvml = {
#define NVML_HOOK(name, parameters, arguments) .name = no_##name,
#define NVML_CALL(name, parameters)            .name = no_##name,
#include "nvml.def"
};

static void fill(void);

static struct library library = {
	.soname = NVML_SONAME,
	.rarities = {"nvmlErrorString", "nvmlSystemGetNVMLVersion", "nvmlUnitGetCount"},
	.fill = fill,
};

static struct lock starting = LOCK_INIT;
static enum { NOT_STARTED, STARTED, FAILED } start_state; /* under `starting` */

static void fill(void)
{
#define NVML_HOOK(name, parameters, arguments) library_take(&library, #name, &nvml.name);
#define NVML_CALL(name, parameters)            library_take(&library, #name, &nvml.name);
#include "nvml.def"
}

bool nvml_bind(void)
{
	return library_bind(&library);
}

void nvml_forget(void)
{
	lock_init(&library.binding);
	lock_init(&starting);
}

void *nvml_driver_symbol(const char *name)
{
	return library_symbol(&library, name);
}

static bool start(void)
{
	const struct libc_functions *libc = libc_functions();

	if (!nvml_bind()) {
		if (!libc->dlopen || !libc->dlopen(NVML_SONAME, RTLD_LAZY | RTLD_NODELETE) ||
		    !nvml_bind())
			return false;
	}
	return nvml.nvmlInit_v2() == NVML_SUCCESS;
}

bool nvml_start(void)
{
	bool started;

	lock_acquire(&starting);
	if (start_state == NOT_STARTED)
		start_state = start() ? STARTED : FAILED;
	started = start_state == STARTED;
	lock_release(&starting);
	return started;
}

static bool device_of(const char *uuid, nvmlDevice_t *ret_device)
{
	return nvml_start() && nvml.nvmlDeviceGetHandleByUUID(uuid, ret_device) == NVML_SUCCESS;
}

/* Newest first; both have the layout of v2. Drivers before 450 have neither: no figure then. */
static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned *count,
				   nvmlProcessInfo_v2_t *processes)
{
	nvmlReturn_t result =
		nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);

	if (result != NVML_ERROR_FUNCTION_NOT_FOUND)
		return result;
	return nvml.nvmlDeviceGetComputeRunningProcesses_v2(device, count, processes);
}

static bool usage_in_list(nvmlDevice_t device, unsigned pid, uint64_t *ret_bytes)
{
	static nvmlProcessInfo_v2_t processes[PROCESSES_MAX]; /* under `starting` */
	unsigned count = PROCESSES_MAX;
	bool found = false;

	lock_acquire(&starting);
	if (list_processes(device, &count, processes) == NVML_SUCCESS)
		for (unsigned i = 0; i < count && !found; i++)
			if (processes[i].pid == pid) {
				*ret_bytes = processes[i].usedGpuMemory;
				found = true;
			}
	lock_release(&starting);
	return found;
}

bool nvml_own_usage(const char *uuid, uint64_t *ret_bytes)
{
	nvmlDevice_t device;
	uint64_t bytes;
	unsigned pid = (unsigned)sys_getpid();

	if (!device_of(uuid, &device))
		return false;
	if (!usage_in_list(device, pid, &bytes))
		return false;
	if (bytes == NVML_VALUE_NOT_AVAILABLE)
		return false;
	*ret_bytes = bytes;
	return true;
}

int nvml_index(const char *uuid)
{
	unsigned count;
	nvmlDevice_t wanted, device;

	if (!device_of(uuid, &wanted) || nvml.nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS)
		return -1;
	for (unsigned i = 0; i < count; i++)
		if (nvml.nvmlDeviceGetHandleByIndex_v2(i, &device) == NVML_SUCCESS &&
		    device == wanted)
			return (int)i;
	return -1;
}
