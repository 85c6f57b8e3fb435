/*
 * Managed memory is charged on the GPU that was current when it was allocated. A prefetch or an
 * advice on its preferred location makes another GPU hold its pages. Then it is charged there as
 * well (quota/moved.c), or the call is refused where the slice has no room there.
 *
 * Two kinds of memory are not charged there. One is memory that the driver moves by itself when a
 * kernel on another GPU uses it, because no call reports that. The other is __managed__ variables
 * and memory of managed pools, which have no entry by address in the accounts.
 */
#include <errno.h>

#include "cuda.h"
#include "headroom.h"
#include "hooks.h"
#include "quota.h"
#include "trace.h"

#define NO_DEVICE (-1)

/* Charges memory that is to be moved to the device. CUDA_SUCCESS: call the driver, then finish. */
static CUresult begin(struct quota_move *move, CUdeviceptr address, size_t bytes, int device)
{
	CUdeviceptr base = 0;
	size_t size = 0;
	bool counted;
	CUresult result;
	int error;

	*move = (struct quota_move){.charged = false};
	if (device < 0)
		return CUDA_SUCCESS;
	result = headroom_on(device, &counted);
	if (result != CUDA_SUCCESS || !counted ||
	    cuda.cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS ||
	    bytes > size - (address - base))
		return result; /* the driver will reject it */
	error = quota_move(device, base, address, bytes, move);
	if (error == -EDQUOT) {
		headroom_make(device);
		error = quota_move(device, base, address, bytes, move);
	}
	return error ? headroom_refuse(device, bytes, error) : CUDA_SUCCESS;
}

static CUresult finish(const struct quota_move *move, CUresult result)
{
	if (result != CUDA_SUCCESS)
		quota_move_undo(move);
	return result;
}

static int device_at(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : NO_DEVICE;
}

static int device_of_advice(CUmem_advise advice, int device)
{
	return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? device : NO_DEVICE;
}

/* Defines the hook of a call that moves memory to `device`; negative: to the host. */
#define MOVER(name, device, parameters, arguments)                          \
	CUresult name parameters                                            \
	{                                                                   \
		struct quota_move move;                                     \
		CUresult result;                                            \
                                                                            \
		cuda_bind();                                                \
		result = TRACE_CALLED(begin(&move, devPtr, count, device)); \
		if (result != CUDA_SUCCESS)                                 \
			return result;                                      \
		return finish(&move, cuda.name arguments);                  \
	}

MOVER(cuMemPrefetchAsync, dstDevice,
      (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
      (devPtr, count, dstDevice, hStream))

MOVER(cuMemPrefetchAsync_ptsz, dstDevice,
      (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
      (devPtr, count, dstDevice, hStream))

MOVER(cuMemPrefetchAsync_v2, device_at(&location),
      (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
       CUstream hStream),
      (devPtr, count, location, flags, hStream))

MOVER(cuMemPrefetchAsync_v2_ptsz, device_at(&location),
      (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
       CUstream hStream),
      (devPtr, count, location, flags, hStream))

MOVER(cuMemAdvise, device_of_advice(advice, device),
      (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device),
      (devPtr, count, advice, device))

MOVER(cuMemAdvise_v2, device_of_advice(advice, device_at(&location)),
      (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location),
      (devPtr, count, advice, location))
