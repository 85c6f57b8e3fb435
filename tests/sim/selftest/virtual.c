/*
 * Virtual memory: what it costs and when it goes, as measured on a real driver, and that what is
 * mapped can be used.
 */
#include "selftest.h"

#include <unistd.h>

static uint64_t start; /* what the context costs */

static uint64_t held(void)
{
	uint64_t used = selftest_used(0);

	CHECK_EQUAL(selftest_process_bytes(0, getpid()), used - FIRST);
	return used - start;
}

static const CUmemAllocationProp on_device = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
};

static CUmemGenericAllocationHandle create(size_t bytes)
{
	CUmemGenericAllocationHandle handle;

	CHECK_OK(cuMemCreate(&handle, bytes, &on_device, 0));
	return handle;
}

static CUdeviceptr reserve(size_t bytes)
{
	CUdeviceptr p;

	CHECK_OK(cuMemAddressReserve(&p, bytes, 0, 0, 0));
	return p;
}

static void access_give(CUdeviceptr p, size_t bytes)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	CHECK_OK(cuMemSetAccess(p, bytes, &access, 1));
}

static void test_create(void)
{
	CUmemGenericAllocationHandle handle = 0;
	CUmemAllocationProp prop = on_device;
	size_t granularity;

	CHECK_OK(cuMemGetAllocationGranularity(&granularity, &prop,
					       CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK_EQUAL(granularity, 2 * MIB);
	CHECK_EQUAL(cuMemCreate(&handle, 3 * MIB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemCreate(&handle, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemCreate(&handle, 8 * GIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	prop.location.id = 1;
	CHECK_EQUAL(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(held(), 0);
	handle = create(64 * MIB);
	CHECK_EQUAL(held(), 64 * MIB);
	CHECK_OK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
	CHECK_EQUAL(prop.type, CU_MEM_ALLOCATION_TYPE_PINNED);
	CHECK_EQUAL(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
	CHECK_EQUAL(prop.location.id, 0);
	CHECK_OK(cuMemRelease(handle));
	CHECK_EQUAL(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(held(), 0);
}

static void test_host(void)
{
	static const unsigned types[] = {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA};
	CUmemAllocationProp prop = on_device;
	CUmemGenericAllocationHandle handle;

	for (int i = 0; i < 2; i++) {
		prop.location = (CUmemLocation){types[i], 0};
		CHECK_OK(cuMemCreate(&handle, 64 * MIB, &prop, 0));
		CHECK_EQUAL(held(), 0);
		CHECK_OK(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
		CHECK_EQUAL(prop.location.type, types[i]);
		CHECK_OK(cuMemRelease(handle));
	}
}

/* The memory goes with the last of: the creator's handle, retained ones, mappings. */
static void test_references(void)
{
	CUmemGenericAllocationHandle handle = create(8 * MIB), again, third;
	CUdeviceptr p = reserve(16 * MIB);

	CHECK_OK(cuMemMap(p, 8 * MIB, 0, handle, 0));
	CHECK_OK(cuMemMap(p + 8 * MIB, 8 * MIB, 0, handle, 0));
	CHECK_EQUAL(held(), 8 * MIB);
	CHECK_OK(cuMemRelease(handle));
	CHECK_EQUAL(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(held(), 8 * MIB);
	CHECK_OK(cuMemRetainAllocationHandle(&again, (void *)(p + MIB)));
	CHECK_EQUAL(again, handle);
	CHECK_OK(cuMemRetainAllocationHandle(&third, (void *)p));
	CHECK_EQUAL(third, handle);
	CHECK_OK(cuMemUnmap(p, 8 * MIB));
	CHECK_OK(cuMemUnmap(p + 8 * MIB, 8 * MIB));
	CHECK_EQUAL(held(), 8 * MIB);
	CHECK_OK(cuMemRelease(handle));
	CHECK_EQUAL(held(), 8 * MIB);
	CHECK_OK(cuMemRelease(handle));
	CHECK_EQUAL(held(), 0);
	CHECK_EQUAL(cuMemRetainAllocationHandle(&again, (void *)p), CUDA_ERROR_INVALID_VALUE);
	handle = create(8 * MIB);
	CHECK_OK(cuMemMap(p, 8 * MIB, 0, handle, 0));
	CHECK_OK(cuMemRelease(handle));
	CHECK_EQUAL(held(), 8 * MIB);
	CHECK_EQUAL(cuMemAddressFree(p, 16 * MIB), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemUnmap(p, 8 * MIB));
	CHECK_EQUAL(held(), 0);
	CHECK_EQUAL(cuMemAddressFree(p, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemAddressFree(p, 16 * MIB));
}

static void test_mapping(void)
{
	CUmemGenericAllocationHandle handle = create(4 * MIB);
	CUdeviceptr p = reserve(16 * MIB), elsewhere;

	CHECK_EQUAL(cuMemMap(p, 2 * MIB, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuMemMap(p, 2 * MIB, 2 * MIB, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuMemMap(p + 14 * MIB, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemAlloc_v2(&elsewhere, 4 * MIB));
	CHECK_EQUAL(cuMemMap(elsewhere, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemFree_v2(elsewhere));
	for (size_t at = 0; at < 16 * MIB; at += 4 * MIB)
		CHECK_OK(cuMemMap(p + at, 4 * MIB, 0, handle, 0));
	CHECK_EQUAL(cuMemMap(p, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemUnmap(p, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemUnmap(p + 2 * MIB, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemUnmap(p, 6 * MIB), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemUnmap(p, 12 * MIB));
	CHECK_EQUAL(cuMemUnmap(p, 16 * MIB), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemRelease(handle));
	CHECK_EQUAL(held(), 4 * MIB);
	CHECK_OK(cuMemUnmap(p + 12 * MIB, 4 * MIB));
	CHECK_EQUAL(held(), 0);
	CHECK_OK(cuMemAddressFree(p, 16 * MIB));
}

/* Across a border of two mappings; the same memory at two addresses; and still there when it is
 * mapped again. */
static void test_contents(void)
{
	CUmemGenericAllocationHandle a = create(2 * MIB), b = create(2 * MIB);
	CUdeviceptr p = reserve(6 * MIB), base;
	unsigned words[4] = {1, 2, 3, 4}, back[4] = {0};
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	unsigned long long flags;
	size_t size;
	unsigned type;

	CHECK_OK(cuMemMap(p, 2 * MIB, 0, a, 0));
	CHECK_OK(cuMemMap(p + 2 * MIB, 2 * MIB, 0, b, 0));
	CHECK_EQUAL(cuMemsetD8_v2(p, 1, MIB), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemcpy(p, (uintptr_t)words, sizeof words), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemGetAccess(&flags, &location, p));
	CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	access_give(p, 4 * MIB);
	CHECK_OK(cuMemGetAccess(&flags, &location, p));
	CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CHECK_OK(cuMemsetD8_v2(p, 0, 4 * MIB));
	CHECK_EQUAL(cuMemsetD8_v2(p, 0, 4 * MIB + 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemcpyHtoD_v2(p + 2 * MIB - 8, words, sizeof words));
	CHECK_OK(cuMemcpyDtoH_v2(back, p + 2 * MIB - 8, sizeof back));
	CHECK(back[0] == 1 && back[3] == 4);
	CHECK_OK(cuMemGetAddressRange_v2(&base, &size, p + 3 * MIB));
	CHECK_EQUAL(base, p + 2 * MIB);
	CHECK_EQUAL(size, 2 * MIB);
	CHECK_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	CHECK_EQUAL(type, CU_MEMORYTYPE_DEVICE);
	CHECK_OK(cuMemMap(p + 4 * MIB, 2 * MIB, 0, b, 0));
	CHECK_OK(cuMemUnmap(p, 4 * MIB));
	access_give(p + 4 * MIB, 2 * MIB);
	CHECK_OK(cuMemcpyDtoH_v2(back, p + 4 * MIB, 8));
	CHECK(back[0] == 3 && back[1] == 4);
	CHECK_EQUAL(cuMemcpyDtoH_v2(back, p, 8), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemUnmap(p + 4 * MIB, 2 * MIB));
	CHECK_OK(cuMemRelease(a));
	CHECK_OK(cuMemRelease(b));
	CHECK_OK(cuMemAddressFree(p, 6 * MIB));
	CHECK_EQUAL(held(), 0);
}

/* A multicast object takes nothing, but keeps what is bound to it. */
static void test_multicast(void)
{
	CUmulticastObjectProp prop = {.numDevices = 1, .size = 8 * MIB};
	CUmemGenericAllocationHandle multicast, a = create(2 * MIB), b = create(4 * MIB);
	CUdeviceptr p = reserve(4 * MIB);

	CHECK_OK(cuMulticastCreate(&multicast, &prop));
	CHECK_EQUAL(held(), 6 * MIB);
	CHECK_EQUAL(cuMulticastBindMem(multicast, 0, a, 0, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMulticastAddDevice(multicast, 0));
	CHECK_EQUAL(cuMulticastAddDevice(multicast, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMulticastBindMem(multicast, 0, a, 0, 2 * MIB, 0));
	CHECK_EQUAL(cuMulticastBindMem(multicast, 6 * MIB, b, 0, 4 * MIB, 0),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemMap(p, 4 * MIB, 0, b, 0));
	CHECK_OK(cuMulticastBindAddr(multicast, 2 * MIB, p, 4 * MIB, 0));
	CHECK_OK(cuMemUnmap(p, 4 * MIB));
	CHECK_OK(cuMemRelease(a));
	CHECK_OK(cuMemRelease(b));
	CHECK_EQUAL(held(), 6 * MIB);
	CHECK_OK(cuMulticastUnbind(multicast, 0, 0, 2 * MIB));
	CHECK_EQUAL(held(), 4 * MIB);
	CHECK_OK(cuMemRelease(multicast));
	CHECK_EQUAL(held(), 0);
	CHECK_OK(cuMemAddressFree(p, 4 * MIB));
}

/* It belongs to the process. */
static void test_contexts_end(void)
{
	CUmemGenericAllocationHandle handle = create(32 * MIB);

	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(selftest_used(0), 3 * MIB + 32 * MIB);
	CHECK_OK(cuMemRelease(handle));
	CHECK_EQUAL(selftest_used(0), 3 * MIB);
}

int main(void)
{
	CUmemGenericAllocationHandle handle;

	selftest_begin("1x8G");
	CHECK_EQUAL(cuMemCreate(&handle, 2 * MIB, &on_device, 0), CUDA_ERROR_NOT_INITIALIZED);
	selftest_context();
	start = selftest_used(0);
	test_create();
	test_host();
	test_references();
	test_mapping();
	test_contents();
	if (selftest_is_simulated())
		test_multicast();
	test_contexts_end();
	return 0;
}
