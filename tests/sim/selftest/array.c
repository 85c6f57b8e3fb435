/*
 * Arrays: their sizes and what they take, as measured on a real driver.
 */
#include "selftest.h"

#include <unistd.h>

#define SIXTEENTHS(n) ((size_t)((n)*16 + 0.5) * 64 * KIB) /* of a MiB */

static uint64_t start; /* what the context costs */

static uint64_t held(void)
{
	uint64_t used = selftest_used(0);

	CHECK_EQUAL(selftest_process_bytes(0, getpid()), used - FIRST);
	return used - start;
}

static size_t granules(size_t bytes)
{
	return (bytes + 2 * MIB - 1) / (2 * MIB) * 2 * MIB;
}

static const struct {
	double mib; /* as measured */
	CUDA_ARRAY3D_DESCRIPTOR desc;
	unsigned levels; /* 0: no mipmaps */
} measured[] = {
	{64, {16384, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 0},
	{0.0625, {1000, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 0},
	{2.3125, {333, 777, 0, CU_AD_FORMAT_HALF, 4, 0}, 0},
	{3.9375, {1000, 1000, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 0},
	{5, {100, 100, 100, CU_AD_FORMAT_FLOAT, 1, 0}, 0},
	{7, {500, 500, 7, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED}, 0},
	{10.5625, {300, 300, 6, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_CUBEMAP}, 0},
	{8, {4096, 4096, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}, 0},
	{16, {4096, 4096, 0, CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 0}, 0},
	{50, {4096, 0, 100, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_LAYERED}, 0},
	{85.375, {4096, 4096, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 13},
	{3.5625, {1000, 600, 0, CU_AD_FORMAT_HALF, 2, 0}, 10},
};

static void test_size(unsigned i)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS need;
	CUDA_ARRAY3D_DESCRIPTOR desc = measured[i].desc;
	size_t bytes = SIXTEENTHS(measured[i].mib);
	CUmipmappedArray mipmap;
	CUarray array;

	if (measured[i].levels) {
		CHECK_OK(cuMipmappedArrayCreate(&mipmap, &desc, measured[i].levels));
		CHECK_EQUAL(held(), granules(bytes));
		CHECK_OK(cuMipmappedArrayDestroy(mipmap));
		CHECK_EQUAL(cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
		desc.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
		CHECK_OK(cuMipmappedArrayCreate(&mipmap, &desc, measured[i].levels));
		CHECK_OK(cuMipmappedArrayGetMemoryRequirements(&need, mipmap, 0));
		CHECK_EQUAL(held(), 0);
		CHECK_OK(cuMipmappedArrayDestroy(mipmap));
	} else {
		CHECK_OK(cuArray3DCreate_v2(&array, &desc));
		CHECK_EQUAL(held(), granules(bytes));
		CHECK_EQUAL(cuArrayGetMemoryRequirements(&need, array, 0),
			    CUDA_ERROR_INVALID_VALUE);
		CHECK_OK(cuArrayDestroy(array));
		CHECK_EQUAL(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
		desc.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
		CHECK_OK(cuArray3DCreate_v2(&array, &desc));
		CHECK_OK(cuArrayGetMemoryRequirements(&need, array, 0));
		CHECK_EQUAL(held(), 0);
		CHECK_OK(cuArrayDestroy(array));
	}
	CHECK_EQUAL(need.size, bytes);
	CHECK_EQUAL(need.alignment, 65536);
	CHECK_EQUAL(held(), 0);
}

/* Those of up to 1 MiB share granules with each other, and with nothing else. */
static void test_small(void)
{
	CUDA_ARRAY_DESCRIPTOR desc = {512, 512, CU_AD_FORMAT_FLOAT, 1};
	CUDA_ARRAY_DESCRIPTOR_v1 old = {512, 512, CU_AD_FORMAT_FLOAT, 1};
	CUDA_ARRAY3D_DESCRIPTOR_v1 old_3d = {512, 640, 0, CU_AD_FORMAT_FLOAT, 1, 0};
	CUarray a, b, c;
	CUdeviceptr p;

	CHECK_OK(cuArrayCreate_v2(&a, &desc));
	CHECK_EQUAL(held(), 2 * MIB);
	CHECK_OK(cuArrayCreate(&b, &old));
	CHECK_EQUAL(held(), 2 * MIB);
	CHECK_OK(cuArray3DCreate(&c, &old_3d)); /* 1.25 MiB */
	CHECK_EQUAL(held(), 4 * MIB);
	CHECK_OK(cuArrayDestroy(b));
	CHECK_OK(cuMemAlloc_v2(&p, KIB));
	CHECK_EQUAL(held(), 6 * MIB);
	desc.Height = 256;
	CHECK_OK(cuArrayCreate_v2(&b, &desc));
	CHECK_EQUAL(held(), 6 * MIB);
	CHECK_OK(cuMemFree_v2(p));
	CHECK_EQUAL(held(), 4 * MIB);
	CHECK_OK(cuArrayDestroy(c));
	CHECK_OK(cuArrayDestroy(a));
	CHECK_EQUAL(held(), 2 * MIB);
	CHECK_OK(cuArrayGetDescriptor_v2(&desc, b));
	CHECK_EQUAL(desc.Width, 512);
	CHECK_EQUAL(desc.Height, 256);
	CHECK_OK(cuArrayDestroy(b));
	CHECK_EQUAL(held(), 0);
}

static void test_refused(void)
{
	static const CUDA_ARRAY3D_DESCRIPTOR bad[] = {
		{0, 10, 0, CU_AD_FORMAT_FLOAT, 1, 0},
		{10, 10, 0, CU_AD_FORMAT_FLOAT, 3, 0},
		{10, 10, 0, 0x77, 1, 0},
		{10, 0, 10, CU_AD_FORMAT_FLOAT, 1, 0},
		{10, 10, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED},
		{10, 20, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP},
		{10, 10, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP},
		{10, 10, 0, CU_AD_FORMAT_FLOAT, 1,
		 CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING},
	};
	CUDA_ARRAY3D_DESCRIPTOR huge = {131072, 32768, 0, CU_AD_FORMAT_FLOAT, 4, 0};
	CUarray array;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		CHECK_EQUAL(cuArray3DCreate_v2(&array, &bad[i]), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuArray3DCreate_v2(&array, &huge), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(held(), 0);
}

static void test_levels(void)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = {1000, 600, 0, CU_AD_FORMAT_HALF, 2, 0};
	CUmipmappedArray mipmap;
	CUarray level, same;

	CHECK_OK(cuMipmappedArrayCreate(&mipmap, &desc, 10));
	CHECK_OK(cuMipmappedArrayGetLevel(&level, mipmap, 3));
	CHECK_OK(cuMipmappedArrayGetLevel(&same, mipmap, 3));
	CHECK(level == same);
	CHECK_OK(cuArray3DGetDescriptor_v2(&desc, level));
	CHECK_EQUAL(desc.Width, 125);
	CHECK_EQUAL(desc.Height, 75);
	CHECK_EQUAL(cuMipmappedArrayGetLevel(&same, mipmap, 10), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
	CHECK_OK(cuMipmappedArrayDestroy(mipmap));
	CHECK_EQUAL(cuArray3DGetDescriptor_v2(&desc, level), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(held(), 0);
}

/* Sparse arrays and those that are mapped later take nothing, and keep what is bound to them. */
static void test_bound(void)
{
	static const unsigned flags[] = {CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING};
	CUDA_ARRAY3D_DESCRIPTOR desc = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0};
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	for (int i = 0; i < 2; i++) {
		CUarrayMapInfo info = {.memOperationType = CU_MEM_OPERATION_TYPE_MAP};
		CUmemGenericAllocationHandle memory;
		CUarray array;

		desc.Flags = flags[i];
		CHECK_OK(cuArray3DCreate_v2(&array, &desc));
		CHECK_EQUAL(held(), 0);
		CHECK_OK(cuMemCreate(&memory, 4 * MIB, &prop, 0));
		info.resource = array;
		info.memHandle = memory;
		CHECK_OK(cuMemMapArrayAsync(&info, 1, NULL));
		CHECK_OK(cuMemMapArrayAsync_ptsz(&info, 1, NULL));
		CHECK_OK(cuMemRelease(memory));
		CHECK_EQUAL(held(), 4 * MIB);
		info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
		CHECK_OK(cuMemMapArrayAsync(&info, 1, NULL));
		CHECK_EQUAL(held(), 0);
		CHECK_OK(cuMemCreate(&memory, 4 * MIB, &prop, 0));
		info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
		info.memHandle = memory;
		CHECK_OK(cuMemMapArrayAsync(&info, 1, NULL));
		CHECK_OK(cuMemRelease(memory));
		CHECK_EQUAL(held(), 4 * MIB);
		CHECK_OK(cuArrayDestroy(array));
		CHECK_EQUAL(held(), 0);
	}
}

static void test_context_ends(void)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0};
	CUcontext context;
	CUarray array;

	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CHECK_OK(cuArray3DCreate_v2(&array, &desc));
	CHECK_OK(cuCtxDestroy_v2(context));
	CHECK_EQUAL(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(held(), 0);
}

int main(void)
{
	selftest_begin("1x8G");
	selftest_context();
	start = selftest_used(0);
	for (unsigned i = 0; i < sizeof measured / sizeof *measured; i++)
		test_size(i);
	test_small();
	test_refused();
	test_levels();
	test_bound();
	test_context_ends();
	return 0;
}
