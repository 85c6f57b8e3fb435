/*
 * The driver's functions about stream-ordered memory, over pool.c. On a stream that is captured
 * they make nodes instead (capture.c).
 */
#include "sim.h"

static CUresult enter_pool(const char *function, const void *out)
{
	CUresult result = enter(function);

	if (result)
		return result;
	return out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUmemLocation device_location(CUdevice device)
{
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

/* pool NULL: the current pool of the stream's device. */
static CUresult allocate(const char *function, CUdeviceptr *dptr, size_t bytes,
			 const CUmemoryPool *from, CUstream hStream, bool per_thread)
{
	CUcontext context;
	CUstream stream;
	CUmemoryPool pool;
	CUmemPoolProps properties;
	uint64_t address;
	bool capturing;
	CUresult result = enter_context(function, &context);

	if (!result)
		result = stream_resolve(context, hStream, per_thread, &stream);
	if (result)
		return result;
	if (!dptr || !bytes || (from && !*from))
		return CUDA_ERROR_INVALID_VALUE;
	CUmemLocation location = device_location(stream->context->device);
	if (from)
		pool = *from;
	else
		result = pool_current(&location, CU_MEM_ALLOCATION_TYPE_PINNED, &pool);
	if (!result)
		result = capture_enter(stream, &capturing);
	if (!result && capturing)
		result = pool_properties(pool, &properties);
	if (!result)
		result = capturing ? capture_take(stream, &properties, bytes, &address)
				   : pool_take(pool, bytes, stream, &address);
	if (!result)
		*dptr = address;
	return leave(function, result);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return allocate(__func__, dptr, bytesize, NULL, hStream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	return allocate(__func__, dptr, bytesize, NULL, hStream, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				 CUstream hStream)
{
	return allocate(__func__, dptr, bytesize, &pool, hStream, false);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
				      CUstream hStream)
{
	return allocate(__func__, dptr, bytesize, &pool, hStream, true);
}

static CUresult release(const char *function, uint64_t address, CUstream hStream, bool per_thread)
{
	CUcontext context;
	CUstream stream;
	bool capturing;
	CUresult result = enter_context(function, &context);

	if (!result)
		result = stream_resolve(context, hStream, per_thread, &stream);
	if (!result)
		result = capture_enter(stream, &capturing);
	if (result)
		return result;
	if (capturing)
		return capture_give(stream, address);
	if (!graph_give(address, stream, &result))
		result = pool_give_async(address, stream);
	return leave(function, result);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	return release(__func__, dptr, hStream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	return release(__func__, dptr, hStream, true);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	CUresult result = enter_pool(__func__, pool && poolProps ? pool : NULL);

	return result ? result : leave(__func__, pool_create(poolProps, pool));
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult result = enter_pool(__func__, pool);

	return result ? result : leave(__func__, pool_destroy(pool));
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	CUresult result = enter_pool(__func__, pool);

	return result ? result : leave(__func__, pool_trim(pool, minBytesToKeep));
}

static CUresult enter_device(const char *function, const void *out, CUdevice device)
{
	unsigned gpu;
	CUresult result = enter_pool(function, out);

	if (result)
		return result;
	return device_gpu(device, &gpu) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	CUmemLocation location = device_location(dev);
	CUresult result = enter_device(__func__, pool_out, dev);

	return result ? result : pool_default(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool_out);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	CUmemLocation location = device_location(dev);
	CUresult result = enter_device(__func__, pool, dev);

	return result ? result : pool_current(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	CUmemLocation location = device_location(dev);
	CUresult result = enter_device(__func__, pool, dev);

	if (!result)
		result = pool_set_current(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
	return leave(__func__, result);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
				CUmemAllocationType type)
{
	CUresult result = enter_pool(__func__, location ? pool_out : NULL);

	return result ? result : leave(__func__, pool_default(location, type, pool_out));
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
	CUresult result = enter_pool(__func__, location ? pool : NULL);

	return result ? result : leave(__func__, pool_current(location, type, pool));
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUresult result = enter_pool(__func__, location ? pool : NULL);

	return result ? result : leave(__func__, pool_set_current(location, type, pool));
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result = enter_pool(__func__, pool ? value : NULL);

	if (!result)
		result = capture_unsafe();
	return result ? result : pool_get_attribute(pool, attr, value);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult result = enter_pool(__func__, pool ? value : NULL);

	return result ? result : leave(__func__, pool_set_attribute(pool, attr, value));
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	CUresult result = enter_pool(__func__, map || !count ? pool : NULL);

	return result ? result : pool_set_access(pool, map, count);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
	CUresult result = enter_pool(__func__, flags && location ? memPool : NULL);

	return result ? result : pool_get_access(memPool, location, flags);
}
