/*
 * CUDA IPC: blocks of cuMemAlloc that other processes open. And memory of other APIs, such as
 * Vulkan, which is imported as a whole. export.h and import.h say how both are charged.
 */
#include "allocation.h"
#include "context.h"
#include "cuda.h"
#include "export.h"
#include "headroom.h"
#include "hooks.h"
#include "import.h"
#include "imports.h"
#include "peers.h"
#include "quota.h"
#include "trace.h"

/* A handle that cannot be recorded is good all the same: whoever opens it is charged. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct quota_block block;
	CUdeviceptr base;
	uint32_t serial;
	size_t size;
	CUresult result;
	bool unused;

	trace_call(__func__);
	cuda_bind();
	if (!quota_attached() || cuda.cuMemGetAddressRange_v2(&base, &size, dptr) != CUDA_SUCCESS ||
	    !quota_find_block(base, &block) || !quota_export_begin(base, &block, &serial, &unused))
		return cuda.cuIpcGetMemHandle(pHandle, dptr);
	result = cuda.cuIpcGetMemHandle(pHandle, dptr);
	if (result == CUDA_SUCCESS)
		quota_export_end_handle(serial, &block, pHandle, sizeof(*pHandle));
	else
		quota_export_cancel(serial);
	return result;
}

typedef CUresult open_handle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags);

/* Opens the memory. *ret_known: a process of the slice has the charge. If none has it and the
 * memory is on the device, *ret_size is the size of the memory. The import begins before the driver
 * is called, as the exporter may free the memory meanwhile. */
static CUresult open_known(open_handle *open, CUdeviceptr *ret_address, CUipcMemHandle handle,
			   unsigned int flags, CUcontext context, size_t *ret_size, bool *ret_known)
{
	struct quota_import import;
	CUdeviceptr base;
	CUresult result;

	quota_import_begin(&handle, sizeof(handle), &import);
	result = open(ret_address, handle, flags);
	if (result == CUDA_SUCCESS &&
	    cuda.cuMemGetAddressRange_v2(&base, ret_size, *ret_address) == CUDA_SUCCESS)
		*ret_known =
			quota_import_record(&import, *ret_address, *ret_size, (uintptr_t)context);
	else
		quota_import_cancel(&import);
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
		result = imports_charge(address, &place, size);
		if (result != CUDA_SUCCESS) {
			cuda.cuIpcCloseMemHandle(address);
			return result;
		}
	}
	if (size)
		quota_import_made_in((uintptr_t)place.context, ends);
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
	struct quota_pointer pointer;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	quota_pointer_free_begin(dptr, &pointer);
	result = cuda.cuIpcCloseMemHandle(dptr);
	quota_pointer_free_end(&pointer, result == CUDA_SUCCESS);
	return result;
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
	if (quota_import_charge(&reservation, (uintptr_t)memory, (uintptr_t)place.context) != 0) {
		cuda.cuDestroyExternalMemory(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	quota_import_made_in((uintptr_t)place.context, ends);
	*extMem_out = memory;
	return CUDA_SUCCESS;
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
{
	struct quota_pointer pointer;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	quota_pointer_free_begin((uintptr_t)extMem, &pointer);
	result = cuda.cuDestroyExternalMemory(extMem);
	quota_pointer_free_end(&pointer, result == CUDA_SUCCESS);
	return result;
}
