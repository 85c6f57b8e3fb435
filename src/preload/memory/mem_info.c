/* Functions that report the device's memory. They report the slice as if it were the GPU. */
#include <limits.h>
#include <stdint.h>

#include "cuda.h"
#include "hooks.h"
#include "oversubscribe.h"
#include "quota.h"
#include "reconcile.h"
#include "state.h"
#include "trace.h"

static uint64_t lesser(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The slice's limit on a device, or UINT64_MAX if there is none. */
static CUresult limit_of(CUdevice device, uint64_t *ret_limit)
{
	bool attached;
	CUresult result = state_attach(&attached);
	uint64_t limit = attached ? quota_limit(device) : 0;

	*ret_limit = limit ? limit : UINT64_MAX;
	return result;
}

static uint64_t total_of(uint64_t card, uint64_t limit)
{
	return limit == UINT64_MAX ? card : oversubscribe_shown(limit, card);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	uint64_t limit;
	CUresult result = TRACE_CALLED(limit_of(dev, &limit));

	if (result == CUDA_SUCCESS)
		result = cuda.cuDeviceTotalMem_v2(bytes, dev);
	if (result == CUDA_SUCCESS)
		*bytes = total_of(*bytes, limit);
	return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	uint64_t limit;
	CUresult result = TRACE_CALLED(limit_of(dev, &limit));

	if (result == CUDA_SUCCESS)
		result = cuda.cuDeviceTotalMem(bytes, dev);
	if (result == CUDA_SUCCESS)
		*bytes = (unsigned int)lesser(total_of(*bytes, limit), UINT_MAX);
	return result;
}

/* The total and free memory of the slice on the current device. Free memory is at most what the
 * device has free, unless the slice oversubscribes. */
static CUresult shown(size_t *free, size_t *total)
{
	size_t really_free, really_total;
	uint64_t limit = UINT64_MAX, left;
	CUdevice device;
	CUresult result = cuda.cuMemGetInfo_v2(&really_free, &really_total);

	if (result == CUDA_SUCCESS)
		result = cuda.cuCtxGetDevice(&device);
	if (result == CUDA_SUCCESS)
		result = limit_of(device, &limit);
	if (result != CUDA_SUCCESS)
		return result;
	if (limit != UINT64_MAX) {
		reconcile_books(device);
		quota_reap();
		left = limit - lesser(limit, quota_used(device));
		really_free = (size_t)oversubscribe_shown(left, really_free);
		really_total = (size_t)total_of(really_total, limit);
	}
	*free = really_free;
	*total = really_total;
	return CUDA_SUCCESS;
}

/* Either pointer may be NULL: the driver fills in the other. */
CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	size_t shown_free, shown_total;
	bool attached;
	CUresult result = TRACE_CALLED(state_attach(&attached));

	if (result != CUDA_SUCCESS)
		return result;
	if (!attached)
		return cuda.cuMemGetInfo_v2(free, total);
	result = shown(&shown_free, &shown_total);
	if (result == CUDA_SUCCESS && free)
		*free = shown_free;
	if (result == CUDA_SUCCESS && total)
		*total = shown_total;
	return result;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total)
{
	size_t shown_free, shown_total;
	bool attached;
	CUresult result = TRACE_CALLED(state_attach(&attached));

	if (result != CUDA_SUCCESS)
		return result;
	if (!attached)
		return cuda.cuMemGetInfo(free, total);
	result = shown(&shown_free, &shown_total);
	if (result == CUDA_SUCCESS && free)
		*free = (unsigned int)lesser(shown_free, UINT_MAX);
	if (result == CUDA_SUCCESS && total)
		*total = (unsigned int)lesser(shown_total, UINT_MAX);
	return result;
}
