/*
 * Memory with a handle that is mapped into sparse arrays or bound to multicast objects is charged
 * as long as they have it.
 */
#include "virtual_fixture.h"

#define ARRAY     0 /* of a CUarrayMapInfo */
#define MIPMAPPED 1

/* -- sparse arrays -- */

static CUarray sparse_array(void)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
	CUarray array = NULL;

	CHECK_CUDA(cuArray3DCreate_v2(&array, &desc), CUDA_SUCCESS);
	return array;
}

static CUarrayMapInfo place(void *array, unsigned number, unsigned operation, memory handle)
{
	return (CUarrayMapInfo){.resource = array,
				.subresource = {0, 0, number},
				.memOperationType = operation,
				.memHandle = handle};
}

TEST(sparse_mappings)
{
	memory a, b;
	CUarrayMapInfo list[2];
	CUarray array;

	start("1g");
	array = sparse_array();
	assert_data(0);
	a = created(4 * MIB);
	b = created(6 * MIB);
	list[0] = place(array, 0, CU_MEM_OPERATION_TYPE_MAP, a);
	list[1] = place(array, 1, CU_MEM_OPERATION_TYPE_MAP, b);
	CHECK_CUDA(cuMemMapArrayAsync(list, 2, NULL), CUDA_SUCCESS);
	release(a);
	release(b);
	assert_data(10 * MIB);
	list[0] = place(array, 2, CU_MEM_OPERATION_TYPE_MAP, a); /* no handle any more */
	CHECK_CUDA(cuMemMapArrayAsync(list, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_data(10 * MIB);
	list[0] = place(array, 0, CU_MEM_OPERATION_TYPE_UNMAP, 0);
	CHECK_CUDA(cuMemMapArrayAsync(list, 1, NULL), CUDA_SUCCESS);
	assert_data(6 * MIB);
	list[1].memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
	CHECK_CUDA(cuMemMapArrayAsync_ptsz(list + 1, 1, NULL), CUDA_SUCCESS);
	assert_data(0);
	CHECK_CUDA(cuMemMapArrayAsync(NULL, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemMapArrayAsync_ptsz(NULL, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuArrayDestroy(array), CUDA_SUCCESS);
	assert_data(0);
}

/* What is mapped where something is mapped already takes its place; it goes. */
TEST(sparse_remapped)
{
	memory a, b;
	CUarrayMapInfo info;
	CUarray array;

	start("1g");
	array = sparse_array();
	a = created(4 * MIB);
	b = created(6 * MIB);
	info = place(array, 0, CU_MEM_OPERATION_TYPE_MAP, a);
	for (unsigned i = 0; i < 3; i++) /* the same again */
		CHECK_CUDA(cuMemMapArrayAsync_ptsz(&info, 1, NULL), CUDA_SUCCESS);
	release(a);
	info.memHandle = b;
	CHECK_CUDA(cuMemMapArrayAsync(&info, 1, NULL), CUDA_SUCCESS);
	release(b);
	assert_data(6 * MIB);
	info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
	CHECK_CUDA(cuMemMapArrayAsync(&info, 1, NULL), CUDA_SUCCESS);
	assert_data(0);
	CHECK_CUDA(cuArrayDestroy(array), CUDA_SUCCESS);
}

/* As many tiles of an array as are more than the library lets go of at a time, each with memory of
 * its own. */
static void fill_tiles(void *array, unsigned type, unsigned tiles)
{
	for (unsigned i = 0; i < tiles; i++) {
		memory handle = created(2 * MIB);
		CUarrayMapInfo info = place(array, i, CU_MEM_OPERATION_TYPE_MAP, handle);

		info.resourceType = type;
		CHECK_CUDA(cuMemMapArrayAsync(&info, 1, NULL), CUDA_SUCCESS);
		release(handle);
	}
}

/* Its mappings go with the array. */
TEST(sparse_destroyed)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
	CUmipmappedArray levels;
	CUarray array, other;

	start("1g");
	array = sparse_array();
	other = sparse_array();
	fill_tiles(other, ARRAY, 1);
	fill_tiles(array, ARRAY, 40);
	assert_data(82 * MIB);
	CHECK_CUDA(cuArrayDestroy(array), CUDA_SUCCESS);
	assert_data(2 * MIB);
	CHECK_CUDA(cuMipmappedArrayCreate(&levels, &desc, 2), CUDA_SUCCESS);
	fill_tiles(levels, MIPMAPPED, 3);
	assert_data(8 * MIB);
	CHECK_CUDA(cuMipmappedArrayDestroy(levels), CUDA_SUCCESS);
	assert_data(2 * MIB);
	CHECK_CUDA(cuArrayDestroy(other), CUDA_SUCCESS);
	assert_data(0);
}

/* Or with its context. */
TEST(sparse_context_ends)
{
	CUcontext first, second;
	CUarray array;

	start("3g");
	CHECK_CUDA(cuCtxGetCurrent(&first), CUDA_SUCCESS);
	array = sparse_array();
	fill_tiles(array, ARRAY, 2);
	CHECK_CUDA(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	fill_tiles(sparse_array(), ARRAY, 40);
	CHECK_EQUAL(ledger_own(0).data, 84 * MIB);
	CHECK_CUDA(cuCtxDestroy_v2(second), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).data, 4 * MIB);
	CHECK_CUDA(cuCtxSetCurrent(first), CUDA_SUCCESS);
	CHECK_CUDA(cuArrayDestroy(array), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* The driver does what comes before the one that it refuses. */
TEST(sparse_half_done)
{
	CUarrayMapInfo list[2];
	CUarray array;
	memory a;

	start("1g");
	array = sparse_array();
	a = created(4 * MIB);
	list[0] = place(array, 0, CU_MEM_OPERATION_TYPE_MAP, a);
	list[1] = place(array, 1, CU_MEM_OPERATION_TYPE_MAP, 0);
	CHECK_CUDA(cuMemMapArrayAsync(list, 2, NULL), CUDA_ERROR_INVALID_VALUE);
	release(a);
	assert_data(4 * MIB);
	CHECK_CUDA(cuArrayDestroy(array), CUDA_SUCCESS);
	assert_data(0);
}

/* -- multicast objects -- */

static memory multicast(uint64_t bytes)
{
	CUmulticastObjectProp prop = {.numDevices = 1, .size = bytes};
	memory object = 0;

	CHECK_CUDA(cuMulticastCreate(&object, &prop), CUDA_SUCCESS);
	CHECK_CUDA(cuMulticastAddDevice(object, 0), CUDA_SUCCESS);
	return object;
}

TEST(multicast_bindings)
{
	CUdeviceptr space;
	memory object, a, b;

	start("1g");
	object = multicast(8 * MIB);
	assert_data(0);
	a = created(2 * MIB);
	b = created(4 * MIB);
	space = reserve(4 * MIB);
	map(space, 4 * MIB, b);
	CHECK_CUDA(cuMulticastBindMem(object, 0, a, 0, 2 * MIB, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuMulticastBindAddr(object, 2 * MIB, space, 4 * MIB, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuMulticastBindMem(object, 8 * MIB, a, 0, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMulticastBindAddr(object, 6 * MIB, space, 4 * MIB, 0),
		   CUDA_ERROR_INVALID_VALUE);
	release(a);
	release(b);
	assert_data(6 * MIB);
	unmap(space, 4 * MIB);
	assert_data(6 * MIB);
	CHECK_CUDA(cuMulticastBindAddr(object, 0, space, 4 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMulticastUnbind(object, 0, 6 * MIB, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_data(6 * MIB);
	CHECK_CUDA(cuMulticastUnbind(object, 0, 2 * MIB, 4 * MIB), CUDA_SUCCESS);
	assert_data(2 * MIB);
	CHECK_CUDA(cuMulticastUnbind(object, 0, 0, 2 * MIB), CUDA_SUCCESS);
	assert_data(0);
	release(object);
	assert_data(0);
}

/* Its bindings go with the object, which may be mapped: they keep their memory that long. */
TEST(multicast_released)
{
	CUdeviceptr space;
	memory object, handle;

	start("1g");
	object = multicast(8 * MIB);
	handle = created(2 * MIB);
	space = reserve(8 * MIB);
	CHECK_CUDA(cuMulticastBindMem(object, 0, handle, 0, 2 * MIB, 0), CUDA_SUCCESS);
	map(space, 8 * MIB, object);
	release(handle);
	assert_data(2 * MIB);
	release(object);
	assert_data(2 * MIB);
	unmap(space, 8 * MIB);
	assert_data(0);
}

/* One call unbinds several. */
TEST(multicast_range)
{
	memory object, a, b;

	start("1g");
	object = multicast(8 * MIB);
	a = created(2 * MIB);
	b = created(4 * MIB);
	CHECK_CUDA(cuMulticastBindMem(object, 0, a, 0, 2 * MIB, 0), CUDA_SUCCESS);
	CHECK_CUDA(cuMulticastBindMem(object, 2 * MIB, b, 0, 4 * MIB, 0), CUDA_SUCCESS);
	release(a);
	release(b);
	assert_data(6 * MIB);
	CHECK_CUDA(cuMulticastUnbind(object, 0, 0, 8 * MIB), CUDA_SUCCESS);
	assert_data(0);
	release(object);
}

/* -- the driver refuses -- */

TEST(bindings_refused)
{
	CUarrayMapInfo info;
	CUdeviceptr space;
	memory object, handle;

	env_set("VGPU_SIM_FAULTS",
		"cuMulticastBindMem@1=999,cuMulticastBindAddr@1=999,cuMulticastUnbind@1=999,"
		"cuMemMapArrayAsync@1=999,cuMemMapArrayAsync_ptsz@1=999");
	start("1g");
	object = multicast(8 * MIB);
	handle = created(2 * MIB);
	space = reserve(2 * MIB);
	map(space, 2 * MIB, handle);
	info = place(sparse_array(), 0, CU_MEM_OPERATION_TYPE_MAP, handle);
	CHECK_CUDA(cuMulticastBindMem(object, 0, handle, 0, 2 * MIB, 0), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuMulticastBindAddr(object, 0, space, 2 * MIB, 0), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuMemMapArrayAsync(&info, 1, NULL), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuMemMapArrayAsync_ptsz(&info, 1, NULL), CUDA_ERROR_UNKNOWN);
	release(handle);
	assert_data(2 * MIB);
	unmap(space, 2 * MIB);
	assert_data(0);
	handle = created(2 * MIB);
	CHECK_CUDA(cuMulticastBindMem(object, 0, handle, 0, 2 * MIB, 0), CUDA_SUCCESS);
	release(handle);
	CHECK_CUDA(cuMulticastUnbind(object, 0, 0, 2 * MIB), CUDA_ERROR_UNKNOWN);
	assert_data(2 * MIB);
	CHECK_CUDA(cuMulticastUnbind(object, 0, 0, 2 * MIB), CUDA_SUCCESS);
	assert_data(0);
}
