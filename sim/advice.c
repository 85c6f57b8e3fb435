/*
 * Advice about managed memory, and prefetches. They are recorded for each allocation, and the range
 * attributes report them. No memory moves, and a prefetch takes no time.
 */
#include "sim.h"

#include <string.h>

enum {
	DEVICE_CPU = -1,
	DEVICE_INVALID = -2,
};

static bool location_valid(const CUmemLocation *location)
{
	unsigned gpu;

	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return device_gpu(location->id, &gpu);
	return location->type >= CU_MEM_LOCATION_TYPE_HOST &&
	       location->type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

static CUmemLocation location_of(CUdevice device)
{
	return device == DEVICE_CPU ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
				    : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

static void accessed_set(struct memory_advice *advice, const CUmemLocation *location, bool set)
{
	uint32_t bit = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? 1u << location->id : 0;

	if (!bit)
		advice->accessed_by_host = set;
	advice->accessed_by = set ? advice->accessed_by | bit : advice->accessed_by & ~bit;
}

static CUresult advise(const char *function, uint64_t address, size_t bytes, CUmem_advise what,
		       CUmemLocation location)
{
	struct memory_advice advice;
	CUresult result = enter(function);
	bool anywhere = what <= CU_MEM_ADVISE_UNSET_READ_MOSTLY ||
			what == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;

	if (result)
		return result;
	if (what < CU_MEM_ADVISE_SET_READ_MOSTLY || what > CU_MEM_ADVISE_UNSET_ACCESSED_BY ||
	    !memory_advice_get(address, bytes, &advice))
		return CUDA_ERROR_INVALID_VALUE;
	if (!anywhere && !location_valid(&location))
		return CUDA_ERROR_INVALID_DEVICE;
	switch (what) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		advice.read_mostly = what == CU_MEM_ADVISE_SET_READ_MOSTLY;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		advice.preferred = location;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		advice.preferred = NOWHERE;
		break;
	default:
		accessed_set(&advice, &location, what == CU_MEM_ADVISE_SET_ACCESSED_BY);
	}
	memory_advice_set(address, bytes, &advice);
	return leave(function, CUDA_SUCCESS);
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	return advise(__func__, devPtr, count, advice, location_of(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
			CUmemLocation location)
{
	return advise(__func__, devPtr, count, advice, location);
}

static CUresult prefetch(const char *function, uint64_t address, size_t bytes,
			 CUmemLocation location, CUstream handle, bool per_thread)
{
	struct memory_advice advice;
	CUcontext context;
	CUstream stream;
	CUresult result = enter_context(function, &context);

	if (!result)
		result = stream_resolve(context, handle, per_thread, &stream);
	if (result)
		return result;
	if (!memory_advice_get(address, bytes, &advice))
		return CUDA_ERROR_INVALID_VALUE;
	if (!location_valid(&location))
		return CUDA_ERROR_INVALID_DEVICE;
	result = capture_refuse(stream);
	if (result)
		return result;
	advice.prefetched = location;
	memory_advice_set(address, bytes, &advice);
	return leave(function, CUDA_SUCCESS);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	return prefetch(__func__, devPtr, count, location_of(dstDevice), hStream, false);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
				 CUstream hStream)
{
	return prefetch(__func__, devPtr, count, location_of(dstDevice), hStream, true);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
			       unsigned int flags, CUstream hStream)
{
	return prefetch(__func__, flags ? 0 : devPtr, count, location, hStream, false);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location,
				    unsigned int flags, CUstream hStream)
{
	return prefetch(__func__, flags ? 0 : devPtr, count, location, hStream, true);
}

/* Returns the index of the location to which the range is moved. A location holds from its first
 * range to the next location's first range. */
static size_t location_for(size_t range, const size_t *firsts, size_t count)
{
	size_t at = 0;

	while (at + 1 < count && firsts[at + 1] <= range)
		at++;
	return at;
}

static bool firsts_valid(const size_t *firsts, size_t locations, size_t ranges)
{
	if (!locations || locations > ranges || firsts[0])
		return false;
	for (size_t i = 1; i < locations; i++)
		if (firsts[i] <= firsts[i - 1] || firsts[i] >= ranges)
			return false;
	return true;
}

/* A batch is refused as a whole, before anything of it is done. cuda.h says what is refused. */
static CUresult prefetch_batch(const char *function, const CUdeviceptr *addresses,
			       const size_t *sizes, size_t count, const CUmemLocation *locations,
			       const size_t *firsts, size_t locations_count,
			       unsigned long long flags, CUstream handle, bool per_thread)
{
	struct memory_advice advice;
	CUcontext context;
	CUstream stream;
	CUresult result = enter_context(function, &context);

	if (!result && ((!handle && !per_thread) || flags || !addresses || !sizes || !locations ||
			!firsts || !firsts_valid(firsts, locations_count, count)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = stream_resolve(context, handle, per_thread, &stream);
	for (size_t i = 0; !result && i < count; i++) {
		if (!memory_advice_get(addresses[i], sizes[i], &advice))
			result = CUDA_ERROR_INVALID_VALUE;
		else if (!location_valid(&locations[location_for(i, firsts, locations_count)]))
			result = CUDA_ERROR_INVALID_DEVICE;
	}
	if (!result)
		result = capture_refuse(stream);
	for (size_t i = 0; !result && i < count; i++) {
		memory_advice_get(addresses[i], sizes[i], &advice);
		advice.prefetched = locations[location_for(i, firsts, locations_count)];
		memory_advice_set(addresses[i], sizes[i], &advice);
	}
	return leave(function, result);
}

#define PREFETCH_BATCH(name, per_thread)                                                  \
	CUresult name(CUdeviceptr *dptrs, size_t *sizes, size_t count,                    \
		      CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,               \
		      size_t numPrefetchLocs, unsigned long long flags, CUstream hStream) \
	{                                                                                 \
		return prefetch_batch(__func__, dptrs, sizes, count, prefetchLocs,        \
				      prefetchLocIdxs, numPrefetchLocs, flags, hStream,   \
				      per_thread);                                        \
	}

PREFETCH_BATCH(cuMemPrefetchBatchAsync, false)
PREFETCH_BATCH(cuMemPrefetchBatchAsync_ptsz, true)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync, false)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, true)

/* The location as the older attributes report it: a device's number, or a number for the host or
 * for none. */
static int number_of(const CUmemLocation *location)
{
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return location->id;
	return location->type == CU_MEM_LOCATION_TYPE_INVALID ? DEVICE_INVALID : DEVICE_CPU;
}

/* Lists the devices first, then the host. The rest of the array is filled with the number for none.
 */
static void accessed_list(const struct memory_advice *advice, int *list, size_t length)
{
	size_t count = 0;

	for (int i = 0; i < SIM_GPUS_MAX && count < length; i++) {
		if (advice->accessed_by & 1u << i)
			list[count++] = i;
	}
	if (advice->accessed_by_host && count < length)
		list[count++] = DEVICE_CPU;
	while (count < length)
		list[count++] = DEVICE_INVALID;
}

static CUresult attribute_get(const struct memory_advice *advice, CUmem_range_attribute attribute,
			      void *data, size_t bytes)
{
	int value;

	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		value = advice->read_mostly;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		value = number_of(&advice->preferred);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		value = number_of(&advice->prefetched);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		value = (int)advice->preferred.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		value = advice->preferred.id;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		value = (int)advice->prefetched.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		value = advice->prefetched.id;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		if (!bytes || bytes % sizeof(int))
			return CUDA_ERROR_INVALID_VALUE;
		accessed_list(advice, data, bytes / sizeof(int));
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (bytes != sizeof value)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(data, &value, sizeof value);
	return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
				CUdeviceptr devPtr, size_t count)
{
	struct memory_advice advice;
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!data || !memory_advice_get(devPtr, count, &advice))
		return CUDA_ERROR_INVALID_VALUE;
	return attribute_get(&advice, attribute, data, dataSize);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
				 size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
	struct memory_advice advice;
	CUresult result = enter(__func__);

	if (result)
		return result;
	if (!data || !dataSizes || !attributes || !numAttributes ||
	    !memory_advice_get(devPtr, count, &advice))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; !result && i < numAttributes; i++)
		result = data[i] ? attribute_get(&advice, attributes[i], data[i], dataSizes[i])
				 : CUDA_ERROR_INVALID_VALUE;
	return result;
}
