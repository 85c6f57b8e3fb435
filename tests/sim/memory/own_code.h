/* Shared by the tests of code that the driver loads late: kernels of MODULE bytes of code each. */
#pragma once

#include "own_fixture.h"

#define FUNCTIONS 5
#define QUOTA     (4 * GIB) /* so much that no comparison is due before 20 ms have passed */

static CUfunction functions[FUNCTIONS];

/* NULL: the slice is full by what was launched before. */
static inline CUfunction lazy_load(void)
{
	CUlibrary library;
	CUkernel kernel;
	CUresult result = cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0);

	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	if (result != CUDA_SUCCESS)
		return NULL;
	CHECK_OK(cuLibraryGetKernel(&kernel, library, "nothing"));
	return (CUfunction)(void *)kernel;
}

static inline CUcontext start_lazy(const char *limit)
{
	env_set("VGPU_SIM_MODULE_LAZY", "1");
	return start(limit);
}

static inline void fetch_functions(void)
{
	for (unsigned i = 0; i < FUNCTIONS; i++)
		functions[i] = lazy_load();
}

static inline void launch_functions(void)
{
	for (unsigned i = 0; i < FUNCTIONS; i++)
		launch(functions[i]);
}

/* Takes all that is left at once. */
static inline void assert_full(uint64_t modules)
{
	CUdeviceptr address;

	cuMemAlloc_v2(&address, QUOTA - ledger_used(0));
	CHECK_AT_MOST(outside_used(0), QUOTA);
	CHECK_EQUAL(ledger_own(0).module, modules * MODULE);
}

/* An allocation makes the comparison that is due. */
static inline void compare(void)
{
	give(take(GRANULE));
}
