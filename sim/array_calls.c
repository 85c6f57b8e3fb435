/*
 * The driver's functions about arrays, over array.c.
 */
#include "sim.h"

static CUresult create(const char *function, void **out, const CUDA_ARRAY3D_DESCRIPTOR *desc,
		       unsigned levels, enum handle_kind kind)
{
	CUcontext context;
	CUarray array;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	if (!out || !desc || !levels)
		return CUDA_ERROR_INVALID_VALUE;
	result = array_make(context, desc, levels, kind, true, &array);
	if (!result)
		*out = array;
	return leave(function, result);
}

static CUresult create_array(const char *function, CUarray *out,
			     const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	void *array = NULL;
	CUresult result = create(function, out ? &array : NULL, desc, 1, HANDLE_ARRAY);

	if (!result)
		*out = array;
	return result;
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
	const CUDA_ARRAY_DESCRIPTOR_v1 *old = pAllocateArray;
	CUDA_ARRAY3D_DESCRIPTOR desc = {0};

	if (old)
		desc = (CUDA_ARRAY3D_DESCRIPTOR){.Width = old->Width,
						 .Height = old->Height,
						 .Format = old->Format,
						 .NumChannels = old->NumChannels};
	return create_array(__func__, pHandle, old ? &desc : NULL);
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	const CUDA_ARRAY_DESCRIPTOR *flat = pAllocateArray;
	CUDA_ARRAY3D_DESCRIPTOR desc = {0};

	if (flat)
		desc = (CUDA_ARRAY3D_DESCRIPTOR){.Width = flat->Width,
						 .Height = flat->Height,
						 .Format = flat->Format,
						 .NumChannels = flat->NumChannels};
	return create_array(__func__, pHandle, flat ? &desc : NULL);
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
	const CUDA_ARRAY3D_DESCRIPTOR_v1 *old = pAllocateArray;
	CUDA_ARRAY3D_DESCRIPTOR desc = {0};

	if (old)
		desc = (CUDA_ARRAY3D_DESCRIPTOR){.Width = old->Width,
						 .Height = old->Height,
						 .Depth = old->Depth,
						 .Format = old->Format,
						 .NumChannels = old->NumChannels,
						 .Flags = old->Flags};
	return create_array(__func__, pHandle, old ? &desc : NULL);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	return create_array(__func__, pHandle, pAllocateArray);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
				const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
				unsigned int numMipmapLevels)
{
	const unsigned levels_max = 17; /* of the widest array */
	unsigned levels = numMipmapLevels < levels_max ? numMipmapLevels : levels_max;
	void *array = NULL;
	CUresult result = create(__func__, pHandle ? &array : NULL, pMipmappedArrayDesc, levels,
				 HANDLE_MIPMAP);

	if (!result)
		*pHandle = array;
	return result;
}

static CUresult destroy(const char *function, const void *handle, enum handle_kind kind)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	return result ? result : leave(function, array_destroy(handle, kind));
}

CUresult cuArrayDestroy(CUarray hArray)
{
	return destroy(__func__, hArray, HANDLE_ARRAY);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	return destroy(__func__, hMipmappedArray, HANDLE_MIPMAP);
}

static CUresult requirements(const char *function, CUDA_ARRAY_MEMORY_REQUIREMENTS *out,
			     const void *handle, enum handle_kind kind, CUdevice device)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);
	uint64_t bytes;
	unsigned gpu;

	if (result)
		return result;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_gpu(device, &gpu))
		return CUDA_ERROR_INVALID_DEVICE;
	result = array_requirements(handle, kind, &bytes);
	if (!result)
		*out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = bytes,
							.alignment = ARRAY_ALIGNMENT};
	return result;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
				      CUarray array, CUdevice device)
{
	return requirements(__func__, memoryRequirements, array, HANDLE_ARRAY, device);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
					       CUmipmappedArray mipmap, CUdevice device)
{
	return requirements(__func__, memoryRequirements, mipmap, HANDLE_MIPMAP, device);
}

static CUresult describe(const char *function, const void *out, CUarray array,
			 CUDA_ARRAY3D_DESCRIPTOR *ret_desc)
{
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	return out ? array_describe(array, ret_desc) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	CUresult result = describe(__func__, pArrayDescriptor, hArray, &desc);

	if (!result)
		*pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){desc.Width, desc.Height, desc.Format,
							    desc.NumChannels};
	return result;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	CUresult result = describe(__func__, pArrayDescriptor, hArray, &desc);

	if (!result)
		*pArrayDescriptor = desc;
	return result;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
				  unsigned int level)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	return pLevelArray ? array_part(hMipmappedArray, level, pLevelArray)
			   : CUDA_ERROR_INVALID_VALUE;
}

/* Waits for the stream, and maps at once. If an entry of the list is refused, those before it are
 * mapped. */
static CUresult map(const char *function, const CUarrayMapInfo *infos, unsigned count,
		    CUstream handle, bool per_thread)
{
	CUcontext context;
	CUstream stream;
	CUresult result = enter_context(function, &context);

	if (!result)
		result = stream_resolve(context, handle, per_thread, &stream);
	if (result)
		return result;
	if (!infos || !count)
		return CUDA_ERROR_INVALID_VALUE;
	stream_wait_ready(stream);
	for (unsigned i = 0; !result && i < count; i++)
		result = array_map(&infos[i]);
	return leave(function, result);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	return map(__func__, mapInfoList, count, hStream, false);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	return map(__func__, mapInfoList, count, hStream, true);
}
