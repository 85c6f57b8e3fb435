/*
 * Pools, and pointers of pools, that other processes import.
 *
 * The memory of an exported pool is an object of the shared state (machine_objects.c), which grows
 * and shrinks with the pool. An imported pool is a name only: no memory can be allocated from it,
 * and it keeps no memory. A pointer that is imported through it holds the whole object. Until the
 * pointer is freed, the pool does not shrink, and its memory stays after the end of the pool and of
 * its process. The memory is in the exporter's figure, as long as the exporter has the pool.
 *
 * An importer finds zeroes in the memory, as in share.c. Under the pools lock.
 */
#include "pool.h"

#include <stdlib.h>
#include <string.h>

#define POOL_TAG      0x6c6f6f70u /* the tag of an object that is a pool */
#define POINTER_MAGIC 0x7274706d6973u

/* The contents of a CUmemPoolPtrExportData. */
struct pointer {
	uint64_t magic, object, address, bytes;
	char unused[64 - 4 * sizeof(uint64_t)];
};

_Static_assert(sizeof(struct pointer) == sizeof(CUmemPoolPtrExportData), "as many bytes");

/* Makes the pool's memory an object, if it is none yet. */
static CUresult export_locked(CUmemoryPool pool)
{
	struct machine_object object = {
		.gpu = pool->gpu, .bytes = pool->held_bytes, .tag = POOL_TAG};

	if (!(pool->properties.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
	    pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	if (pool->kind != BLOCK_SPACE)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!pool->exported && machine_share(&object, &pool->exported))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
					  CUmemAllocationHandleType handleType,
					  unsigned long long flags)
{
	CUresult result = enter(__func__);
	int fd = -1;

	if (result)
		return result;
	if (!handle_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	pools_lock();
	result = pool_known_locked(pool) ? export_locked(pool) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		fd = machine_export(pool->exported);
	pools_unlock();
	if (result)
		return result;
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)handle_out = fd;
	return CUDA_SUCCESS;
}

/* Checks that the object is a pool's, and finds its device in this process. */
static CUresult find(uint64_t id, CUdevice *ret_device)
{
	struct machine_object object;
	unsigned gpu;

	if (machine_join(id, &object))
		return CUDA_ERROR_INVALID_VALUE;
	machine_leave(id);
	if (object.tag != POOL_TAG)
		return CUDA_ERROR_INVALID_VALUE;
	for (*ret_device = 0; device_gpu(*ret_device, &gpu); ++*ret_device) {
		if (gpu == object.gpu)
			return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
					    CUmemAllocationHandleType handleType,
					    unsigned long long flags)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	CUresult result = enter(__func__);
	uint64_t object;

	if (result)
		return result;
	if (!pool_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    machine_imported((int)(intptr_t)handle, &object))
		return CUDA_ERROR_INVALID_VALUE;
	result = find(object, &properties.location.id);
	if (!result)
		result = pool_import(&properties, object, pool_out);
	return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	CUresult result = enter(__func__);
	struct pointer data = {.magic = POINTER_MAGIC};
	struct memory_range range;

	if (result)
		return result;
	if (!shareData_out)
		return CUDA_ERROR_INVALID_VALUE;
	pools_lock();
	result = CUDA_ERROR_INVALID_VALUE;
	if (memory_find(ptr, &range) && range.pool && range.address == ptr) {
		result = export_locked(range.pool);
		data.object = range.pool->exported;
		data.address = range.address;
		data.bytes = range.bytes;
	}
	pools_unlock();
	if (!result)
		memcpy(shareData_out, &data, sizeof data);
	return leave(__func__, result);
}

static CUresult import_locked(CUmemoryPool pool, const struct pointer *data, struct piece *piece)
{
	struct machine_object object;

	if (!pool_known_locked(pool) || !pool->imported || pool->imported != data->object ||
	    machine_join(data->object, &object))
		return CUDA_ERROR_INVALID_VALUE;
	piece->space.pool = pool;
	piece->space.device = pool->properties.location.id;
	piece->space.bytes = data->bytes;
	CUresult result = memory_space_open(&piece->space, pool->kind);
	if (result)
		machine_leave(data->object);
	else
		pool->used_bytes += data->bytes;
	return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
				CUmemPoolPtrExportData *shareData)
{
	CUresult result = enter(__func__);
	struct pointer data;

	if (result)
		return result;
	if (!ptr_out || !shareData)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&data, shareData, sizeof data);
	if (data.magic != POINTER_MAGIC || !data.bytes)
		return CUDA_ERROR_INVALID_VALUE;
	struct piece *piece = calloc(1, sizeof *piece);
	if (!piece)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pools_lock();
	result = import_locked(pool, &data, piece);
	if (!result)
		*ptr_out = piece->space.address;
	pools_unlock();
	if (result)
		free(piece);
	return leave(__func__, result);
}
