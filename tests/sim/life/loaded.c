/* A program that links no driver, and loads and unloads it with allocations around. */
#include <dlfcn.h>
#include <string.h>

#include "cuda_abi.h"
#include "fixture.h"

#define OUTSIDE (CONTEXT + 9 * MIB) /* of HIDDEN, which is charged */
#define DRIVER  "libcuda.so.1"

static void *load(void)
{
	void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);

	CHECK(driver);
	return driver;
}

static void *find(void *driver, const char *name)
{
	void *function = dlsym(driver, name);

	CHECK(function);
	return function;
}

static void start(void *driver)
{
	CUcontext context;
	CUresult (*init)(unsigned) = (CUresult(*)(unsigned))find(driver, "cuInit");
	CUresult (*retain)(CUcontext *, CUdevice) =
		(CUresult(*)(CUcontext *, CUdevice))find(driver, "cuDevicePrimaryCtxRetain");
	CUresult (*set)(CUcontext) = (CUresult(*)(CUcontext))find(driver, "cuCtxSetCurrent");

	CHECK_OK(init(0));
	CHECK_OK(retain(&context, 0));
	CHECK_OK(set(context));
}

static CUresult allocate(void *driver, CUdeviceptr *address, size_t bytes)
{
	return ((CUresult(*)(CUdeviceptr *, size_t))find(driver, "cuMemAlloc_v2"))(address, bytes);
}

static CUresult release(void *driver, CUdeviceptr address)
{
	return ((CUresult(*)(CUdeviceptr))find(driver, "cuMemFree_v2"))(address);
}

/* Unloaded with memory in use, and loaded again: it is held, charged, and may be freed. */
TEST(again_and_again)
{
	CUdeviceptr address, other;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	for (unsigned round = 0; round < 20; round++) {
		void *driver = load();

		if (round == 0)
			start(driver);
		else
			CHECK_OK(release(driver, address));
		CHECK_OK(allocate(driver, &address, 300 * MIB));
		CHECK_EQUAL(allocate(driver, &other, 300 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQUAL(dlclose(driver), 0);
		CHECK_EQUAL(outside_used(0), OUTSIDE + 300 * MIB);
		CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + 300 * MIB);
	}
}

/* Loaded and unloaded by somebody who only looks whether it is there. */
TEST(looked_at_first)
{
	CUdeviceptr address;
	void *driver;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	for (unsigned round = 0; round < 3; round++) {
		driver = load();
		find(driver, "cuInit");
		CHECK_EQUAL(dlclose(driver), 0);
	}
	driver = load();
	start(driver);
	CHECK_EQUAL(dlclose(driver), 0);
	driver = load();
	CHECK_EQUAL(allocate(driver, &address, 600 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_OK(allocate(driver, &address, 300 * MIB));
	CHECK_EQUAL(outside_used(0), OUTSIDE + 300 * MIB);
}

/* With NVML, which the library uses as well. */
TEST(nvml_comes_and_goes)
{
	CUdeviceptr address;
	void *driver = load();

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	start(driver);
	for (unsigned round = 0; round < 20; round++) {
		void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

		CHECK(nvml);
		CHECK_EQUAL(((int (*)(void))find(nvml, "nvmlInit_v2"))(), 0);
		CHECK_OK(allocate(driver, &address, 300 * MIB));
		CHECK_EQUAL(((int (*)(void))find(nvml, "nvmlShutdown"))(), 0);
		CHECK_EQUAL(dlclose(nvml), 0);
		CHECK_OK(release(driver, address));
		sleep_ms(5); /* so that the books are compared now and then */
	}
	CHECK_EQUAL(outside_used(0), OUTSIDE);
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN);
}
