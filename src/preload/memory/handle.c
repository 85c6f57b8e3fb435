/*
 * Export and import of VMM allocations, address ranges and pools by handles (export.h and import.h
 * say how they are charged).
 *
 * The driver does not report the size of an imported allocation. An allocation that no process of
 * the slice exports is charged when it is mapped, as only then it can be used.
 */
#include <string.h>

#include "allocation.h"
#include "cuda.h"
#include "export.h"
#include "headroom.h"
#include "hooks.h"
#include "import.h"
#include "imports.h"
#include "log.h"
#include "mapping.h"
#include "pool.h"
#include "quota.h"
#include "sys.h"
#include "trace.h"
#include "virtual.h"

/* of CUmemFabricHandle and CUmemPoolPtrExportData alike */
#define HANDLE_BYTES 64

/* -- VMM allocations --------------------------------------------------------------------------- */

/* The driver has exported memory as a descriptor. If other memory has the handle by now, or is
 * mapped there, the descriptor may be of either, and is closed. */
static CUresult exported_fd(const struct holding_reference *reference, int fd)
{
	if (quota_reference_is_stale(reference) || quota_mapping_is_stale(reference)) {
		sys_close(fd);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!reference->bytes) {
		/* The memory was itself imported, and nothing is charged for it here. */
		quota_import_exported(quota_holding_number(reference->serial), fd);
		return CUDA_SUCCESS;
	}
	if (quota_export_fd(quota_holding_number(reference->serial), fd, reference->device,
			    reference->bytes) == 0)
		return CUDA_SUCCESS;
	sys_close(fd);
	return CUDA_ERROR_OUT_OF_MEMORY;
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
		quota_export_handle(quota_holding_number(reference->serial), shareableHandle,
				    HANDLE_BYTES, reference->device, reference->bytes, 0);
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

/* Counts references to the imported handle. *ret_number: quota_holding_number, or 0: the memory is
 * not on a device of the slice, or is released already. */
static CUresult hold_imported(CUmemGenericAllocationHandle handle, uint64_t *ret_number)
{
	CUmemAllocationProp prop;
	uint32_t serial = 0;
	bool counted = false;
	CUresult result = CUDA_SUCCESS;

	*ret_number = 0;
	if (cuda.cuMemGetAllocationPropertiesFromHandle(&prop, handle) != CUDA_SUCCESS)
		return virtual_hold_object(handle, true); /* a multicast object */
	if (prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		result = headroom_on(prop.location.id, &counted);
	if (result == CUDA_SUCCESS && counted)
		result = virtual_hold_imported(handle, prop.location.id, &serial);
	if (serial)
		*ret_number = quota_holding_number(serial);
	return result;
}

/* The driver has imported the memory. */
static CUresult imported(CUmemGenericAllocationHandle handle, const struct quota_import *import)
{
	uint64_t number;
	CUresult result = hold_imported(handle, &number);

	if (!number) {
		quota_import_cancel(import);
		if (result != CUDA_SUCCESS)
			cuda.cuMemRelease(handle);
		return result;
	}
	if (quota_import_record(import, number, 0, 0) || quota_import_later(number))
		return CUDA_SUCCESS;
	virtual_release(handle);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The import begins before the driver is called, as the exporter may free the memory meanwhile. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
					CUmemAllocationHandleType shHandleType)
{
	struct quota_import import;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	if (!quota_attached())
		return cuda.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
	if (shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		quota_import_begin_fd((int)(intptr_t)osHandle, &import);
	else if (shHandleType == CU_MEM_HANDLE_TYPE_FABRIC && osHandle)
		quota_import_begin(osHandle, HANDLE_BYTES, &import);
	else
		quota_import_begin_unknown(&import);
	result = cuda.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
	if (result == CUDA_SUCCESS)
		return imported(*handle, &import);
	quota_import_cancel(&import);
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

	return cuda.cuMemGetAddressRange_v2(ret_base, &size, address) == CUDA_SUCCESS &&
	       quota_find_block(*ret_base, ret_block);
}

/* Memory of a device that the accounts do not have: another thread is just allocating or freeing
 * it, or it is another process's. */
static CUresult refuse_uncounted(void)
{
	static bool said;

	if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		log_line(LOG_ERROR, "cuMemGetHandleForAddressRange is refused for memory that "
				    "another call is freeing or allocating, or that is another "
				    "process's: a descriptor would keep it without a charge");
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult export_block(const struct range *range, CUdeviceptr base,
			     const struct quota_block *block, int *ret_fd)
{
	CUresult result;
	uint32_t serial;
	bool full;

	if (!quota_export_begin(base, block, &serial, &full))
		return full ? CUDA_ERROR_OUT_OF_MEMORY : refuse_uncounted();
	result = export_range(range, ret_fd);
	if (result != CUDA_SUCCESS) {
		quota_export_cancel(serial);
		return result;
	}
	if (quota_export_end_fd(serial, block, *ret_fd))
		return CUDA_SUCCESS;
	sys_close(*ret_fd);
	return refuse_uncounted();
}

/* True if the driver cannot say. */
static bool is_on_device(CUdeviceptr address)
{
	unsigned type = 0;

	return cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
		       CUDA_SUCCESS ||
	       type == CU_MEMORYTYPE_DEVICE;
}

/* Memory that the accounts do not have. The host's may be exported. The type is asked for before
 * the driver makes a descriptor, which another thread could copy, and again afterwards, as the
 * address may be other memory's by then. */
static CUresult export_uncounted(const struct range *range, int *ret_fd)
{
	CUresult result;

	if (is_on_device(range->address))
		return refuse_uncounted();
	result = export_range(range, ret_fd);
	if (result != CUDA_SUCCESS || !is_on_device(range->address))
		return result;
	sys_close(*ret_fd);
	return refuse_uncounted();
}

/* A DMA-BUF keeps its memory: a block, or physical memory that is mapped at the address. The memory
 * is known to be exported before the driver exports it, as another thread may free it meanwhile. A
 * block that is being freed is not in the accounts. */
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
	} else {
		result = export_uncounted(&range, &fd);
	}
	if (result == CUDA_SUCCESS)
		memcpy(handle, &fd, sizeof(fd));
	return result;
}

/* -- pointers of pools, which are charged with the pool until the exporter frees them or ends ----
 */

/* The pool, the device and the size of memory at that address. False: it is of no pool that is
 * charged, or the driver does not say. */
static bool find_in_pool(CUdeviceptr address, CUmemoryPool *ret_pool, CUdevice *ret_device,
			 size_t *ret_size)
{
	CUdeviceptr base;
	unsigned flags;

	return cuda.cuPointerGetAttribute(ret_pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address) ==
		       CUDA_SUCCESS &&
	       quota_pool_is_known((uintptr_t)*ret_pool, ret_device, &flags) &&
	       cuda.cuMemGetAddressRange_v2(&base, ret_size, address) == CUDA_SUCCESS;
}

/* An importer of a pointer that is not recorded is charged for it. */
CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	CUmemoryPool pool = NULL;
	CUdevice device;
	size_t size;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	result = cuda.cuMemPoolExportPointer(shareData_out, ptr);
	if (result == CUDA_SUCCESS && quota_attached() && find_in_pool(ptr, &pool, &device, &size))
		quota_export_pointer(ptr, shareData_out, HANDLE_BYTES, device, size,
				     (uintptr_t)pool);
	return result;
}

static bool has_context(void)
{
	CUcontext context = NULL;

	return cuda.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context;
}

/* No process of the slice has the charge for the pointer. */
static CUresult charge_pointer(CUdeviceptr address)
{
	struct place place = {.context = NULL};
	CUdeviceptr base;
	size_t size;
	bool counted;
	CUresult result;

	if (!is_on_device(address))
		return CUDA_SUCCESS;
	if (cuda.cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS ||
	    cuda.cuPointerGetAttribute(&place.device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       address) != CUDA_SUCCESS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = headroom_on(place.device, &counted);
	return result == CUDA_SUCCESS && counted ? imports_charge(address, &place, size) : result;
}

/* The driver does not say the size of the memory, nor frees the pointer, while no context is
 * current. Then a pointer that would be charged here is refused before the driver imports it. */
static CUresult import_pointer(CUdeviceptr *ret_address, CUmemoryPool pool,
			       CUmemPoolPtrExportData *data)
{
	struct quota_import import;
	uint64_t number;
	CUresult result;

	quota_import_begin(data, HANDLE_BYTES, &import);
	number = quota_import_expect(&import);
	if (number) {
		result = cuda.cuMemPoolImportPointer(ret_address, pool, data);
		quota_import_arrived(number, result == CUDA_SUCCESS ? *ret_address : 0);
		return result;
	}
	result = has_context() ? cuda.cuMemPoolImportPointer(ret_address, pool, data)
			       : CUDA_ERROR_INVALID_CONTEXT;
	quota_import_cancel(&import);
	if (result != CUDA_SUCCESS)
		return result;
	result = charge_pointer(*ret_address);
	if (result != CUDA_SUCCESS)
		cuda.cuMemFree_v2(*ret_address);
	return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
				CUmemPoolPtrExportData *shareData)
{
	CUdeviceptr address = 0;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	if (!quota_attached() || !ptr_out || !shareData)
		return cuda.cuMemPoolImportPointer(ptr_out, pool, shareData);
	result = import_pointer(&address, pool, shareData);
	if (result == CUDA_SUCCESS)
		*ptr_out = address;
	return result;
}
