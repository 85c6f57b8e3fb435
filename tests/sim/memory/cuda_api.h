/* The driver's functions, as a linked program sees them, declared from the tables. */
#pragma once

#include "cuda_abi.h"
#include "fixture.h"

#define CU_HOOK(name, class, parameters, arguments) CUresult name parameters;
#define CU_CALL(name, class, parameters)            CUresult name parameters;
#define CU_SIM(name, class, parameters)             CUresult name parameters;
#include "cuda.def"

/* Bytes that the device may still hold of a process that has no context. */
#define STRAY (4 * MIB)

/* Defines a function whose whole work is one call: static DRIVER_CALL(give_it, cuMemFree_v2(it));
 */
#define DRIVER_CALL(name, call) \
	CUresult name(void)     \
	{                       \
		return call;    \
	}                       \
	_Static_assert(1, "a function of one call")

#define UNTOUCHED 0xdeadu /* what outputs hold before a call that must leave them alone */

/* Initialisers of the properties of memory with a handle, and of a pool. */
#define MEMORY_OF_GPU_0                                              \
	{                                                            \
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { \
			CU_MEM_LOCATION_TYPE_DEVICE,                 \
			0                                            \
		}                                                    \
	}
#define POOL_OF_GPU_0                                                     \
	{                                                                 \
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { \
			CU_MEM_LOCATION_TYPE_DEVICE,                      \
			0                                                 \
		}                                                         \
	}

/* Initialises CUDA and makes the primary context of the device current. */
static inline CUcontext cuda_start(CUdevice device)
{
	CUcontext context = NULL;

	CHECK_OK(cuInit(0));
	CHECK_OK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK_OK(cuCtxSetCurrent(context));
	return context;
}

/* The memory that a device seems to have. */
static inline uint64_t total_of(CUdevice device)
{
	size_t bytes = 0;

	CHECK_OK(cuDeviceTotalMem_v2(&bytes, device));
	return bytes;
}

static inline CUdeviceptr take(uint64_t bytes)
{
	CUdeviceptr address = 0;

	CHECK_OK(cuMemAlloc_v2(&address, bytes));
	CHECK(address != 0);
	return address;
}

static inline void give(CUdeviceptr address)
{
	CHECK_OK(cuMemFree_v2(address));
}

/* The allocation is refused as the driver refuses: with the output as it was. */
static inline void refused(uint64_t bytes)
{
	CUdeviceptr address = UNTOUCHED;

	CHECK_EQUAL(cuMemAlloc_v2(&address, bytes), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(address, UNTOUCHED);
}

/* Fills the device with pieces of `bytes` until it is refused. Returns how many there were. */
static inline unsigned fill(CUdeviceptr *pieces, unsigned max, uint64_t bytes)
{
	unsigned count = 0;
	CUdeviceptr address = UNTOUCHED;
	CUresult result;

	while ((result = cuMemAlloc_v2(&address, bytes)) == CUDA_SUCCESS) {
		CHECK(count < max);
		pieces[count++] = address;
		address = UNTOUCHED;
	}
	CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(address, UNTOUCHED);
	return count;
}
