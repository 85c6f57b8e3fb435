/* Allocations that the runtime rounds or describes, and what memory an address is. */
#include "runtime.h"

enum {
	PITCH_ELEMENT_BYTES = 4,
	DEVICE_INVALID = -2, /* cudaInvalidDeviceId */
};

int rt_malloc(void **ret_address, size_t bytes)
{
	if (!ret_address)
		return cudaErrorInvalidValue;
	*ret_address = NULL;
	return bytes ? (int)cu.cuMemAlloc_v2((void *)ret_address, bytes) : (int)cudaSuccess;
}

int rt_malloc_pitch(void **ret_address, size_t *ret_pitch, size_t width, size_t height)
{
	if (!ret_address || !ret_pitch)
		return cudaErrorInvalidValue;
	*ret_address = NULL;
	*ret_pitch = 0;
	if (!width || !height)
		return cudaSuccess;
	return (int)cu.cuMemAllocPitch_v2((void *)ret_address, ret_pitch, width, height,
					  PITCH_ELEMENT_BYTES);
}

int rt_malloc_3d(struct cudaPitchedPtr *ret_memory, struct cudaExtent extent)
{
	struct cudaPitchedPtr memory = {.xsize = extent.width, .ysize = extent.height};
	size_t rows;

	if (!ret_memory || __builtin_mul_overflow(extent.height, extent.depth, &rows))
		return cudaErrorInvalidValue;
	int error = rt_malloc_pitch(&memory.ptr, &memory.pitch, extent.width, rows);
	if (!error)
		*ret_memory = memory;
	return error;
}

int rt_pointer_attributes(struct cudaPointerAttributes *ret_attributes, const void *address)
{
	struct cudaPointerAttributes found = {.device = DEVICE_INVALID};
	CUdeviceptr at = (CUdeviceptr)address;
	unsigned type = 0, managed = 0;

	if (!ret_attributes)
		return cudaErrorInvalidValue;
	if (cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) || !type) {
		found.hostPointer = (void *)at;
		*ret_attributes = found;
		return cudaSuccess;
	}
	/* An attribute that the memory does not have leaves its field as it is. */
	cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
	cu.cuPointerGetAttribute(&found.device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
	cu.cuPointerGetAttribute(&found.devicePointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at);
	if (managed || type == CU_MEMORYTYPE_HOST)
		cu.cuPointerGetAttribute(&found.hostPointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, at);
	found.type = managed ? cudaMemoryTypeManaged : (enum cudaMemoryType)type;
	*ret_attributes = found;
	return cudaSuccess;
}

int rt_ipc_open(void **ret_address, const cudaIpcMemHandle_t *handle, unsigned flags)
{
	CUipcMemHandle driver;

	_Static_assert(sizeof driver == sizeof *handle, "the driver has the same handle");
	__builtin_memcpy(&driver, handle, sizeof driver);
	return (int)cu.cuIpcOpenMemHandle_v2((void *)ret_address, driver, flags);
}
