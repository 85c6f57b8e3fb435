/*
 * CUDA IPC: blocks of cuMemAlloc that other processes open; and memory of other APIs (Vulkan and
 * its like), which is imported as a whole. share.c says how it is charged.
 */
#include "cuda.h"
#include "hooks.h"
#include "peers.h"
#include "room.h"
#include "share.h"

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct place place;
	CUdeviceptr base;
	CUdevice device;
	uint64_t bytes;
	size_t size;
	bool counted;
	CUresult result;

	cuda_bind();
	result = cuda.cuIpcGetMemHandle(pHandle, dptr);
	if (result == CUDA_SUCCESS && quota_attached() &&
	    room_find(&place, &counted) == CUDA_SUCCESS && counted &&
	    cuda.cuMemGetAddressRange_v2(&base, &size, dptr) == CUDA_SUCCESS &&
	    quota_charge_of(base, &device, &bytes))
		share_export_handle(base, pHandle, sizeof(*pHandle), device, bytes, place.context);
	return result;
}

/* The driver opened it; what is not the slice's is charged, or closed again. */
static CUresult opened(CUresult result, const CUipcMemHandle *handle, CUdeviceptr address)
{
	struct place place;
	CUdeviceptr base;
	size_t size;
	bool counted;

	if (result != CUDA_SUCCESS || room_find(&place, &counted) != CUDA_SUCCESS || !counted ||
	    share_import_handle(address, handle, sizeof(*handle), place.context) ||
	    cuda.cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS)
		return result;
	result = share_import_outside(address, place.device, size, place.context);
	if (result != CUDA_SUCCESS)
		cuda.cuIpcCloseMemHandle(address);
	return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	CUdeviceptr address = 0;
	CUresult result;

	cuda_bind();
	if (!quota_attached() || !pdptr)
		return cuda.cuIpcOpenMemHandle(pdptr, handle, Flags);
	result = cuda.cuIpcOpenMemHandle(&address, handle, Flags);
	result = opened(result, &handle, address);
	if (result == CUDA_SUCCESS) {
		*pdptr = address;
		peers_opened(address);
	}
	return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	CUdeviceptr address = 0;
	CUresult result;

	cuda_bind();
	if (!quota_attached() || !pdptr)
		return cuda.cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
	result = cuda.cuIpcOpenMemHandle_v2(&address, handle, Flags);
	result = opened(result, &handle, address);
	if (result == CUDA_SUCCESS) {
		*pdptr = address;
		peers_opened(address);
	}
	return result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	CUresult result;

	cuda_bind();
	result = cuda.cuIpcCloseMemHandle(dptr);
	if (result == CUDA_SUCCESS && quota_attached())
		share_end_import(dptr);
	return result;
}

/* -- other APIs -- */

CUresult cuImportExternalMemory(CUexternalMemory *extMem_out,
				const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	CUexternalMemory memory = NULL;
	struct holding_claim claim;
	struct place place;
	bool counted;
	CUresult result = room_find(&place, &counted);

	if (result != CUDA_SUCCESS)
		return result;
	if (!counted || !extMem_out || !memHandleDesc)
		return cuda.cuImportExternalMemory(extMem_out, memHandleDesc);
	/* First: the driver keeps a descriptor that it has taken. */
	result = room_hold(HOLDING_IMPORT, &place, memHandleDesc->size, &claim);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuImportExternalMemory(&memory, memHandleDesc);
	if (result != CUDA_SUCCESS) {
		quota_hold_cancel(&claim);
		return result;
	}
	result = share_adopt(&claim, (uintptr_t)memory, place.context);
	if (result == CUDA_SUCCESS)
		*extMem_out = memory;
	else
		cuda.cuDestroyExternalMemory(memory);
	return result;
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
{
	CUresult result;

	cuda_bind();
	result = cuda.cuDestroyExternalMemory(extMem);
	if (result == CUDA_SUCCESS && quota_attached())
		share_end_import((uintptr_t)extMem);
	return result;
}
