/* The table of NVML's functions, filled as cuda.c's is, and our own questions, by way of it. */
#include "nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "clock.h"
#include "libc.h"
#include "library.h"
#include "sys.h"

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

static const char *const names[] = {
#define NVML_HOOK(name, parameters, arguments) #name,
#define NVML_CALL(name, parameters)            #name,
#include "nvml.def"
};

#define COUNT (sizeof(names) / sizeof(names[0]))

_Static_assert(COUNT * sizeof(void *) == sizeof(nvml) && COUNT <= LIBRARY_FUNCTIONS_MAX, "table");

static struct library library = {
	.soname = NVML_SONAME,
	.rarities = {"nvmlErrorString", "nvmlSystemGetNVMLVersion", "nvmlUnitGetCount"},
	.names = names,
	.table = (void **)(void *)&nvml,
	.count = COUNT,
};

static unsigned self; /* this process's pid in NVML's lists, 0: its own; atomic */
static bool absent;   /* the loader does not find it, and is not asked again; atomic */
static struct lock starting = LOCK_INIT;
static enum { NOT_STARTED, STARTED, FAILED } start_state; /* written under `starting`, atomic */
static int forbidden;    /* the thread that must not start it, 0: none; atomic */
static int errno_before; /* the program's, which NVML changes; under `starting` */

#define START_NAPS   100
#define START_NAP_NS (500 * NS_PER_US)

bool nvml_bind(void)
{
	return library_bind(&library);
}

void nvml_forked(void)
{
	library_forked(&library);
	lock_init(&starting);
	self = 0;
	absent = false;
	forbidden = 0;
}

void *nvml_driver_symbol(const char *name)
{
	return library_symbol(&library, name);
}

static bool load(void)
{
	const struct libc_functions *libc = libc_functions();
	int saved = errno;

	if (nvml_bind())
		return true;
	if (__atomic_load_n(&absent, __ATOMIC_RELAXED))
		return false;
	if (!libc->dlopen || !libc->dlopen(NVML_SONAME, RTLD_LAZY | RTLD_NODELETE) || !nvml_bind())
		__atomic_store_n(&absent, true, __ATOMIC_RELAXED);
	errno = saved;
	return !__atomic_load_n(&absent, __ATOMIC_RELAXED);
}

void nvml_forbid_start(int thread)
{
	__atomic_store_n(&forbidden, thread, __ATOMIC_RELAXED);
}

bool nvml_is_started(void)
{
	return __atomic_load_n(&start_state, __ATOMIC_RELAXED) != NOT_STARTED ||
	       __atomic_load_n(&absent, __ATOMIC_RELAXED);
}

static bool may_start(void)
{
	int thread = __atomic_load_n(&forbidden, __ATOMIC_RELAXED);

	return !thread || thread != sys_gettid();
}

static void start_locked(void)
{
	bool started = nvml.nvmlInit_v2() == NVML_SUCCESS;

	__atomic_store_n(&start_state, started ? STARTED : FAILED, __ATOMIC_RELAXED);
}

static void leave(void)
{
	errno = errno_before;
	lock_release(&starting);
}

/* NVML opens files and calls the loader, so who finds the lock taken does not wait for it. */
static int enter(void)
{
	if (!nvml_is_started() && !may_start())
		return -EAGAIN;
	if (!load())
		return -ENOENT;
	if (!lock_try(&starting))
		return -EAGAIN;
	errno_before = errno;
	if (start_state == NOT_STARTED)
		start_locked();
	if (start_state == STARTED)
		return 0;
	leave();
	return -ENOENT;
}

void nvml_start(void)
{
	int error = enter();

	for (unsigned naps = 0; error == -EAGAIN && naps < START_NAPS; naps++) {
		sys_sleep_ns(START_NAP_NS);
		error = enter();
	}
	if (!error)
		leave();
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

/* Between enter and leave. */
static int list_figures(const char *uuid, struct nvml_figure *ret_figures, unsigned *ret_count)
{
	static nvmlProcessInfo_v2_t processes[NVML_FIGURES_MAX];
	unsigned listed = NVML_FIGURES_MAX, count = 0;
	nvmlDevice_t device;

	if (nvml.nvmlDeviceGetHandleByUUID(uuid, &device) != NVML_SUCCESS ||
	    list_processes(device, &listed, processes) != NVML_SUCCESS)
		return -ENOENT;
	for (unsigned i = 0; i < listed; i++)
		if (processes[i].usedGpuMemory != NVML_VALUE_NOT_AVAILABLE)
			ret_figures[count++] =
				(struct nvml_figure){processes[i].pid, processes[i].usedGpuMemory};
	*ret_count = count;
	return 0;
}

int nvml_figures(const char *uuid, struct nvml_figure ret_figures[NVML_FIGURES_MAX],
		 unsigned *ret_count)
{
	int error = enter();

	if (error)
		return error;
	error = list_figures(uuid, ret_figures, ret_count);
	leave();
	return error;
}

void nvml_know_self(unsigned pid)
{
	__atomic_store_n(&self, pid, __ATOMIC_RELAXED);
}

/* Between enter and leave. */
static int own_usage(const char *uuid, uint64_t *ret_bytes)
{
	static struct nvml_figure figures[NVML_FIGURES_MAX];
	unsigned count, known = __atomic_load_n(&self, __ATOMIC_RELAXED);
	unsigned pid = known ? known : (unsigned)sys_getpid();
	int error = list_figures(uuid, figures, &count);

	for (unsigned i = 0; !error && i < count; i++)
		if (figures[i].pid == pid) {
			*ret_bytes = figures[i].bytes;
			return 0;
		}
	return -ENOENT;
}

int nvml_own_usage(const char *uuid, uint64_t *ret_bytes)
{
	int error = enter();

	if (error)
		return error;
	error = own_usage(uuid, ret_bytes);
	leave();
	return error;
}

/* Between enter and leave. */
static int place_of(const char *uuid, unsigned *ret_count)
{
	unsigned count;
	nvmlDevice_t wanted, device;

	if (nvml.nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS)
		return -ENOENT;
	*ret_count = count;
	if (nvml.nvmlDeviceGetHandleByUUID(uuid, &wanted) != NVML_SUCCESS)
		return -ENODEV;
	for (unsigned i = 0; i < count; i++)
		if (nvml.nvmlDeviceGetHandleByIndex_v2(i, &device) == NVML_SUCCESS &&
		    device == wanted)
			return (int)i;
	return -ENODEV;
}

int nvml_place(const char *uuid, unsigned *ret_count)
{
	int place = enter();

	if (place)
		return place;
	place = place_of(uuid, ret_count);
	leave();
	return place;
}

int nvml_index(const char *uuid)
{
	unsigned count;
	int place = nvml_place(uuid, &count);

	return place < 0 ? -1 : place;
}
