/*
 * Memory of other libraries, such as Vulkan's. There is no such library here, so any descriptor
 * stands for such memory. It has the size that the application gives, and is on the GPU of the
 * current context until cuDestroyExternalMemory, in no process's figure. A mapped buffer is address
 * space and takes no memory; the application frees it with cuMemFree.
 *
 * One lock guards the buffers. The shared state's lock is taken inside it, and no lock of memory.c.
 */
#include "sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct CUextMemory_st {
	unsigned gpu;
	uint64_t bytes;
};

struct buffer {
	struct address_range range;
	uint64_t space_bytes;
	struct buffer *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *buffers; /* lock */

CUresult cuImportExternalMemory(CUexternalMemory *extMem_out,
				const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc = memHandleDesc;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);
	int fd;

	if (result)
		return result;
	if (!extMem_out || !desc || !desc->size)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(&fd, desc->handle, sizeof fd);
	if (fcntl(fd, F_GETFD) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct machine_holding holding = {.hidden_bytes = desc->size};
	CUexternalMemory memory = malloc(sizeof *memory);
	if (!memory || machine_take(context->gpu, &holding)) {
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*memory = (struct CUextMemory_st){context->gpu, desc->size};
	if (!handle_add(memory, HANDLE_EXTERNAL)) {
		machine_give(context->gpu, &holding);
		free(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	close(fd); /* the descriptor belongs to the driver after the import */
	*extMem_out = memory;
	return leave(__func__, CUDA_SUCCESS);
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	bool found = handle_is(extMem, HANDLE_EXTERNAL);
	if (found) {
		struct machine_holding holding = {.hidden_bytes = extMem->bytes};

		handle_remove(extMem);
		machine_give(extMem->gpu, &holding);
		free(extMem);
	}
	pthread_mutex_unlock(&lock);
	return leave(__func__, found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

static CUresult buffer_map(CUcontext context, size_t bytes, uint64_t *ret_address)
{
	struct buffer *buffer = calloc(1, sizeof *buffer);

	if (!buffer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	buffer->space_bytes = (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
	buffer->range.context = context;
	buffer->range.device = context->device;
	buffer->range.access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	buffer->range.bytes = bytes;
	buffer->range.address = space_map(buffer->space_bytes, GRANULE_BYTES, false);
	if (!buffer->range.address || !address_map_add(&buffer->range)) {
		if (buffer->range.address)
			space_unmap(buffer->range.address, buffer->space_bytes);
		free(buffer);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	buffer->next = buffers;
	buffers = buffer;
	*ret_address = buffer->range.address;
	return CUDA_SUCCESS;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
					 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
	const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc = bufferDesc;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);
	uint64_t address;

	if (result)
		return result;
	if (!devPtr || !desc || !desc->size || desc->flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (!handle_is(extMem, HANDLE_EXTERNAL))
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (desc->offset > extMem->bytes || desc->size > extMem->bytes - desc->offset)
		result = CUDA_ERROR_INVALID_VALUE;
	else
		result = buffer_map(context, desc->size, &address);
	pthread_mutex_unlock(&lock);
	if (!result)
		*devPtr = address;
	return result;
}

CUresult external_give(uint64_t address)
{
	pthread_mutex_lock(&lock);
	struct buffer **at = &buffers;
	while (*at && (*at)->range.address != address)
		at = &(*at)->next;
	struct buffer *buffer = *at;
	if (buffer) {
		*at = buffer->next;
		address_map_remove(&buffer->range);
		space_unmap(address, buffer->space_bytes);
		free(buffer);
	}
	pthread_mutex_unlock(&lock);
	return buffer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory extMem,
					const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc)
{
	const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc = mipmapDesc;
	CUcontext context;
	CUarray array;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!mipmap || !desc || !desc->numLevels)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	uint64_t bytes = handle_is(extMem, HANDLE_EXTERNAL) ? extMem->bytes : 0;
	pthread_mutex_unlock(&lock);
	if (!bytes)
		return CUDA_ERROR_INVALID_HANDLE;
	if (desc->offset >= bytes)
		return CUDA_ERROR_INVALID_VALUE;
	result = array_make(context, &desc->arrayDesc, desc->numLevels, HANDLE_MIPMAP, false,
			    &array);
	if (!result)
		*mipmap = (CUmipmappedArray)(void *)array;
	return result;
}
