/*
 * CUDA IPC: blocks of cuMemAlloc that other processes open. And memory of other APIs, such as
 * Vulkan, which is imported as a whole. exports.c says how both are charged.
 */
#include "cuda.h"
#include "exports.h"
#include "headroom.h"
#include "hooks.h"
#include "peers.h"
#include "trace.h"

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct quota_block block;
	CUdeviceptr base;
	size_t size;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	result = cuda.cuIpcGetMemHandle(pHandle, dptr);
	if (result == CUDA_SUCCESS && quota_attached() &&
	    cuda.cuMemGetAddressRange_v2(&base, &size, dptr) == CUDA_SUCCESS &&
	    quota_find_block(base, &block))
		share_export_handle(base, pHandle, sizeof(*pHandle), block.device, block.bytes,
				    (CUcontext)(uintptr_t)block.context);
	return result;
}

typedef CUresult open_handle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags);

/* Opens the memory. *ret_known: a process of the slice has the charge. If none has it and the
 * memory is on the device, *ret_size is the size of the memory. */
static CUresult open_known(open_handle *open, CUdeviceptr *ret_address, CUipcMemHandle handle,
			   unsigned int flags, CUcontext context, size_t *ret_size, bool *ret_known)
{
	struct share_import import;
	CUdeviceptr base;
	CUresult result;

	quota_share_begin();
	share_import_begin(&handle, sizeof(handle), &import);
	result = open(ret_address, handle, flags);
	if (result == CUDA_SUCCESS &&
	    cuda.cuMemGetAddressRange_v2(&base, ret_size, *ret_address) == CUDA_SUCCESS)
		*ret_known = share_import_end(&import, *ret_address, *ret_size, context);
	else
		share_import_cancel(&import);
	quota_share_end();
	return result;
}

/* Opens memory, and charges it if no process of the slice has the charge. If it cannot be charged,
 * it is closed again. */
static CUresult open_counted(open_handle *open, CUdeviceptr *pdptr, CUipcMemHandle handle,
			     unsigned int flags)
{
	uint64_t ends = quota_context_ends();
	struct place place;
	CUdeviceptr address = 0;
	size_t size = 0;
	bool counted, known = false;
	CUresult result = headroom_find(&place, &counted);

	if (result == CUDA_SUCCESS && counted)
		result = open_known(open, &address, handle, flags, place.context, &size, &known);
	else if (result == CUDA_SUCCESS)
		result = open(&address, handle, flags);
	if (result != CUDA_SUCCESS)
		return result;
	if (size && !known) {
		result = share_import_outside(address, place.device, size, place.context);
		if (result != CUDA_SUCCESS) {
			cuda.cuIpcCloseMemHandle(address);
			return result;
		}
	}
	if (size)
		share_imported_in(place.context, ends);
	*pdptr = address;
	peers_opened(address);
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	trace_call(__func__);
	cuda_bind();
	if (!quota_attached() || !pdptr)
		return cuda.cuIpcOpenMemHandle(pdptr, handle, Flags);
	return open_counted(cuda.cuIpcOpenMemHandle, pdptr, handle, Flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	trace_call(__func__);
	cuda_bind();
	if (!quota_attached() || !pdptr)
		return cuda.cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
	return open_counted(cuda.cuIpcOpenMemHandle_v2, pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	trace_call(__func__);
	cuda_bind();
	share_ending();
	return share_ended(cuda.cuIpcCloseMemHandle(dptr), dptr);
}

/* -- other APIs -------------------------------------------------------------------------------- */

CUresult cuImportExternalMemory(CUexternalMemory *extMem_out,
				const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	uint64_t ends = quota_context_ends();
	CUexternalMemory memory = NULL;
	struct holding_reservation reservation;
	struct place place;
	bool counted;
	CUresult result = TRACE_CALLED(headroom_find(&place, &counted));

	if (result != CUDA_SUCCESS)
		return result;
	if (!counted || !extMem_out || !memHandleDesc)
		return cuda.cuImportExternalMemory(extMem_out, memHandleDesc);
	/* Before the driver's call, as the driver keeps a descriptor once it has taken it. */
	result =
		headroom_reserve_holding(HOLDING_IMPORT, &place, memHandleDesc->size, &reservation);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuImportExternalMemory(&memory, memHandleDesc);
	if (result != CUDA_SUCCESS) {
		quota_holding_cancel(&reservation);
		return result;
	}
	result = share_adopt(&reservation, (uintptr_t)memory, place.context);
	if (result != CUDA_SUCCESS) {
		cuda.cuDestroyExternalMemory(memory);
		return result;
	}
	share_imported_in(place.context, ends);
	*extMem_out = memory;
	return CUDA_SUCCESS;
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
{
	trace_call(__func__);
	cuda_bind();
	share_ending();
	return share_ended(cuda.cuDestroyExternalMemory(extMem), (uintptr_t)extMem);
}
