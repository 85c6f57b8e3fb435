#include "kinds.h"

#define ROW MIB

static CUresult make_pitched(uint64_t bytes, CUdeviceptr *ret_address)
{
	size_t pitch;

	return cuMemAllocPitch_v2(ret_address, &pitch, ROW, bytes / ROW, 4);
}

/* The handle is given up as soon as it is mapped. */
static CUresult make_mapped(uint64_t bytes, CUdeviceptr *ret_address)
{
	CUmemAllocationProp prop = MEMORY_OF_GPU_0;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr space;
	CUresult result = cuMemCreate(&handle, bytes, &prop, 0);

	if (result != CUDA_SUCCESS)
		return result;
	CHECK_OK(cuMemAddressReserve(&space, bytes, 0, 0, 0));
	result = cuMemMap(space, bytes, 0, handle, 0);
	CHECK_OK(cuMemRelease(handle));
	if (result == CUDA_SUCCESS)
		*ret_address = space;
	else
		CHECK_OK(cuMemAddressFree(space, bytes));
	return result;
}

static CUresult make_array(uint64_t bytes, CUarray *ret_array)
{
	CUDA_ARRAY_DESCRIPTOR flat = {.Width = 16384,
				      .Height = bytes / (16384 * sizeof(float)),
				      .Format = CU_AD_FORMAT_FLOAT,
				      .NumChannels = 1};

	return cuArrayCreate_v2(ret_array, &flat);
}

CUresult thing_make(enum kind kind, uint64_t bytes, CUstream stream, struct thing *ret_thing)
{
	struct thing thing = {.kind = kind, .bytes = bytes};
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	switch (kind) {
	case KIND_DEVICE:
		result = cuMemAlloc_v2(&thing.address, bytes);
		break;
	case KIND_PITCH:
		result = make_pitched(bytes, &thing.address);
		break;
	case KIND_MANAGED:
		result = cuMemAllocManaged(&thing.address, bytes, 1);
		break;
	case KIND_ASYNC:
		result = cuMemAllocAsync(&thing.address, bytes, stream);
		break;
	case KIND_HANDLE:
		result = make_mapped(bytes, &thing.address);
		break;
	case KIND_ARRAY:
		result = make_array(bytes, &thing.array);
		break;
	case KINDS:
		break;
	}
	if (result == CUDA_SUCCESS)
		*ret_thing = thing;
	return result;
}

CUresult thing_end(const struct thing *thing, CUstream stream)
{
	CUresult result;

	switch (thing->kind) {
	case KIND_ASYNC:
		return cuMemFreeAsync(thing->address, stream);
	case KIND_HANDLE:
		result = cuMemUnmap(thing->address, thing->bytes);
		CHECK_OK(cuMemAddressFree(thing->address, thing->bytes));
		return result;
	case KIND_ARRAY:
		return cuArrayDestroy(thing->array);
	default:
		return cuMemFree_v2(thing->address);
	}
}
