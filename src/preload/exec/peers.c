/*
 * Access to memory of another device. The calls go straight to the driver. If it agrees, kernels on
 * the devices can wait for each other through that memory: that is a sign for each of the devices
 * (signs.h). When access is taken away again, the sign stays, as kernels that wait may have been
 * launched.
 *
 * Not seen: managed memory and memory of the host, which every device reaches; and memory that an
 * executable graph allocates with access for other devices.
 */
#include "peers.h"

#include "cuda.h"
#include "hooks.h"
#include "launch.h"
#include "pools.h"
#include "signs.h"

/* Whether the entry of an access list lets a device reach the memory. */
static bool gives_access(const CUmemAccessDesc *access)
{
	return access->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

/* -- contexts ---------------------------------------------------------------------------------- */

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	CUdevice device;
	CUresult result;

	cuda_bind();
	result = cuda.cuCtxEnablePeerAccess(peerContext, Flags);
	if (result == CUDA_SUCCESS && cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS) {
		signs_see(device);
		signs_see(launch_device(peerContext));
	}
	return result;
}

/* -- addresses --------------------------------------------------------------------------------- */

/* Whether memory of a device is mapped at the address, and which device's. That is no ordinal of
 * this process if the memory was imported from a device which the process does not see. */
static bool find_home(CUdeviceptr address, int *ret_home)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;
	bool found;

	if (cuda.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address) != CUDA_SUCCESS)
		return false;
	found = cuda.cuMemGetAllocationPropertiesFromHandle(&prop, handle) == CUDA_SUCCESS &&
		prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	cuda.cuMemRelease(handle);
	if (found)
		*ret_home = prop.location.id;
	return found;
}

/* The allocation at the start of a range stands for all allocations that are mapped in it. A
 * program that gives access to several allocations on different devices in one call names all of
 * these devices. */
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult result;
	int home;

	cuda_bind();
	result = cuda.cuMemSetAccess(ptr, size, desc, count);
	if (result != CUDA_SUCCESS || !find_home(ptr, &home))
		return result;
	for (size_t i = 0; i < count; i++)
		if (gives_access(&desc[i]) && desc[i].location.id != home) {
			signs_see(home);
			signs_see(desc[i].location.id);
		}
	return result;
}

/* Memory of a device that this process does not see is not on the context's device either. */
void peers_opened(CUdeviceptr address)
{
	CUdevice device;
	int home;

	if (cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
	    cuda.cuPointerGetAttribute(&home, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
		    CUDA_SUCCESS &&
	    home != device)
		signs_see(device);
}

/* -- pools ------------------------------------------------------------------------------------- */

/* Devices that can reach the pool's memory, a bit each. The device that the pool is on always can.
 */
static unsigned devices_of(CUmemoryPool pool)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
	CUstreamCaptureMode mode = relaxed_begin();
	unsigned devices = 0;

	for (; location.id < VGPU_DEVICES_MAX; location.id++) {
		if (cuda.cuMemPoolGetAccess(&flags, pool, &location) != CUDA_SUCCESS)
			break;
		if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			devices |= 1u << location.id;
	}
	relaxed_end(mode);
	return devices;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	unsigned devices;
	CUresult result;

	cuda_bind();
	result = cuda.cuMemPoolSetAccess(pool, map, count);
	devices = result == CUDA_SUCCESS ? devices_of(pool) : 0;
	if (devices & (devices - 1)) /* more than one */
		for (CUdevice device = 0; device < VGPU_DEVICES_MAX; device++)
			if (devices & 1u << device)
				signs_see(device);
	return result;
}

/* -- multicast objects: a write to one is a write to the memory of all its devices ------------- */

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev)
{
	CUresult result;

	cuda_bind();
	result = cuda.cuMulticastAddDevice(mcHandle, dev);
	if (result == CUDA_SUCCESS)
		signs_see(dev);
	return result;
}
