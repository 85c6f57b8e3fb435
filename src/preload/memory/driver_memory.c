/*
 * NVML's figure for the process says how much the driver took: no other process changes it.
 * Starting NVML would cost every program 12 ms when it loads its first module. So until NVML is
 * started, the device's free memory is read before and after the call (3 us each), and the
 * difference is used:
 *
 *     a small difference    is charged until the next reconciliation, which is made soon
 *     a larger one          may partly be other processes': NVML is asked at once, and if it has no
 *                           figure, all of the difference is charged
 */
#include "driver_memory.h"

#include <errno.h>

#include "compare.h"
#include "context.h"
#include "cuda.h"
#include "headroom.h"
#include "lazy_code.h"
#include "pools.h"
#include "quota.h"
#include "reconcile.h"

#define LITTLE_BYTES ((uint64_t)32 << 20)

static bool look(CUdevice device, uint64_t *ret_free_bytes)
{
	CUstreamCaptureMode mode = relaxed_begin();
	size_t free_bytes, total_bytes;
	CUdevice current;
	bool known = cuda.cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device &&
		     cuda.cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS;

	relaxed_end(mode);
	if (known)
		*ret_free_bytes = free_bytes;
	return known;
}

CUresult driver_memory_begin(struct driver_memory *growth, CUdevice device, uint64_t least_bytes,
			     uint64_t most_bytes)
{
	CUresult result;
	int error;

	*growth = (struct driver_memory){.device = device};
	if (device < 0 && cuda.cuCtxGetDevice(&growth->device) != CUDA_SUCCESS)
		return CUDA_SUCCESS;
	result = headroom_on(growth->device, &growth->counted);
	if (result != CUDA_SUCCESS || !growth->counted)
		return result;
	error = quota_driver_reserve(growth->device, least_bytes, most_bytes,
				     &growth->reserved_bytes);
	if (error == -EDQUOT) {
		headroom_make(growth->device);
		error = quota_driver_reserve(growth->device, least_bytes, most_bytes,
					     &growth->reserved_bytes);
	}
	if (error)
		return headroom_refuse(growth->device, least_bytes, error);
	growth->before_bytes = quota_driver_bytes(growth->device) - growth->reserved_bytes;
	growth->looked =
		!quota_is_compared(growth->device) && look(growth->device, &growth->free_bytes);
	return CUDA_SUCCESS;
}

/* The bytes by which the device's free memory fell beyond the reservation; 0: NVML is asked
 * instead. */
static uint64_t gone(const struct driver_memory *growth)
{
	uint64_t free_bytes, bytes;

	if (!growth->looked || !look(growth->device, &free_bytes))
		return 0;
	bytes = growth->free_bytes > free_bytes ? growth->free_bytes - free_bytes : 0;
	return bytes > growth->reserved_bytes ? bytes - growth->reserved_bytes : 0;
}

/* Charges the memory that the driver took beyond the reservation. */
static void charge_growth(const struct driver_memory *growth)
{
	uint64_t bytes = gone(growth);

	if (growth->looked && bytes <= LITTLE_BYTES &&
	    quota_driver_charge(growth->device, bytes) == 0) {
		reconcile_soon(growth->device);
		return;
	}
	reconcile_at_rest(growth->device);
	if (!quota_is_compared(growth->device))
		quota_driver_charge_anyway(growth->device, bytes);
}

bool driver_memory_end(struct driver_memory *growth, CUresult result)
{
	uint64_t now_bytes;

	if (!growth->counted)
		return true;
	if (result != CUDA_SUCCESS) {
		quota_driver_settle(growth->device, growth->reserved_bytes, 0);
		return true;
	}
	quota_driver_settle(growth->device, growth->reserved_bytes, growth->reserved_bytes);
	charge_growth(growth);
	now_bytes = quota_driver_bytes(growth->device);
	growth->charged_bytes =
		now_bytes > growth->before_bytes ? now_bytes - growth->before_bytes : 0;
	if (!growth->charged_bytes || !quota_is_above_limit(growth->device))
		return true;
	quota_ending_begin();
	return false;
}

CUresult driver_memory_refuse(const struct driver_memory *growth)
{
	quota_driver_return(growth->device, growth->charged_bytes);
	quota_ending_end();
	reconcile_at_rest(growth->device);
	return headroom_refuse(growth->device, growth->charged_bytes, -EOVERFLOW);
}

void driver_memory_undone(CUdevice device)
{
	lazy_code_renew();
	if (device >= 0 || cuda.cuCtxGetDevice(&device) == CUDA_SUCCESS)
		if (quota_attached() && quota_has_device(device))
			reconcile_soon(device);
}
