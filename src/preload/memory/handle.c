/*
 * Export and import of VMM allocations, address ranges and pools by handles (exports.c says how
 * they are charged).
 *
 * The driver does not report the size of an imported allocation. An allocation that no process of
 * the slice exports is charged when it is mapped, as only then it can be used.
 */
#include <string.h>

#include "cuda.h"
#include "exports.h"
#include "headroom.h"
#include "hooks.h"
#include "log.h"
#include "sys.h"
#include "trace.h"
#include "virtual.h"

/* -- VMM allocations --------------------------------------------------------------------------- */

/* The driver has exported memory as a descriptor. If the memory's handle is other memory's by now,
 * the descriptor may be of either, and is closed. */
static CUresult exported_fd(const struct holding_reference *reference, int fd)
{
	if (quota_reference_is_stale(reference)) {
		sys_close(fd);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (reference->bytes)
		return share_export_fd(quota_holding_number(reference->serial), fd,
				       reference->device, reference->bytes, NULL);
	/* The memory was itself imported, and nothing is charged for it here. */
	share_export_import(reference->handle, fd);
	return CUDA_SUCCESS;
}

static CUresult exported(const void *shareableHandle, const struct holding_reference *reference,
			 CUmemAllocationHandleType handleType)
{
	int fd;

	quota_reference_note_export(reference);
	if (handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
		memcpy(&fd, shareableHandle, sizeof(fd));
		return exported_fd(reference, fd);
	}
	if (quota_reference_is_stale(reference))
		return CUDA_ERROR_INVALID_VALUE;
	/* Memory that was itself imported is charged by the process that imports it from here. */
	if (handleType == CU_MEM_HANDLE_TYPE_FABRIC && reference->bytes)
		share_export_handle(quota_holding_number(reference->serial), shareableHandle,
				    HANDLE_BYTES, reference->device, reference->bytes, NULL);
	return CUDA_SUCCESS;
}

/* The memory has a reference until the export is recorded. Otherwise the last handle could be
 * released in between, and only the descriptor would keep the memory, without a charge. */
CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType handleType,
				      unsigned long long flags)
{
	struct holding_reference reference;
	CUresult result;
	bool known;

	trace_call(__func__);
	cuda_bind();
	known = virtual_reference_begin(handle, &reference);
	result = cuda.cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags);
	if (known) {
		if (result == CUDA_SUCCESS)
			result = exported(shareableHandle, &reference, handleType);
		virtual_reference_drop(&reference);
	}
	return result;
}

/* The driver has imported the memory. known: a process of the slice exports it. */
static CUresult imported(CUmemGenericAllocationHandle handle, bool known)
{
	CUmemAllocationProp prop;
	bool counted = false;
	CUresult result = CUDA_SUCCESS;

	if (cuda.cuMemGetAllocationPropertiesFromHandle(&prop, handle) != CUDA_SUCCESS)
		return virtual_hold_object(handle, true); /* a multicast object */
	if (prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		result = headroom_on(prop.location.id, &counted);
	if (result == CUDA_SUCCESS && counted) {
		if (!known && !share_import_later(handle))
			return CUDA_ERROR_OUT_OF_MEMORY;
		result = virtual_hold_free(handle, prop.location.id, true);
	}
	if (result != CUDA_SUCCESS || !counted) {
		quota_ending_begin();
		share_end_import(handle);
		quota_ending_end();
	}
	return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					CUmemAllocationHandleType shHandleType)
{
	struct share_import import = {.key = 0};
	CUresult result;
	bool known = false;

	trace_call(__func__);
	cuda_bind();
	if (!quota_attached())
		return cuda.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
	quota_share_begin();
	if (shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		share_import_begin_fd((int)(intptr_t)osHandle, &import);
	else if (shHandleType == CU_MEM_HANDLE_TYPE_FABRIC && osHandle)
		share_import_begin(osHandle, HANDLE_BYTES, &import);
	result = cuda.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
	if (result == CUDA_SUCCESS)
		known = share_import_end(&import, *handle, 0, NULL);
	else
		share_import_cancel(&import);
	quota_share_end();
	if (result != CUDA_SUCCESS)
		return result;
	result = imported(*handle, known);
	if (result != CUDA_SUCCESS)
		cuda.cuMemRelease(*handle);
	return result;
}

/* -- address ranges ---------------------------------------------------------------------------- */

/* A part of memory that is to be exported as a DMA-BUF. */
struct range {
	CUdeviceptr address;
	size_t size;
	unsigned long long flags;
};

static CUresult export_range(const struct range *range, int *ret_fd)
{
	return cuda.cuMemGetHandleForAddressRange(ret_fd, range->address, range->size,
						  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
						  range->flags);
}

/* The block that has the address, and where it begins. */
static bool find_block(CUdeviceptr address, CUdeviceptr *ret_base, struct quota_block *ret_block)
{
	size_t size;

	ret_block->leaving = false;
	return cuda.cuMemGetAddressRange_v2(ret_base, &size, address) == CUDA_SUCCESS &&
	       quota_find_block(*ret_base, ret_block);
}

/* The charge of a block that has left the accounts cannot stay with a descriptor of it. */
static CUresult refuse_leaving(void)
{
	static bool said;

	if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		log_line(LOG_ERROR, "cuMemGetHandleForAddressRange is refused for memory that "
				    "another call is freeing or allocating: a descriptor would "
				    "keep the memory without a charge");
	return CUDA_ERROR_INVALID_VALUE;
}

/* The block is looked for again after the record is made: a free that began before that may have
 * looked for records already. */
static CUresult export_block(const struct range *range, CUdeviceptr base,
			     const struct quota_block *block, int *ret_fd)
{
	struct quota_block again;
	CUresult result;
	uint32_t serial;

	if (!share_export_begin(base, block->device, (CUcontext)(uintptr_t)block->context, &serial))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (quota_find_block(base, &again))
		result = export_range(range, ret_fd);
	else
		result = refuse_leaving();
	return share_export_end(serial, result, *ret_fd, block->bytes);
}

static bool is_counted(CUdeviceptr address)
{
	struct holding_reference reference;
	struct quota_block block;
	CUdeviceptr base;

	if (virtual_reference_begin_mapped(address, &reference)) {
		virtual_reference_drop(&reference);
		return true;
	}
	return find_block(address, &base, &block) || block.leaving;
}

/* Memory that is in no accounts, such as a pool's. If the accounts have it afterwards, another
 * thread has allocated it meanwhile. */
static CUresult export_uncounted(const struct range *range, int *ret_fd)
{
	CUresult result = export_range(range, ret_fd);

	if (result != CUDA_SUCCESS || !is_counted(range->address))
		return result;
	sys_close(*ret_fd);
	return refuse_leaving();
}

/* A DMA-BUF keeps its memory: a block, or physical memory that is mapped at the address. The memory
 * is known to be exported before the driver exports it, as another thread may free it meanwhile. A
 * block that is being freed is refused. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
				       CUmemRangeHandleType handleType, unsigned long long flags)
{
	const struct range range = {dptr, size, flags};
	struct holding_reference reference;
	struct quota_block block;
	CUdeviceptr base;
	CUresult result;
	int fd = -1;

	trace_call(__func__);
	cuda_bind();
	if (!handle || handleType != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || !quota_attached())
		return cuda.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
	if (virtual_reference_begin_mapped(dptr, &reference)) {
		result = export_range(&range, &fd);
		if (result == CUDA_SUCCESS)
			result = exported_fd(&reference, fd);
		virtual_reference_drop(&reference);
	} else if (find_block(dptr, &base, &block)) {
		result = export_block(&range, base, &block, &fd);
	} else if (block.leaving) {
		result = refuse_leaving();
	} else {
		result = export_uncounted(&range, &fd);
	}
	if (result == CUDA_SUCCESS)
		memcpy(handle, &fd, sizeof(fd));
	return result;
}

/* -- pointers of pools, which are charged with the pool ---------------------------------------- */

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	struct place place;
	bool counted;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	result = cuda.cuMemPoolExportPointer(shareData_out, ptr);
	if (result == CUDA_SUCCESS && quota_attached() &&
	    headroom_find(&place, &counted) == CUDA_SUCCESS && counted)
		share_export_handle(ptr, shareData_out, HANDLE_BYTES, place.device, 0, NULL);
	return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
				CUmemPoolPtrExportData *shareData)
{
	struct place place;
	CUdeviceptr base;
	size_t size;
	bool counted;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	result = cuda.cuMemPoolImportPointer(ptr_out, pool, shareData);
	if (result != CUDA_SUCCESS || !quota_attached() ||
	    headroom_find(&place, &counted) != CUDA_SUCCESS || !counted ||
	    share_import_handle(*ptr_out, shareData, HANDLE_BYTES, 0, NULL) ||
	    cuda.cuMemGetAddressRange_v2(&base, &size, *ptr_out) != CUDA_SUCCESS)
		return result;
	result = share_import_outside(*ptr_out, place.device, size, NULL);
	if (result != CUDA_SUCCESS)
		cuda.cuMemFree_v2(*ptr_out);
	return result;
}
