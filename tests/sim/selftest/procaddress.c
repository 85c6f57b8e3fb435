/*
 * cuGetProcAddress: for every version asked the right one of a function's versions, and the very
 * pointer that dlsym gives. On the driver that lacks what is newer than CUDA 11.2 likewise.
 */
#include "selftest.h"

#include <dlfcn.h>
#include <stdlib.h>

static void *library;

static void finds(const char *name, int version, cuuint64_t flags, const char *expected)
{
	CUdriverProcAddressQueryResult status = 99;
	void *pointer = &status, *old = &status;

	CHECK_OK(cuGetProcAddress_v2(name, &pointer, version, flags, &status));
	CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SUCCESS);
	CHECK_EQUAL((uintptr_t)pointer, (uintptr_t)dlsym(library, expected));
	CHECK(pointer);
	CHECK_OK(cuGetProcAddress(name, &old, version, flags));
	CHECK(old == pointer);
}

static void lacks(const char *name, int version, unsigned expected)
{
	CUdriverProcAddressQueryResult status = 99;
	void *pointer = &status;

	CHECK_OK(cuGetProcAddress_v2(name, &pointer, version, 0, &status));
	CHECK_EQUAL(status, expected);
	CHECK(!pointer);
	pointer = &status;
	CHECK_OK(cuGetProcAddress_v2(name, &pointer, version, 0, NULL));
	CHECK(!pointer);
	pointer = &status;
	CHECK_EQUAL(cuGetProcAddress(name, &pointer, version, 0), CUDA_ERROR_NOT_FOUND);
	CHECK(pointer == &status);
}

static void test_versions(void)
{
	finds("cuMemAlloc", 13000, 0, "cuMemAlloc_v2");
	finds("cuMemAlloc", 3020, 0, "cuMemAlloc_v2");
	finds("cuMemAlloc", 3010, 0, "cuMemAlloc");
	finds("cuCtxCreate", 13000, 0, "cuCtxCreate_v4");
	finds("cuCtxCreate", 12040, 0, "cuCtxCreate_v3");
	finds("cuCtxCreate", 11030, 0, "cuCtxCreate_v2");
	finds("cuDeviceGetUuid", 11030, 0, "cuDeviceGetUuid");
	finds("cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2");
	finds("cuGetProcAddress", 11030, 0, "cuGetProcAddress");
	finds("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2");
	finds("cuDevicePrimaryCtxReset", 10000, 0, "cuDevicePrimaryCtxReset");
	finds("cuGraphInstantiate", 12000, 0, "cuGraphInstantiate_v2"); /* a stub */
	finds("cuInit", 2000, 0, "cuInit");
	lacks("cuGetProcAddress", 11020, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	lacks("cuMemAllocManaged", 5000, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	lacks("cuNoSuchThing", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	lacks("cuMemAlloc_v2", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	lacks("cuLaunchKernel_ptsz", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	lacks("", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void test_flavours(void)
{
	const cuuint64_t legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
	const cuuint64_t thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	void *pointer;

	finds("cuLaunchKernel", 13000, thread, "cuLaunchKernel_ptsz");
	finds("cuLaunchKernel", 13000, legacy, "cuLaunchKernel");
	finds("cuMemcpyHtoD", 13000, thread, "cuMemcpyHtoD_v2_ptds");
	finds("cuMemAlloc", 13000, thread, "cuMemAlloc_v2");
	CHECK_EQUAL(cuGetProcAddress("cuInit", &pointer, 13000, 4), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGetProcAddress(NULL, &pointer, 13000, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuGetProcAddress("cuInit", NULL, 13000, 0), CUDA_ERROR_INVALID_VALUE);
}

static void test_missing(void)
{
	setenv("VGPU_SIM_MISSING", "cuCtxCreate_v4,cuDeviceGetUuid_v2,cuMemAllocManaged", 1);
	finds("cuCtxCreate", 13000, 0, "cuCtxCreate_v3");
	finds("cuDeviceGetUuid", 13000, 0, "cuDeviceGetUuid");
	lacks("cuMemAllocManaged", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	unsetenv("VGPU_SIM_MISSING");
}

/* Everything exported is found under some name, as itself. */
static void test_all(void)
{
#define CU_HOOK(name, class, parameters, arguments) CHECK(dlsym(library, #name) == (void *)name);
#define CU_CALL(name, class, parameters)            CHECK(dlsym(library, #name) == (void *)name);
#define CU_SIM(name, class, parameters)             CHECK(dlsym(library, #name) == (void *)name);
#pragma GCC diagnostic ignored "-Wpedantic"
#include "cuda.def"
}

static void test_old_driver(void)
{
	static const char *const gone[] = {"cuCtxCreate_v3",     "cuCtxCreate_v4",
					   "cuGetProcAddress",   "cuGetProcAddress_v2",
					   "cuDeviceGetUuid_v2", "cuCtxGetId"};
	static const char *const there[] = {"cuInit", "cuCtxCreate_v2", "cuDeviceGetUuid",
					    "cuMemFreeAsync", "cuLaunchKernel_ptsz"};
	void *old = dlopen(SIM_OLD_CUDA, RTLD_NOW | RTLD_LOCAL);

	CHECK(old);
	for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
		CHECK(!dlsym(old, gone[i]));
	for (size_t i = 0; i < sizeof there / sizeof *there; i++)
		CHECK(dlsym(old, there[i]));
	CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(old, "cuInit");
	CHECK(init != cuInit);
	CHECK_OK(init(0));
}

int main(void)
{
	selftest_begin(NULL);
	library = dlopen(SIM_CUDA, RTLD_NOW);
	CHECK(library);
	CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == library);
	test_versions();
	test_flavours();
	test_missing();
	test_all();
	test_old_driver();
	return 0;
}
