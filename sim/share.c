/*
 * Memory that other processes import: by descriptors of memory by handle, by descriptors of
 * allocations (DMA-BUF), and by the 64 bytes of CUDA IPC. Shared memory becomes an object of the
 * shared state (machine_objects.c), which has its holders, the process in whose figure it is, and
 * whether a descriptor is still open.
 *
 * Only the accounting is shared: an importer finds zeroes in the memory, and no process sees what
 * another writes. Memory of cuIpcOpenMemHandle belongs to the context, and is closed with it.
 *
 * The list has a lock of its own. No other lock is taken inside it.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define IPC_MAGIC 0x63706d6973757067u

/* The contents of a CUipcMemHandle. */
struct ipc {
	uint64_t magic, object, offset, bytes, pid;
	char unused[64 - 5 * sizeof(uint64_t)];
};

_Static_assert(sizeof(struct ipc) == sizeof(CUipcMemHandle), "as many bytes as it has");

struct opened {
	struct address_range range;
	uint64_t object, space_bytes;
	unsigned times; /* it was opened so many times more often than closed; under `lock` */
	struct opened *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened *opened; /* lock */

static CUresult export_fd(uint64_t object, void *ret_fd)
{
	int fd = machine_export(object);

	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)ret_fd = fd;
	return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType handleType,
				      unsigned long long flags)
{
	CUresult result = enter(__func__);
	uint64_t object;

	if (result)
		return result;
	if (!shareableHandle || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	virtual_lock();
	struct memory_handle *found = virtual_handle(handle);
	if (!found || !(found->types & handleType))
		result = CUDA_ERROR_INVALID_VALUE;
	else
		result = virtual_share(found, &object);
	if (!result)
		result = export_fd(object, shareableHandle);
	virtual_unlock();
	return leave(__func__, result);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					CUmemAllocationHandleType shHandleType)
{
	CUresult result = enter(__func__);
	struct memory_handle *made;
	uint64_t object;

	if (result)
		return result;
	if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    machine_imported((int)(intptr_t)osHandle, &object))
		return CUDA_ERROR_INVALID_VALUE;
	virtual_lock();
	result = virtual_import(object, &made);
	virtual_unlock();
	if (!result)
		*handle = (uintptr_t)made;
	return leave(__func__, result);
}

/* Makes the memory of a range an object: of an allocation, or of memory that is mapped there. */
static CUresult range_share(uint64_t address, size_t bytes, uint64_t *ret_object)
{
	struct memory_range range;
	uint64_t offset;

	if (!memory_find(address, &range) || bytes > range.bytes - (address - range.address))
		return CUDA_ERROR_INVALID_VALUE;
	virtual_lock();
	struct memory_handle *handle = virtual_mapped(address);
	CUresult result = handle ? virtual_share(handle, ret_object) : CUDA_ERROR_INVALID_VALUE;
	virtual_unlock();
	return handle ? result : memory_share(address, ret_object, &offset);
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
				       CUmemRangeHandleType handleType, unsigned long long flags)
{
	const unsigned flags_known = 1; /* CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE */
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	CUcontext context;
	CUresult result = enter_context(__func__, &context);
	uint64_t object;

	if (result)
		return result;
	if (!handle || !size || (dptr | size) % page || flags & ~(uint64_t)flags_known ||
	    handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
		return CUDA_ERROR_INVALID_VALUE;
	result = range_share(dptr, size, &object);
	return leave(__func__, result ? result : export_fd(object, handle));
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct ipc ipc = {.magic = IPC_MAGIC, .pid = (uint64_t)getpid()};
	struct memory_range range;
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	if (!pHandle || !memory_find(dptr, &range))
		return CUDA_ERROR_INVALID_VALUE;
	result = memory_share(range.address, &ipc.object, &ipc.offset);
	if (result)
		return result;
	ipc.bytes = range.bytes;
	memcpy(pHandle, &ipc, sizeof ipc);
	return leave(__func__, CUDA_SUCCESS);
}

static CUdevice device_of(unsigned gpu, CUcontext context)
{
	unsigned other;

	for (CUdevice device = 0; device_gpu(device, &other); device++) {
		if (other == gpu)
			return device;
	}
	return context->device;
}

/* Makes address space for the memory, and joins its object. */
static CUresult opened_make(CUcontext context, const struct ipc *ipc, struct opened *ret_opened)
{
	struct machine_object object;

	if (machine_join(ipc->object, &object))
		return CUDA_ERROR_INVALID_VALUE;
	ret_opened->object = ipc->object;
	ret_opened->space_bytes = (ipc->bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
	ret_opened->range.context = context;
	ret_opened->range.device = device_of(object.gpu, context);
	ret_opened->range.access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	ret_opened->range.bytes = ipc->bytes;
	ret_opened->range.address = space_map(ret_opened->space_bytes, GRANULE_BYTES, false);
	if (ret_opened->range.address && address_map_add(&ret_opened->range))
		return CUDA_SUCCESS;
	if (ret_opened->range.address)
		space_unmap(ret_opened->range.address, ret_opened->space_bytes);
	machine_leave(ipc->object);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Ends memory that was taken out of the list. */
static void opened_close(struct opened *it)
{
	address_map_remove(&it->range);
	space_unmap(it->range.address, it->space_bytes);
	machine_leave(it->object);
	free(it);
}

/* Opens what the context has opened already there, once more, as cuda.h says. Drivers have been
 * seen to give it another address. */
static bool open_again(CUcontext context, uint64_t object, CUdeviceptr *ret_address)
{
	pthread_mutex_lock(&lock);
	struct opened *it = opened;
	while (it && (it->object != object || it->range.context != context))
		it = it->next;
	if (it) {
		it->times++;
		*ret_address = it->range.address;
	}
	pthread_mutex_unlock(&lock);
	return it;
}

static CUresult ipc_open(const char *function, CUdeviceptr *pdptr, const CUipcMemHandle *handle,
			 unsigned flags)
{
	const unsigned lazy_peer_access = 1; /* the only one there is, and required */
	struct ipc ipc;
	CUcontext context;
	CUresult result = enter_context(function, &context);

	if (result)
		return result;
	memcpy(&ipc, handle, sizeof ipc);
	if (!pdptr || flags != lazy_peer_access || ipc.magic != IPC_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (ipc.pid == (uint64_t)getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	context = context_owner(context);
	if (config_get()->ipc_counts && open_again(context, ipc.object, pdptr))
		return leave(function, CUDA_SUCCESS);
	struct opened *it = calloc(1, sizeof *it);
	if (!it)
		return CUDA_ERROR_OUT_OF_MEMORY;
	it->times = 1;
	result = opened_make(context, &ipc, it);
	if (result) {
		free(it);
		return result;
	}
	*pdptr = it->range.address;
	pthread_mutex_lock(&lock);
	bool alive = context->alive;
	it->next = alive ? opened : NULL;
	opened = alive ? it : opened;
	pthread_mutex_unlock(&lock);
	if (!alive)
		opened_close(it);
	return leave(function, alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return ipc_open(__func__, pdptr, &handle, Flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return ipc_open(__func__, pdptr, &handle, Flags);
}

/* Closes what was opened at the address once, or by the context for good. Returns whether there is
 * any; *ret_last: taken out of the list, to be ended; NULL: it was opened more often. */
static bool opened_take(uint64_t address, CUcontext context, struct opened **ret_last)
{
	pthread_mutex_lock(&lock);
	struct opened **at = &opened;
	while (*at && (context ? (*at)->range.context != context : (*at)->range.address != address))
		at = &(*at)->next;
	struct opened *it = *at;
	bool last = it && (context || --it->times == 0);
	if (last)
		*at = it->next;
	pthread_mutex_unlock(&lock);
	*ret_last = last ? it : NULL;
	return it;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	CUcontext context;
	CUresult result = enter_context(__func__, &context);

	if (result)
		return result;
	struct opened *last;
	if (!opened_take(dptr, NULL, &last))
		return CUDA_ERROR_INVALID_VALUE;
	if (last)
		opened_close(last);
	return leave(__func__, CUDA_SUCCESS);
}

void share_close(CUcontext context)
{
	struct opened *it;

	while (opened_take(0, context, &it))
		opened_close(it);
}
