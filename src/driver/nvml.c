/* Found and bound as cuda.c does it; see there for what is written when. */
#include "nvml.h"

#include <dlfcn.h>
#include <stddef.h>

#include "libc.h"
#include "lock.h"
#include "objects.h"
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

static struct lock binding = LOCK_INIT;
static bool bound;
static struct object library;

static struct lock starting = LOCK_INIT;
static enum { NOT_STARTED, STARTED, FAILED } start_state; /* under `starting` */

static bool is_bound(void)
{
	return __atomic_load_n(&bound, __ATOMIC_ACQUIRE); /* pairs with the release in fill */
}

void *nvml_driver_symbol(const char *name)
{
	return is_bound() ? object_symbol(&library, name) : NULL;
}

static void *next_of(const char *name)
{
	void *own = object_symbol(&library, name);
	void *next = own ? libc_functions()->dlsym(RTLD_NEXT, name) : NULL;

	return next ? next : own;
}

static void fill_one(const char *name, void *slot)
{
	void *next = next_of(name);

	if (next)
		*(void **)slot = next;
}

static void fill(void)
{
#define NVML_HOOK(name, parameters, arguments) fill_one(#name, &nvml.name);
#define NVML_CALL(name, parameters)            fill_one(#name, &nvml.name);
#include "nvml.def"
	libc_functions()->dlerror(); /* what our own lookups left is not the application's */
	__atomic_store_n(&bound, true, __ATOMIC_RELEASE);
}

bool nvml_bind(void)
{
	const struct libc_functions *libc = libc_functions();

	if (is_bound())
		return true;
	if (!libc->dlsym || !libc->dlopen)
		return false;
	lock_acquire(&binding);
	if (!is_bound() && objects_named(NVML_SONAME, &library)) {
		libc->dlopen(NVML_SONAME, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
		fill();
	}
	lock_release(&binding);
	return is_bound();
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
