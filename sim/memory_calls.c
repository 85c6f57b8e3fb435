/*
 * The driver's functions about device memory, over memory.c. Memory of pools and graphs is freed by
 * these.
 */
#include "sim.h"

enum {
	PITCH_BYTES = 512,
	ELEMENT_MAX_BYTES = 16,
};

static CUresult allocate(const char *function, const void *out, size_t bytes, enum block_kind kind,
			 uint64_t *ret_address)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	if (!out || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	result = capture_unsafe();
	if (result)
		return result;
	return leave(function, memory_take(context, bytes, kind, ret_address));
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	uint64_t address;
	CUresult result = allocate(__func__, dptr, bytesize, BLOCK_DEVICE, &address);

	if (!result)
		*dptr = address;
	return result;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	uint64_t address;
	CUresult result = allocate(__func__, dptr, bytesize, BLOCK_LOW, &address);

	if (!result)
		*dptr = (CUdeviceptr_v1)address;
	return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	uint64_t address;
	bool flags_valid = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
	CUresult result =
		allocate(__func__, flags_valid ? dptr : NULL, bytesize, BLOCK_MANAGED, &address);

	if (!result)
		*dptr = address;
	return result;
}

static CUresult allocate_pitch(const char *function, const void *out, size_t width, size_t height,
			       unsigned element, enum block_kind kind, size_t *ret_pitch,
			       uint64_t *ret_address)
{
	size_t pitch = (width + PITCH_BYTES - 1) & ~(size_t)(PITCH_BYTES - 1), bytes;

	if (element != 4 && element != 8 && element != ELEMENT_MAX_BYTES)
		out = NULL;
	if (pitch < width || __builtin_mul_overflow(pitch, height, &bytes))
		bytes = SIZE_MAX;
	*ret_pitch = pitch;
	return allocate(function, out, bytes, kind, ret_address);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
			    unsigned int ElementSizeBytes)
{
	size_t pitch;
	uint64_t address;
	CUresult result = allocate_pitch(__func__, pPitch ? dptr : NULL, WidthInBytes, Height,
					 ElementSizeBytes, BLOCK_DEVICE, &pitch, &address);

	if (!result) {
		*dptr = address;
		*pPitch = pitch;
	}
	return result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
			 unsigned int Height, unsigned int ElementSizeBytes)
{
	size_t pitch;
	uint64_t address;
	CUresult result = allocate_pitch(__func__, pPitch ? dptr : NULL, WidthInBytes, Height,
					 ElementSizeBytes, BLOCK_LOW, &pitch, &address);

	if (!result) {
		*dptr = (CUdeviceptr_v1)address;
		*pPitch = (unsigned)pitch;
	}
	return result;
}

static CUresult release(const char *function, uint64_t address)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result || !address)
		return result;
	result = capture_unsafe();
	if (result)
		return result;
	if (!graph_give(address, NULL, &result)) {
		result = pool_give(address);
		if (result)
			result = external_give(address);
	}
	return leave(function, result);
}

CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
	return release(__func__, dptr);
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	return release(__func__, dptr);
}

/* The caller may pass NULL for either output, as with a real driver. */
static CUresult info_get(const char *function, uint64_t *ret_free, uint64_t *ret_total)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	uint64_t used = machine_used_bytes(context->gpu);
	*ret_total = config_get()->total_bytes[context->gpu];
	*ret_free = used < *ret_total ? *ret_total - used : 0;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	uint64_t available, total;
	CUresult result = info_get(__func__, &available, &total);

	if (!result && ret_free)
		*ret_free = available;
	if (!result && ret_total)
		*ret_total = total;
	return result;
}

CUresult cuMemGetInfo(unsigned int *ret_free, unsigned int *ret_total)
{
	uint64_t available, total;
	CUresult result = info_get(__func__, &available, &total);

	if (!result && ret_free)
		*ret_free = available > UINT32_MAX ? UINT32_MAX : (unsigned)available;
	if (!result && ret_total)
		*ret_total = total > UINT32_MAX ? UINT32_MAX : (unsigned)total;
	return result;
}

static CUresult range_get(const char *function, uint64_t address, struct memory_range *ret_range)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	return memory_find(address, ret_range) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct memory_range range;
	CUresult result = range_get(__func__, dptr, &range);

	if (!result && pbase)
		*pbase = range.address;
	if (!result && psize)
		*psize = range.bytes;
	return result;
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *pbase, unsigned int *psize, CUdeviceptr_v1 dptr)
{
	struct memory_range range;
	CUresult result = range_get(__func__, dptr, &range);

	if (!result && pbase)
		*pbase = (CUdeviceptr_v1)range.address;
	if (!result && psize)
		*psize = (unsigned)range.bytes;
	return result;
}
