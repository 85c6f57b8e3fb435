/*
 * Code that the driver loads when a function is first launched, which only the comparison with NVML
 * sees, while other threads are at work in the driver.
 */
#include "own_fixture.h"

#include <pthread.h>
#include <unistd.h>

/* NULL: the slice is full by what was launched before. */
static CUfunction lazy_load(void)
{
	CUlibrary library;
	CUkernel kernel;
	CUresult result = cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0);

	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	if (result != CUDA_SUCCESS)
		return NULL;
	CHECK_CUDA(cuLibraryGetKernel(&kernel, library, "nothing"), CUDA_SUCCESS);
	return (CUfunction)(void *)kernel;
}

static void launch(CUfunction function)
{
	CHECK_CUDA(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
}

static CUcontext start_lazy(const char *limit)
{
	CUcontext context;

	env_set("VGPU_SIM_MODULE_LAZY", "1");
	context = start(limit);
	return context;
}

/* Takes code until there is no room for a granule, which is looked at after each. */
static void fill_with_code(uint64_t quota)
{
	for (unsigned i = 0; i < 200; i++) {
		CUdeviceptr address;
		CUfunction function;

		if (cuMemAlloc_v2(&address, GRANULE) != CUDA_SUCCESS)
			break;
		give(address);
		function = lazy_load();
		if (!function)
			break;
		launch(function);
	}
	CHECK_AT_MOST(outside_used(0), quota + MODULE + GRANULE);
}

/* -- a thread is in the driver for long ------------------------------------------------------- */

static CUcontext its_context;
static int at_work; /* atomic */

static void *in_free(void *address)
{
	CHECK_CUDA(cuCtxSetCurrent(its_context), CUDA_SUCCESS);
	give((CUdeviceptr)(uintptr_t)address);
	return NULL;
}

static void *in_load(void *none)
{
	CUmodule module;
	CUresult result;

	CHECK_CUDA(cuCtxSetCurrent(its_context), CUDA_SUCCESS);
	result = cuModuleLoadData(&module, code); /* the slice is full by then */
	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	return none;
}

/* While the other thread's call is in the driver. */
static void beside(void *(*work)(void *), uint64_t argument)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, work, (void *)(uintptr_t)argument) == 0);
	while (access(scene_path("parked"), F_OK) != 0)
		sleep_ms(1);
	fill_with_code(GIB);
	CHECK(unlink(scene_path("parked")) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	fill_with_code(GIB);
}

static void park(const char *call)
{
	char rule[512];

	snprintf(rule, sizeof(rule), "%s=%s", call, scene_path("parked"));
	env_set("VGPU_SIM_PARK", rule);
}

TEST(beside_a_free)
{
	park("cuMemFree_v2@2"); /* start_lazy() makes the first */
	its_context = start_lazy("1g");
	beside(in_free, take(32 * MIB));
}

TEST(beside_a_load)
{
	park("cuModuleLoadData");
	its_context = start_lazy("1g");
	beside(in_load, 0);
}

static void *alloc_and_free(void *none)
{
	CHECK_CUDA(cuCtxSetCurrent(its_context), CUDA_SUCCESS);
	while (__atomic_load_n(&at_work, __ATOMIC_ACQUIRE)) {
		CUdeviceptr address;

		if (cuMemAlloc_v2(&address, 8 * MIB) == CUDA_SUCCESS)
			give(address);
	}
	return none;
}

/* Two threads that allocate and free all the time: no figure is of one moment. */
TEST(beside_allocations)
{
	pthread_t threads[2];

	its_context = start_lazy("1g");
	at_work = 1;
	for (unsigned i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, alloc_and_free, NULL) == 0);
	fill_with_code(GIB);
	__atomic_store_n(&at_work, 0, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	fill_with_code(GIB);
}
