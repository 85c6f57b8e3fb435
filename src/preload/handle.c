/*
 * VMM allocations, address ranges and pools as handles for other processes, and back (share.c says
 * how they are charged).
 *
 * The driver does not tell how big an imported allocation is. One that nobody of the slice exports
 * is charged when it is mapped, which it must be to be of any use.
 */
#include <string.h>

#include "cuda.h"
#include "hooks.h"
#include "room.h"
#include "share.h"

/* -- VMM allocations -- */

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
				      CUmemAllocationHandleType handleType,
				      unsigned long long flags)
{
	CUdevice device;
	CUresult result;
	uint64_t bytes;
	int fd;

	cuda_bind();
	result = cuda.cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags);
	if (result != CUDA_SUCCESS || !quota_attached() ||
	    !quota_holding_charge(HOLDING_PHYSICAL, handle, &device, &bytes) ||
	    bytes == 0) /* it was imported itself: who gets it from here counts it */
		return result;
	if (handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
		memcpy(&fd, shareableHandle, sizeof(fd));
		share_export_fd(handle, fd, device, bytes, NULL);
	} else if (handleType == CU_MEM_HANDLE_TYPE_FABRIC) {
		share_export_handle(handle, shareableHandle, HANDLE_BYTES, device, bytes, NULL);
	}
	return result;
}

/* Counts its references like those of our own, at no charge. */
static CUresult imported(CUmemGenericAllocationHandle handle, void *osHandle,
			 CUmemAllocationHandleType type)
{
	CUmemAllocationProp prop;
	struct place place = {.context = NULL};
	struct holding_claim claim;
	CUresult result;
	bool counted;

	if (cuda.cuMemGetAllocationPropertiesFromHandle(&prop, handle) != CUDA_SUCCESS ||
	    prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_SUCCESS;
	place.device = prop.location.id;
	result = room_on(place.device, &counted);
	if (result != CUDA_SUCCESS || !counted)
		return result;
	result = room_hold(HOLDING_PHYSICAL, &place, 0, &claim);
	if (result != CUDA_SUCCESS)
		return result;
	if (quota_hold(&claim, handle) != 0) {
		quota_hold_cancel(&claim);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
		      ? share_import_fd(handle, (int)(intptr_t)osHandle)
		      : share_import_handle(handle, osHandle, HANDLE_BYTES, NULL)))
		share_import_later(handle);
	return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					CUmemAllocationHandleType shHandleType)
{
	CUresult result;

	cuda_bind();
	result = cuda.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
	if (result != CUDA_SUCCESS || !quota_attached())
		return result;
	result = imported(*handle, osHandle, shHandleType);
	if (result != CUDA_SUCCESS)
		cuda.cuMemRelease(*handle);
	return result;
}

/* A DMA-BUF keeps the memory that it is of: a block, or what is mapped there. */
static void export_range(CUdeviceptr address, int fd)
{
	CUmemGenericAllocationHandle handle;
	struct place place;
	CUdeviceptr base;
	CUdevice device;
	uint64_t bytes;
	size_t size;
	bool counted;

	if (room_find(&place, &counted) == CUDA_SUCCESS && counted &&
	    cuda.cuMemGetAddressRange_v2(&base, &size, address) == CUDA_SUCCESS &&
	    quota_charge_of(base, &device, &bytes)) {
		share_export_fd(base, fd, device, bytes, place.context);
	} else if (cuda.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address) ==
		   CUDA_SUCCESS) {
		if (quota_holding_charge(HOLDING_PHYSICAL, handle, &device, &bytes))
			share_export_fd(handle, fd, device, bytes, NULL);
		cuda.cuMemRelease(handle);
	}
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
				       CUmemRangeHandleType handleType, unsigned long long flags)
{
	CUresult result;
	int fd;

	cuda_bind();
	result = cuda.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
	if (result == CUDA_SUCCESS && quota_attached() &&
	    handleType == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) {
		memcpy(&fd, handle, sizeof(fd));
		export_range(dptr, fd);
	}
	return result;
}

/* -- pointers of pools: charged with the pool, by whoever has it -- */

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	struct place place;
	bool counted;
	CUresult result;

	cuda_bind();
	result = cuda.cuMemPoolExportPointer(shareData_out, ptr);
	if (result == CUDA_SUCCESS && quota_attached() &&
	    room_find(&place, &counted) == CUDA_SUCCESS && counted)
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

	cuda_bind();
	result = cuda.cuMemPoolImportPointer(ptr_out, pool, shareData);
	if (result != CUDA_SUCCESS || !quota_attached() ||
	    room_find(&place, &counted) != CUDA_SUCCESS || !counted ||
	    share_import_handle(*ptr_out, shareData, HANDLE_BYTES, NULL) ||
	    cuda.cuMemGetAddressRange_v2(&base, &size, *ptr_out) != CUDA_SUCCESS)
		return result;
	result = share_import_outside(*ptr_out, place.device, size, NULL);
	if (result != CUDA_SUCCESS)
		cuda.cuMemFree_v2(*ptr_out);
	return result;
}
