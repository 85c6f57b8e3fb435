/*
 * Stream-ordered memory, as measured on a real driver: what a pool reserves, to the byte, when it
 * gives it back, and what survives what.
 */
#include "selftest.h"

#include <string.h>
#include <unistd.h>

#define MS selftest_ms

static const char ptx[] = ".version 7.0\n.entry spin_ns(.param .u64 ns) { ret; }\n";

static CUfunction spin;
static CUmemoryPool standard;
static CUstream stream, other;
static uint64_t start; /* in use before the first allocation */

static long long held(void)
{
	return (long long)(selftest_used(0) - start);
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	cuuint64_t value = 0;

	CHECK_OK(cuMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

/* Reserved, which is also what NVML says. */
static long long reserved(void)
{
	long long bytes = (long long)attribute(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);

	CHECK_EQUAL(selftest_process_bytes(0, getpid()), (long long)CONTEXT + bytes);
	CHECK_EQUAL(held(), bytes);
	return bytes;
}

static long long used(void)
{
	return (long long)attribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

static CUdeviceptr take(size_t bytes)
{
	CUdeviceptr address = 0;

	CHECK_OK(cuMemAllocAsync(&address, bytes, stream));
	CHECK(address && address % 512 == 0);
	return address;
}

static void give(CUdeviceptr address)
{
	CHECK_OK(cuMemFreeAsync(address, stream));
}

static void synchronize(void)
{
	CHECK_OK(cuStreamSynchronize(stream));
}

static void launch(CUstream where, uint64_t ns)
{
	void *parameters[] = {&ns};

	CHECK_OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, where, parameters, NULL));
}

static void threshold_set(uint64_t bytes)
{
	CHECK_OK(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

static void reserves(size_t bytes, size_t expected)
{
	CUdeviceptr p = take(bytes);

	CHECK_EQUAL(reserved(), expected);
	CHECK_AFTER(give(p), used(), 0);
	CHECK_EQUAL(reserved(), expected);
	CHECK_AFTER(synchronize(), reserved(), 0);
}

static void test_rounding(void)
{
	CUdeviceptr p[32];

	CHECK_EQUAL(reserved(), 0);
	reserves(1, 32 * MIB);
	reserves(1000 * MIB, 1024 * MIB);
	reserves(32 * MIB, 32 * MIB);
	reserves(32 * MIB + 1, 64 * MIB);
	CHECK_AFTER(p[0] = take(513), used(), KIB);
	give(p[0]);
	for (int i = 0; i < 16; i++)
		p[i] = take(3 * MIB);
	CHECK_EQUAL(reserved(), 64 * MIB);
	for (int i = 0; i < 16; i++)
		give(p[i]);
	synchronize();
	for (int i = 0; i < 32; i++)
		p[i] = take(32 * MIB);
	for (int i = 0; i < 32; i += 2)
		give(p[i]);
	CHECK_EQUAL(reserved(), 1024 * MIB);
	CHECK_AFTER(p[0] = take(256 * MIB), reserved(), 1024 * MIB);
	CHECK_AFTER(synchronize(), reserved(), (16 * 32 + 256) * MIB);
	give(p[0]);
	for (int i = 1; i < 32; i += 2)
		give(p[i]);
	CHECK_AFTER(synchronize(), reserved(), 0);
}

/* Whom one must wait for that a pool gives back what is free. */
static void test_release(void)
{
	CUevent early, event;
	CUdeviceptr p = take(100 * MIB);

	CHECK_OK(cuEventCreate(&event, 0));
	CHECK_OK(cuEventCreate(&early, 0));
	CHECK_OK(cuEventRecord(early, stream));
	usleep(1000);
	give(p);
	CHECK_OK(cuStreamQuery(stream));
	CHECK_OK(cuStreamSynchronize(other));
	CHECK_OK(cuEventSynchronize(early));
	CHECK_EQUAL(reserved(), 128 * MIB);
	CHECK_OK(cuEventRecord(event, stream));
	CHECK_OK(cuEventSynchronize(event));
	CHECK_EQUAL(reserved(), 0);
	p = take(100 * MIB);
	give(p);
	CHECK_OK(cuCtxSynchronize());
	CHECK_EQUAL(reserved(), 0);
	p = take(100 * MIB);
	launch(stream, 50 * MS);
	CHECK_OK(cuEventRecord(event, stream));
	launch(stream, 50 * MS);
	give(p);
	CHECK_OK(cuEventSynchronize(event));
	CHECK_EQUAL(reserved(), 128 * MIB); /* what was free then was not yet */
	CHECK_OK(cuMemPoolTrimTo(standard, 0));
	CHECK_EQUAL(reserved(), 128 * MIB);
	CHECK_AFTER(synchronize(), reserved(), 0);
	CHECK_OK(cuEventDestroy(event));
	CHECK_OK(cuEventDestroy(early));
}

static void test_threshold_and_trim(void)
{
	CUdeviceptr p = take(200 * MIB), q = take(MIB);

	threshold_set(40 * MIB);
	give(p);
	CHECK_AFTER(synchronize(), reserved(), 64 * MIB);
	CHECK_AFTER(threshold_set(0), reserved(), 64 * MIB);
	CHECK_AFTER(synchronize(), reserved(), 32 * MIB);
	threshold_set(UINT64_MAX);
	give(take(500 * MIB));
	give(q);
	CHECK_AFTER(synchronize(), reserved(), 512 * MIB);
	CHECK_OK(cuMemPoolTrimTo(standard, 65 * MIB));
	CHECK_EQUAL(reserved(), 96 * MIB);
	CHECK_AFTER(q = take(MIB), reserved(), 96 * MIB);
	give(q);
	CHECK_OK(cuMemPoolTrimTo(standard, 0)); /* without waiting */
	CHECK_EQUAL(reserved(), 0);
	threshold_set(0);
}

/* Another stream may have what this one freed, and waits for it; or not, if the pool is told so. */
static void test_reuse(void)
{
	int no = 0, yes = 1;
	uint64_t begin = selftest_now_ns();
	CUdeviceptr p = take(64 * MIB), q;

	launch(stream, 60 * MS);
	give(p);
	CHECK_OK(cuMemAllocAsync(&q, 64 * MIB, other));
	CHECK_EQUAL(reserved(), 64 * MIB);
	CHECK_EQUAL(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	CHECK_OK(cuMemFreeAsync(q, other));
	CHECK_OK(cuStreamSynchronize(other));
	CHECK(selftest_now_ns() - begin >= 60 * MS);
	CHECK_EQUAL(reserved(), 0);
	CHECK_OK(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
				       &no));
	p = take(64 * MIB);
	launch(stream, 60 * MS);
	give(p);
	CHECK_OK(cuMemAllocAsync(&q, 64 * MIB, other));
	CHECK_EQUAL(reserved(), 128 * MIB);
	CHECK_OK(cuStreamQuery(other));
	CHECK_OK(cuMemFreeAsync(q, other));
	CHECK_OK(cuCtxSynchronize());
	CHECK_EQUAL(reserved(), 0);
	CHECK_OK(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
				       &yes));
}

static void test_attributes(void)
{
	cuuint64_t zero = 0, one = 1;
	CUdeviceptr p;
	int flag = 0;

	CHECK_EQUAL(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero), 0);
	CHECK_EQUAL(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero), 0);
	CHECK_EQUAL(attribute(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0);
	p = take(5 * MIB);
	give(p);
	synchronize();
	CHECK_EQUAL(attribute(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 32 * MIB);
	CHECK_EQUAL(attribute(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 5 * MIB);
	CHECK_EQUAL(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &flag));
	CHECK_EQUAL(flag, 1);
	CHECK_EQUAL(cuMemPoolGetAttribute(standard, 99, &flag), CUDA_ERROR_INVALID_VALUE);
}

/* A pointer from a pool is one like others. */
static void test_pointers(void)
{
	CUdeviceptr p = take(3 * MIB), base;
	unsigned words[2] = {0}, type = 0, managed = 1;
	CUmemoryPool pool = NULL;
	CUcontext context = (CUcontext)words;
	int device = -1;
	size_t bytes;

	CHECK_OK(cuMemsetD32_v2(p, 7, 3 * MIB / 4));
	CHECK_OK(cuMemcpyDtoH_v2(words, p + 3 * MIB - 8, 8));
	CHECK(words[0] == 7 && words[1] == 7);
	CHECK_EQUAL(cuMemsetD8_v2(p, 0, 3 * MIB + 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemGetAddressRange_v2(&base, &bytes, p + MIB));
	CHECK(base == p && bytes == 3 * MIB);
	CHECK_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
	CHECK_EQUAL(type, CU_MEMORYTYPE_DEVICE);
	CHECK_OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	CHECK_EQUAL(managed, 0);
	CHECK_OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	CHECK_EQUAL(device, 0);
	CHECK_OK(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p + 5));
	CHECK(pool == standard);
	CHECK_OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	CHECK(!context);
	CHECK_EQUAL(cuMemFreeAsync(p + 512, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemFree_v2(p));
	CHECK_EQUAL(used(), 0);
	CHECK_EQUAL(reserved(), 0);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFreeAsync(0, stream), CUDA_ERROR_INVALID_VALUE);
}

/* Memory that is from no pool goes in the order of a stream, too, unless it is managed. */
static void test_late(void)
{
	CUdeviceptr p, q;

	CHECK_OK(cuMemAlloc_v2(&p, 10 * MIB));
	CHECK_OK(cuMemAllocManaged(&q, 10 * MIB, CU_MEM_ATTACH_GLOBAL));
	give(p);
	CHECK_EQUAL(cuMemFreeAsync(q, stream), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuMemFreeAsync(p, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(held(), 20 * MIB);
	CHECK_OK(cuStreamSynchronize(other));
	CHECK_EQUAL(held(), 20 * MIB);
	CHECK_AFTER(synchronize(), held(), 10 * MIB);
	CHECK_OK(cuMemFree_v2(q));
	CHECK_EQUAL(held(), 0);
}

static void test_refused(void)
{
	CUdeviceptr p;

	CHECK_EQUAL(cuMemAllocAsync(&p, 0, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocAsync(NULL, 1, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&p, 1, NULL, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocAsync(&p, (size_t)1 << 40, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAllocAsync(&p, SIZE_MAX, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(reserved(), 0);
	CHECK_EQUAL(used(), 0);
}

static CUmemoryPool pool_new(CUmemAllocationType type, unsigned location)
{
	CUmemPoolProps properties = {.allocType = type, .location = {location, 0}};
	CUmemoryPool pool;

	CHECK_OK(cuMemPoolCreate(&pool, &properties));
	return pool;
}

static CUdeviceptr take_from(CUmemoryPool pool, size_t bytes)
{
	CUdeviceptr p;

	CHECK_OK(cuMemAllocFromPoolAsync(&p, bytes, pool, stream));
	return p;
}

static void test_own_pool(void)
{
	CUmemoryPool pool = pool_new(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE);
	CUmemoryPool current;
	CUdeviceptr p, q;

	CHECK_OK(cuDeviceGetMemPool(&current, 0));
	CHECK(current == standard);
	CHECK_OK(cuDeviceSetMemPool(0, pool));
	CHECK_OK(cuDeviceGetMemPool(&current, 0));
	CHECK(current == pool);
	CHECK_EQUAL(cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuDeviceSetMemPool(2, pool), CUDA_ERROR_INVALID_DEVICE);
	p = take(40 * MIB);
	q = take_from(pool, 100);
	CHECK_EQUAL(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
	CHECK_EQUAL(held(), 64 * MIB);
	CHECK_EQUAL(used(), 0);
	CHECK_OK(cuMemPoolDestroy(pool));
	CHECK_EQUAL(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuDeviceGetMemPool(&current, 0));
	CHECK(current == standard);
	CHECK_AFTER(synchronize(), held(), 64 * MIB);
	CHECK_OK(cuMemsetD8_v2(p, 1, 40 * MIB));
	give(p);
	CHECK_AFTER(give(q), held(), 64 * MIB);
	CHECK_AFTER(synchronize(), held(), 0);
	CHECK_EQUAL(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
}

static void test_managed_pool(void)
{
	CUmemoryPool pool = pool_new(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE);
	CUdeviceptr p = take_from(pool, 40 * MIB);
	unsigned managed = 0;

	CHECK_EQUAL(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
	CHECK_EQUAL(held(), 64 * MIB);
	CHECK_EQUAL(selftest_process_bytes(0, getpid()), CONTEXT);
	CHECK_OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	CHECK_EQUAL(managed, 1);
	give(p);
	synchronize();
	CHECK_EQUAL(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	CHECK_EQUAL(held(), 64 * MIB);
	CHECK_OK(cuMemPoolDestroy(pool));
	CHECK_EQUAL(held(), 0);
}

static void test_host_pool(void)
{
	static const unsigned locations[] = {CU_MEM_LOCATION_TYPE_HOST,
					     CU_MEM_LOCATION_TYPE_HOST_NUMA};
	CUmemPoolProps wrong = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};

	for (int i = 0; i < 2; i++) {
		CUmemoryPool pool = pool_new(CU_MEM_ALLOCATION_TYPE_PINNED, locations[i]);
		CUdeviceptr p = take_from(pool, 40 * MIB);

		CHECK_EQUAL(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
		CHECK_EQUAL(held(), 0);
		*(char *)p = 1;
		give(p);
		CHECK_OK(cuMemPoolDestroy(pool));
	}
	CHECK_EQUAL(cuMemPoolCreate(&standard, &wrong), CUDA_ERROR_INVALID_VALUE);
	wrong.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 2};
	CHECK_EQUAL(cuMemPoolCreate(&standard, &wrong), CUDA_ERROR_INVALID_VALUE);
}

static void test_by_location(void)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, peer = {1, 1};
	CUmemAccessDesc access = {peer, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemoryPool pool = NULL, managed = NULL;
	CUmemAccess_flags flags = 9;

	CHECK_EQUAL(cuMemGetDefaultMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED), 0);
	CHECK(pool == standard);
	CHECK_EQUAL(cuMemGetDefaultMemPool(&managed, &location, CU_MEM_ALLOCATION_TYPE_MANAGED), 0);
	CHECK(managed != standard);
	CHECK_EQUAL(cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, managed),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemGetMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_MANAGED), 0);
	CHECK(pool == managed);
	CHECK_OK(cuMemPoolGetAccess(&flags, standard, &peer));
	CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	CHECK_OK(cuMemPoolSetAccess(standard, &access, 1));
	CHECK_OK(cuMemPoolGetAccess(&flags, standard, &peer));
	CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	access = (CUmemAccessDesc){location, CU_MEM_ACCESS_FLAGS_PROT_NONE};
	CHECK_EQUAL(cuMemPoolSetAccess(standard, &access, 1), CUDA_ERROR_INVALID_VALUE);
}

/* Pools are the device's: contexts end, they stay. Last: it ends the primary context. */
static void test_contexts_end(void)
{
	CUdeviceptr p = take(10 * MIB), q, late, again;
	CUstream fresh[2];
	CUcontext context;

	CHECK_OK(cuMemAlloc_v2(&late, 2 * MIB));
	q = take(60 * MIB);
	give(late);
	give(q);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(attribute(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 96 * MIB);
	CHECK_EQUAL(selftest_used(0), start - CONTEXT - 6 * MIB + 96 * MIB);
	CHECK_OK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_EQUAL(reserved(), 96 * MIB);
	CHECK_EQUAL(used(), 10 * MIB);
	CHECK_OK(cuMemAlloc_v2(&again, 2 * MIB)); /* where the late one was, mostly */
	CHECK_OK(cuStreamCreate(&fresh[0], 1));
	CHECK_OK(cuStreamCreate(&fresh[1], 1));
	CHECK_OK(cuStreamSynchronize(fresh[fresh[0] == stream]));
	CHECK_EQUAL(held(), 34 * MIB); /* nobody else could wait for that free any more */
	CHECK_OK(cuMemFree_v2(again));
	CHECK_OK(cuMemFreeAsync(p, NULL));
	CHECK_OK(cuStreamSynchronize(NULL));
	CHECK_EQUAL(reserved(), 0);
}

static void test_all(void)
{
	CUmodule module;
	CUdeviceptr p;

	CHECK_EQUAL(cuMemAllocAsync(&p, 1, NULL), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_OK(cuInit(0));
	CHECK_OK(cuDeviceGetDefaultMemPool(&standard, 0)); /* needs no context */
	CHECK_EQUAL(cuMemAllocAsync(&p, 1, NULL), CUDA_ERROR_INVALID_CONTEXT);
	selftest_context();
	start = selftest_used(0);
	CHECK_OK(cuModuleLoadData(&module, ptx));
	CHECK_OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	CHECK_OK(cuStreamCreate(&stream, 1));
	CHECK_OK(cuStreamCreate(&other, 1));
	test_rounding();
	test_release();
	test_threshold_and_trim();
	test_reuse();
	test_attributes();
	test_pointers();
	test_late();
	test_refused();
	test_own_pool();
	test_managed_pool();
	test_host_pool();
	test_by_location();
	test_contexts_end();
}

int main(void)
{
	selftest_begin("2x80G");
	return selftest_unhurried(test_all);
}
