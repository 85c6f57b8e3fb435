/*
 * Copies and fills. A plain copy is the driver's function for its direction. Every other copy
 * becomes the driver's description of a copy in three dimensions.
 *
 * A copy or fill that waits is in the stream that it is given: NULL for the legacy null stream,
 * where the driver's own waiting functions do it, or the thread's stream, which is then waited for.
 */
#include "runtime.h"

#include <string.h>

/* After a call in a stream: waits for it, if the caller is to. */
static int finish(CUresult result, CUstream stream, bool wait)
{
	return (int)(result || !wait ? result : cu.cuStreamSynchronize(stream));
}

int rt_copy(void *target, const void *source, size_t bytes, enum cudaMemcpyKind kind,
	    CUstream stream, bool wait)
{
	CUdeviceptr to = (CUdeviceptr)target, from = (CUdeviceptr)source;
	bool now = wait && !stream;
	CUresult result;

	if (kind > cudaMemcpyDefault)
		return cudaErrorInvalidMemcpyDirection;
	if (!bytes)
		return cudaSuccess;
	if (!target || !source)
		return cudaErrorInvalidValue;
	switch (kind) {
	case cudaMemcpyHostToDevice:
		result = now ? cu.cuMemcpyHtoD_v2(to, source, bytes)
			     : cu.cuMemcpyHtoDAsync_v2(to, source, bytes, stream);
		break;
	case cudaMemcpyDeviceToHost:
		result = now ? cu.cuMemcpyDtoH_v2(target, from, bytes)
			     : cu.cuMemcpyDtoHAsync_v2(target, from, bytes, stream);
		break;
	case cudaMemcpyDeviceToDevice:
		result = now ? cu.cuMemcpyDtoD_v2(to, from, bytes)
			     : cu.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
		break;
	default:
		result = now ? cu.cuMemcpy(to, from, bytes)
			     : cu.cuMemcpyAsync(to, from, bytes, stream);
	}
	return finish(result, stream, wait && !now);
}

struct rt_side rt_rows(const void *memory, size_t pitch)
{
	return (struct rt_side){.memory = memory, .pitch = pitch};
}

struct rt_side rt_in_array(const void *array, size_t x_bytes, size_t y)
{
	return (struct rt_side){.array = array, .at = {.x = x_bytes, .y = y}};
}

/* Answers the driver's type of memory for a side; `is_host`: the direction says that it is the
 * host's. */
static unsigned side_type(const struct rt_side *side, enum cudaMemcpyKind kind, bool is_host)
{
	if (side->array)
		return CU_MEMORYTYPE_ARRAY;
	if (kind == cudaMemcpyDefault)
		return CU_MEMORYTYPE_UNIFIED;
	return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static int describe(const struct rt_side *target, const struct rt_side *source,
		    struct cudaExtent bytes, enum cudaMemcpyKind kind, CUDA_MEMCPY3D *ret_copy)
{
	bool from_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice;
	bool to_host = kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost;

	if (kind > cudaMemcpyDefault)
		return cudaErrorInvalidMemcpyDirection;
	if ((!target->array && bytes.height > 1 && target->pitch < bytes.width) ||
	    (!source->array && bytes.height > 1 && source->pitch < bytes.width))
		return cudaErrorInvalidPitchValue;
	*ret_copy = (CUDA_MEMCPY3D){
		.srcXInBytes = source->at.x,
		.srcY = source->at.y,
		.srcZ = source->at.z,
		.srcMemoryType = side_type(source, kind, from_host),
		.srcHost = source->memory,
		.srcDevice = (CUdeviceptr)source->memory,
		.srcArray = (CUarray)source->array,
		.srcPitch = source->pitch,
		.srcHeight = source->rows,
		.dstXInBytes = target->at.x,
		.dstY = target->at.y,
		.dstZ = target->at.z,
		.dstMemoryType = side_type(target, kind, to_host),
		.dstHost = (void *)(CUdeviceptr)target->memory,
		.dstDevice = (CUdeviceptr)target->memory,
		.dstArray = (CUarray)target->array,
		.dstPitch = target->pitch,
		.dstHeight = target->rows,
		.WidthInBytes = bytes.width,
		.Height = bytes.height,
		.Depth = bytes.depth,
	};
	return cudaSuccess;
}

static int copy_do(const CUDA_MEMCPY3D *copy, CUstream stream, bool wait)
{
	if (!copy->WidthInBytes || !copy->Height || !copy->Depth)
		return cudaSuccess;
	if (wait && !stream)
		return (int)cu.cuMemcpy3D_v2(copy);
	return finish(cu.cuMemcpy3DAsync_v2(copy, stream), stream, wait);
}

int rt_copy_2d(struct rt_side target, struct rt_side source, size_t width, size_t height,
	       enum cudaMemcpyKind kind, CUstream stream, bool wait)
{
	CUDA_MEMCPY3D copy;
	int error = describe(&target, &source, (struct cudaExtent){width, height, 1}, kind, &copy);

	return error ? error : copy_do(&copy, stream, wait);
}

/* Bytes of an array's element; 1 where there is no array. */
static int element_bytes(cudaArray_t array, size_t *ret_bytes)
{
	struct cudaChannelFormatDesc channels;

	*ret_bytes = 1;
	if (!array)
		return cudaSuccess;
	int error = rt_array_info(&channels, NULL, NULL, array);
	if (!error)
		*ret_bytes = (size_t)(channels.x + channels.y + channels.z + channels.w) / 8;
	return error;
}

static struct rt_side side_of(cudaArray_t array, struct cudaPos at,
			      const struct cudaPitchedPtr *rows, size_t element)
{
	return (struct rt_side){
		.memory = array ? NULL : rows->ptr,
		.pitch = rows->pitch,
		.rows = rows->ysize,
		.array = array,
		.at = {array ? at.x * element : at.x, at.y, at.z},
	};
}

/* The extent counts elements if an array takes part, and bytes otherwise. */
int rt_copy_driver(const struct cudaMemcpy3DParms *parameters, CUDA_MEMCPY3D *ret_copy)
{
	size_t from, to;

	if (!parameters || !parameters->srcArray == !parameters->srcPtr.ptr ||
	    !parameters->dstArray == !parameters->dstPtr.ptr)
		return cudaErrorInvalidValue;
	int error = element_bytes(parameters->srcArray, &from);
	if (!error)
		error = element_bytes(parameters->dstArray, &to);
	if (error)
		return error;
	struct cudaExtent bytes = parameters->extent;
	bytes.width *= parameters->srcArray ? from : to;
	struct rt_side source =
		side_of(parameters->srcArray, parameters->srcPos, &parameters->srcPtr, from);
	struct rt_side target =
		side_of(parameters->dstArray, parameters->dstPos, &parameters->dstPtr, to);
	return describe(&target, &source, bytes, parameters->kind, ret_copy);
}

int rt_copy_3d(const struct cudaMemcpy3DParms *parameters, CUstream stream, bool wait)
{
	CUDA_MEMCPY3D copy;
	int error = rt_copy_driver(parameters, &copy);

	return error ? error : copy_do(&copy, stream, wait);
}

/* All GPUs' memory has one range of addresses, so the devices need not be named. */
int rt_copy_3d_peer(const struct cudaMemcpy3DPeerParms *parameters, CUstream stream, bool wait)
{
	if (!parameters)
		return cudaErrorInvalidValue;
	const struct cudaMemcpy3DParms plain = {
		.srcArray = parameters->srcArray,
		.srcPos = parameters->srcPos,
		.srcPtr = parameters->srcPtr,
		.dstArray = parameters->dstArray,
		.dstPos = parameters->dstPos,
		.dstPtr = parameters->dstPtr,
		.extent = parameters->extent,
		.kind = cudaMemcpyDefault,
	};
	return rt_copy_3d(&plain, stream, wait);
}

int rt_copy_peer(void *target, int target_device, const void *source, int source_device,
		 size_t bytes, CUstream stream, bool wait)
{
	CUcontext to, from;
	int error = rt_context(target_device, &to);

	if (!error)
		error = rt_context(source_device, &from);
	if (error || !bytes)
		return error;
	if (wait)
		return (int)cu.cuMemcpyPeer((CUdeviceptr)target, to, (CUdeviceptr)source, from,
					    bytes);
	return (int)cu.cuMemcpyPeerAsync((CUdeviceptr)target, to, (CUdeviceptr)source, from, bytes,
					 stream);
}

/* Finds the address of a copy of `bytes` at `offset` in a variable. */
static int symbol_at(const void *symbol, size_t bytes, size_t offset, char **ret_address)
{
	void *address;
	size_t size;
	int error = rt_symbol(symbol, &address, &size);

	if (error)
		return error;
	if (offset > size || bytes > size - offset)
		return cudaErrorInvalidValue;
	*ret_address = (char *)address + offset;
	return cudaSuccess;
}

int rt_copy_to_symbol(const void *symbol, const void *source, size_t bytes, size_t offset,
		      enum cudaMemcpyKind kind, CUstream stream, bool wait)
{
	char *address;
	int error = symbol_at(symbol, bytes, offset, &address);

	if (!error && (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost))
		error = cudaErrorInvalidMemcpyDirection;
	return error ? error : rt_copy(address, source, bytes, kind, stream, wait);
}

int rt_copy_from_symbol(void *target, const void *symbol, size_t bytes, size_t offset,
			enum cudaMemcpyKind kind, CUstream stream, bool wait)
{
	char *address;
	int error = symbol_at(symbol, bytes, offset, &address);

	if (!error && (kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice))
		error = cudaErrorInvalidMemcpyDirection;
	return error ? error : rt_copy(target, address, bytes, kind, stream, wait);
}

int rt_set(void *address, int value, size_t bytes, CUstream stream, bool wait)
{
	CUdeviceptr at = (CUdeviceptr)address;
	unsigned char byte = (unsigned char)value;

	if (!bytes)
		return cudaSuccess;
	if (wait && !stream)
		return (int)cu.cuMemsetD8_v2(at, byte, bytes);
	return finish(cu.cuMemsetD8Async(at, byte, bytes, stream), stream, wait);
}

int rt_set_2d(void *address, size_t pitch, int value, size_t width, size_t height, CUstream stream,
	      bool wait)
{
	CUdeviceptr at = (CUdeviceptr)address;
	unsigned char byte = (unsigned char)value;

	if (!width || !height)
		return cudaSuccess;
	if (wait && !stream)
		return (int)cu.cuMemsetD2D8_v2(at, pitch, byte, width, height);
	return finish(cu.cuMemsetD2D8Async(at, pitch, byte, width, height, stream), stream, wait);
}

int rt_set_3d(const struct cudaPitchedPtr *memory, int value, struct cudaExtent extent,
	      CUstream stream, bool wait)
{
	int error = cudaSuccess;

	if (extent.height > memory->ysize && extent.depth > 1)
		return cudaErrorInvalidValue;
	for (size_t z = 0; !error && z < extent.depth; z++)
		error = rt_set_2d((char *)memory->ptr + z * memory->pitch * memory->ysize,
				  memory->pitch, value, extent.width, extent.height, stream, wait);
	return error;
}
