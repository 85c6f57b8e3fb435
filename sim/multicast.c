/*
 * Multicast objects: handles without memory of their own, which keep the memory that is bound to
 * them. They take no memory of any GPU, and writes to them are lost.
 *
 * Under virtual_lock.
 */
#include "sim.h"

#include <stdlib.h>

struct multicast_binding {
	size_t offset, bytes;
	struct memory_handle *handle; /* the binding is a use of it */
	struct multicast_binding *next;
};

void multicast_close(struct memory_handle *handle)
{
	while (handle->bindings) {
		struct multicast_binding *binding = handle->bindings;

		handle->bindings = binding->next;
		virtual_unuse(binding->handle);
		free(binding);
	}
}

static bool prop_valid(const CUmulticastObjectProp *prop)
{
	unsigned types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

	return prop && prop->size && prop->size % GRANULE_BYTES == 0 && prop->numDevices &&
	       prop->numDevices <= device_count() && !prop->flags && !(prop->handleTypes & ~types);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle,
			   const CUmulticastObjectProp *prop)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!mcHandle || !prop_valid(prop))
		return CUDA_ERROR_INVALID_VALUE;
	virtual_lock();
	struct memory_handle *handle = virtual_handle_new(NULL, prop->size);
	if (handle) {
		handle->devices = prop->numDevices;
		handle->types = (unsigned)prop->handleTypes;
		*mcHandle = (uintptr_t)handle;
	}
	virtual_unlock();
	return leave(__func__, handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

static struct memory_handle *multicast_find(CUmemGenericAllocationHandle value)
{
	struct memory_handle *handle = virtual_handle(value);

	return handle && !handle->physical ? handle : NULL;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev)
{
	CUresult result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!device_gpu(dev, &gpu))
		return CUDA_ERROR_INVALID_DEVICE;
	virtual_lock();
	struct memory_handle *handle = multicast_find(mcHandle);
	unsigned bit = 1u << dev;
	if (!handle || handle->added & bit ||
	    (unsigned)__builtin_popcount(handle->added) == handle->devices)
		result = CUDA_ERROR_INVALID_VALUE;
	else
		handle->added |= bit;
	virtual_unlock();
	return result;
}

static CUresult bind_locked(struct memory_handle *multicast, size_t offset,
			    struct memory_handle *memory, size_t memory_offset, size_t bytes)
{
	if (!multicast || !memory || !memory->physical || !memory->physical->on_device || !bytes ||
	    (offset | memory_offset | bytes) % GRANULE_BYTES || offset > multicast->bytes ||
	    bytes > multicast->bytes - offset || memory_offset > memory->bytes ||
	    bytes > memory->bytes - memory_offset)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(multicast->added & 1u << memory->physical->prop.location.id))
		return CUDA_ERROR_INVALID_VALUE;
	struct multicast_binding *binding = malloc(sizeof *binding);
	if (!binding)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*binding = (struct multicast_binding){offset, bytes, memory, multicast->bindings};
	multicast->bindings = binding;
	virtual_use(memory);
	return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
			    CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
			    unsigned long long flags)
{
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	virtual_lock();
	result = bind_locked(multicast_find(mcHandle), mcOffset, virtual_handle(memHandle),
			     memOffset, size);
	virtual_unlock();
	return leave(__func__, result);
}

/* The address must be one that virtual memory is mapped at. */
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
			     CUdeviceptr memptr, size_t size, unsigned long long flags)
{
	CUresult result = enter(__func__);
	struct memory_range range;

	if (result)
		return result;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	virtual_lock();
	struct memory_handle *memory = virtual_mapped(memptr);
	if (!memory || !address_map_find(memptr, &range))
		result = CUDA_ERROR_INVALID_VALUE;
	else
		result = bind_locked(multicast_find(mcHandle), mcOffset, memory,
				     memptr - range.address, size);
	virtual_unlock();
	return leave(__func__, result);
}

/* Unbinds the device's bindings in the range. False: the range has only a part of a binding. */
static bool unbind_locked(struct memory_handle *multicast, CUdevice device, size_t offset,
			  size_t bytes)
{
	bool found = false;

	for (struct multicast_binding **at = &multicast->bindings; *at;) {
		struct multicast_binding *binding = *at;

		if (binding->handle->physical->prop.location.id != device ||
		    binding->offset < offset || binding->offset - offset >= bytes) {
			at = &binding->next;
			continue;
		}
		if (binding->bytes > bytes - (binding->offset - offset))
			return false;
		*at = binding->next;
		virtual_unuse(binding->handle);
		free(binding);
		found = true;
	}
	return found;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
			   size_t size)
{
	CUresult result = enter(__func__);
	unsigned gpu;

	if (result)
		return result;
	if (!device_gpu(dev, &gpu))
		return CUDA_ERROR_INVALID_DEVICE;
	virtual_lock();
	struct memory_handle *handle = multicast_find(mcHandle);
	if (!handle || !unbind_locked(handle, dev, mcOffset, size))
		result = CUDA_ERROR_INVALID_VALUE;
	virtual_unlock();
	return leave(__func__, result);
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
				   CUmulticastGranularity_flags option)
{
	const unsigned recommended = 1;
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!granularity || !prop || option > recommended)
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = GRANULE_BYTES;
	return CUDA_SUCCESS;
}
