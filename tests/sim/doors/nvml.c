/* nvml WAY: NVML's functions in the same ways as the driver's (linked and called with NVML_CALLED):
 * the GPU is as large as the slice, the other GPU is not there, and every function that we stand in
 * front of is found in our library. */
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "nvml_abi.h"

#define NVML_HOOK(name, parameters, arguments) nvmlReturn_t name parameters;
#define NVML_CALL(name, parameters)            nvmlReturn_t name parameters;
#include "nvml.def"

#define NVML "libnvidia-ml.so.1"

static void *handle; /* where to look */

static void *find(const char *name)
{
	void *found = dlsym(handle, name);

	CHECK_SAYING(found, "%s", dlerror());
	return found;
}

#define FIND(name) ((__typeof__(&name))find(#name))
#ifdef NVML_CALLED
#define REACH(name) name
#else
#define REACH(name) FIND(name)
#endif

static void choose(const char *way)
{
	if (strcmp(way, "handle") == 0)
		handle = dlopen(NVML, RTLD_LAZY);
	else if (strcmp(way, "deepbind") == 0)
		handle = dlopen(NVML, RTLD_LAZY | RTLD_DEEPBIND);
	else if (strcmp(way, "program") == 0)
		handle = dlopen(NULL, RTLD_LAZY);
	else if (strcmp(way, "next") == 0)
		handle = RTLD_NEXT;
	else
		handle = RTLD_DEFAULT;
}

static void check_size(unsigned long long total)
{
	unsigned long long expected = getenv("DOORS_CONTROL") ? 8ULL << 30 : 1ULL << 30;

	CHECK_SAYING(total == expected, "not held: the GPU has %llu bytes", total);
}

/* The slice has one of the two. */
static void check_count(unsigned count)
{
	unsigned expected = getenv("DOORS_CONTROL") ? 2 : 1;

	CHECK_SAYING(count == expected, "not held: there are %u GPUs", count);
}

/* Found where it should be. */
static void check_place(const char *name, void *function)
{
	Dl_info place;
	bool ours;

	CHECK_SAYING(dladdr(function, &place), "%s is nowhere", name);
	ours = strstr(place.dli_fname, "libvgpu.so") != NULL;
	CHECK_SAYING(ours == !getenv("DOORS_CONTROL"), "%s is in %s", name, place.dli_fname);
}

int main(int argc, char **argv)
{
	nvmlMemory_t memory = {0};
	nvmlMemory_v2_t memory_v2 = {.version = NVML_MEMORY_V2};
	nvmlDevice_t device;
	unsigned count = 0;

	CHECK_SAYING(argc == 2, "usage: nvml WAY");
	choose(argv[1]);
	CHECK_SAYING(FIND(nvmlInit_v2)() == NVML_SUCCESS, "nvmlInit_v2 fails");
	CHECK_SAYING(FIND(nvmlDeviceGetHandleByIndex_v2)(0, &device) == NVML_SUCCESS, "no GPU");
	CHECK_SAYING(REACH(nvmlDeviceGetMemoryInfo)(device, &memory) == NVML_SUCCESS, "no answer");
	CHECK_SAYING(REACH(nvmlDeviceGetMemoryInfo_v2)(device, &memory_v2) == NVML_SUCCESS,
		     "no answer");
	check_size(memory.total);
	check_size(memory_v2.total);
	CHECK_SAYING(REACH(nvmlDeviceGetCount_v2)(&count) == NVML_SUCCESS, "no answer");
	check_count(count);
#define NVML_HOOK(name, parameters, arguments) check_place(#name, (void *)FIND(name));
#include "nvml.def"
	return 0;
}
