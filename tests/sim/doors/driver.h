/*
 * The driver functions that an allocation needs, and the question of all tests in this
 * directory: does the slice's limit apply to the functions that were reached?
 *
 * CALL(name) is how the file that includes this header reaches a driver function. By default it
 * is a pointer in `found`, which find_driver fills. With `#define DRIVER_TABLE` the loader
 * fills `found`. With `#define CALL(name) name` before the include, it is an ordinary call,
 * which the linker resolves.
 */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "cuda_abi.h"
#include "export.h"

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"

#define DRIVER_FUNCTIONS(X)         \
	X(cuInit)                   \
	X(cuDeviceGet)              \
	X(cuDevicePrimaryCtxRetain) \
	X(cuCtxSetCurrent)          \
	X(cuMemAlloc_v2)            \
	X(cuMemFree_v2)

struct driver {
#define X(name) __typeof__(name) *name;
	DRIVER_FUNCTIONS(X)
#undef X
};

#ifndef CALL
#define CALL(name) (found.name)
#ifdef DRIVER_TABLE
#define X(name) .name = name,
/* volatile, so that the compiler does not replace the pointers */
static volatile struct driver found = {DRIVER_FUNCTIONS(X)};
#undef X
#else
static struct driver found;
#endif

static inline void find_driver(void *(*find)(const char *symbol))
{
#define X(name)                                           \
	found.name = (__typeof__(found.name))find(#name); \
	CHECK_SAYING(found.name, "%s is not found this way", #name);
	DRIVER_FUNCTIONS(X)
#undef X
}
#endif

#define SMALL_BYTES ((size_t)256 << 20)
#define LARGE_BYTES ((size_t)2 << 30) /* fits the device but not the slice */

/* Whether this is a test's control: it runs without the library, and no limit may apply. */
static inline bool is_control(void)
{
	return getenv("DOORS_CONTROL") != NULL;
}

static inline void start_driver(void)
{
	CUdevice device;
	CUcontext context;
	CUresult result = CALL(cuInit)(0);

	CHECK_SAYING(result == CUDA_SUCCESS, "cuInit says %d", result);
	result = CALL(cuDeviceGet)(&device, 0);
	CHECK_SAYING(result == CUDA_SUCCESS, "cuDeviceGet says %d", result);
	result = CALL(cuDevicePrimaryCtxRetain)(&context, device);
	CHECK_SAYING(result == CUDA_SUCCESS, "cuDevicePrimaryCtxRetain says %d", result);
	result = CALL(cuCtxSetCurrent)(context);
	CHECK_SAYING(result == CUDA_SUCCESS, "cuCtxSetCurrent says %d", result);
}

/* Call it after start_driver. It checks that the slice's limit applies, or does not apply in a
 * control. */
static inline void check_allocations(void)
{
	CUresult expected = is_control() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	CUdeviceptr small = 0, large = 0;
	CUresult result = CALL(cuMemAlloc_v2)(&small, SMALL_BYTES);

	CHECK_SAYING(result == CUDA_SUCCESS, "cuMemAlloc_v2 of 256 MiB says %d", result);
	result = CALL(cuMemAlloc_v2)(&large, LARGE_BYTES);
	CHECK_SAYING(result == expected, "not held: cuMemAlloc_v2 of 2 GiB says %d instead of %d",
		     result, expected);
	result = CALL(cuMemFree_v2)(small);
	CHECK_SAYING(result == CUDA_SUCCESS, "cuMemFree_v2 says %d", result);
	if (large)
		CALL(cuMemFree_v2)(large);
}

static inline void check_held(void)
{
	start_driver();
	check_allocations();
}
