/* See stream_acts.h. */
#include "stream_acts.h"

CUstream stream;
CUmemoryPool standard;

void start(const char *limit)
{
	stream = stream_start(limit);
	CHECK_OK(cuDeviceGetDefaultMemPool(&standard, 0));
	assert_data(0);
}

CUmemoryPool pool_on(CUmemAllocationType type, unsigned location, int device)
{
	CUmemPoolProps properties = {.allocType = type, .location = {location, device}};
	CUmemoryPool pool = NULL;

	CHECK_OK(cuMemPoolCreate(&pool, &properties));
	return pool;
}

CUmemoryPool device_pool(void)
{
	return pool_on(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0);
}

CUdeviceptr take_from(CUmemoryPool pool, uint64_t bytes)
{
	CUdeviceptr address = 0;

	CHECK_OK(cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
	return address;
}

void threshold_set(CUmemoryPool pool, uint64_t bytes)
{
	CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

/* -- rows of calls ---------------------------------------------------------------------------- */

static CUdeviceptr things[ACT_THINGS];
CUmemoryPool pools[POOLS];

void play(const struct acts *row)
{
	acts_begin(row);
	CHECK_OK(cuStreamCreate(&stream, NON_BLOCKING));
	CHECK_OK(cuDeviceGetDefaultMemPool(&pools[STANDARD], 0));
	acts_take(row);
}

/* The allocation was made, or its output is as it was. */
static CUresult took(CUresult result, const struct act_call *call, CUdeviceptr address)
{
	CHECK((result == CUDA_SUCCESS) == (address != UNTOUCHED));
	if (result == CUDA_SUCCESS)
		things[call->thing] = address;
	return result;
}

CUresult take_linear(const struct act_call *call)
{
	CUdeviceptr address = UNTOUCHED;
	CUresult result = cuMemAlloc_v2(&address, call->size * MIB);

	return took(result, call, address);
}

ACT(give_linear, cuMemFree_v2(things[call->thing]));

CUresult take_in_stream(const struct act_call *call)
{
	CUdeviceptr address = UNTOUCHED;
	CUresult result = cuMemAllocAsync(&address, call->size * MIB, stream);

	return took(result, call, address);
}

ACT(give_in_stream, cuMemFreeAsync(things[call->thing], stream));
ACT(wait_for_stream, cuStreamSynchronize(stream));

/* A comparison is due once a second, and made by an allocation. */
CUresult look(const struct act_call *call)
{
	(void)call;
	sleep_ms(1100);
	give(take(1));
	return CUDA_SUCCESS;
}

CUresult make_pool(const struct act_call *call)
{
	pools[call->in] = device_pool();
	return CUDA_SUCCESS;
}

ACT(destroy_pool, cuMemPoolDestroy(pools[call->in]));

CUresult take_in_pool(const struct act_call *call)
{
	CUdeviceptr address = UNTOUCHED;
	CUresult result =
		cuMemAllocFromPoolAsync(&address, call->size * MIB, pools[call->in], stream);

	return took(result, call, address);
}

ACT(trim_pool, cuMemPoolTrimTo(pools[call->in], MIB * call->size));

CUresult keep_in_pool(const struct act_call *call)
{
	threshold_set(pools[call->in], call->size * MIB);
	return CUDA_SUCCESS;
}
