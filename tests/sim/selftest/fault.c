/*
 * Scripted faults: the nth call, every call, and that each exported function obeys.
 */
#include "selftest.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void nth(void *argument)
{
	CUdeviceptr p[4] = {0};
	size_t available, total;

	(void)argument;
	setenv("VGPU_SIM_FAULTS",
	       "cuMemAlloc_v2@3=2,cuMemGetInfo_v2=999,nvmlDeviceGetCount_v2@1=15", 1);
	selftest_context();
	CHECK_OK(cuMemAlloc_v2(&p[0], 1));
	CHECK_OK(cuMemAlloc_v2(&p[1], 1));
	CHECK_EQUAL(cuMemAlloc_v2(&p[2], 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!p[2]);
	CHECK_OK(cuMemAlloc_v2(&p[3], 1));
	for (int i = 0; i < 3; i++)
		CHECK_EQUAL(cuMemGetInfo_v2(&available, &total), CUDA_ERROR_UNKNOWN);
	unsigned count;
	CHECK_OK(nvmlInit_v2());
	CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), 15);
	CHECK_OK(nvmlDeviceGetCount_v2(&count));
}

/* With a fault for it no function looks at its arguments, so none need be right. */
typedef int any_function(void *, void *, void *, void *, void *, void *, void *, void *, void *,
			 void *, void *);

static const char *const cuda_rows[] = {
#define CU_HOOK(name, class, parameters, arguments) #name,
#define CU_CALL(name, class, parameters)            #name,
#define CU_SIM(name, class, parameters)             #name,
#include "cuda.def"
	"cuTexRefCreate", "cuTexRefDestroy", /* stubs */
};

static const char *const nvml_rows[] = {
#define NVML_HOOK(name, parameters, arguments) #name,
#define NVML_CALL(name, parameters)            #name,
#define NVML_SIM(name, parameters)             #name,
#include "nvml.def"
};

static void obeys(void *argument)
{
	const char *name = argument;
	char rule[128];

	snprintf(rule, sizeof rule, "%s=777", name);
	setenv("VGPU_SIM_FAULTS", rule, 1);
	any_function *function = (any_function *)dlsym(RTLD_DEFAULT, name);
	CHECK(function);
	int result = function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	if (result != 777)
		fprintf(stderr, "%s gave %d\n", name, result);
	CHECK_EQUAL(result, 777);
}

/* What is not implemented says so, also before cuInit. */
static void test_stub(void)
{
	CUresult (*stub)(void) = (CUresult(*)(void))dlsym(RTLD_DEFAULT, "cuTexRefCreate");

	CHECK(stub);
	CHECK_EQUAL(stub(), CUDA_ERROR_NOT_SUPPORTED);
}

int main(void)
{
	selftest_begin(NULL);
	CHECK(dlopen(SIM_CUDA, RTLD_NOW | RTLD_GLOBAL));
	selftest_child_run(nth, NULL);
	for (size_t i = 0; i < sizeof cuda_rows / sizeof *cuda_rows; i++)
		selftest_child_run(obeys, (void *)(uintptr_t)cuda_rows[i]);
	for (size_t i = 0; i < sizeof nvml_rows / sizeof *nvml_rows; i++)
		selftest_child_run(obeys, (void *)(uintptr_t)nvml_rows[i]);
	test_stub();
	return 0;
}
