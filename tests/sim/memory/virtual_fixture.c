/* See virtual_fixture.h. */
#include "virtual_fixture.h"

#include <unistd.h>

void start(const char *limit)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	cuda_start(0);
	give(take(1)); /* settles the context */
	CHECK_EQUAL(ledger_own(0).data, 0);
}

void assert_data(uint64_t bytes)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_EQUAL(usage.data, bytes);
	CHECK_EQUAL(usage.total, usage.context + usage.module + usage.data + usage.offset);
	CHECK_EQUAL(outside_of(0, getpid()), usage.context + usage.module + usage.data);
	CHECK_EQUAL(outside_used(0), CONTEXT + 9 * MIB + bytes);
	CHECK_EQUAL(ledger_used(0), usage.total);
}

CUmemAllocationProp at(unsigned type, int id)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {type, id}};
}

CUresult create(memory *handle, uint64_t bytes, CUdevice device)
{
	CUmemAllocationProp prop = at(CU_MEM_LOCATION_TYPE_DEVICE, device);

	return cuMemCreate(handle, bytes, &prop, 0);
}

memory created(uint64_t bytes)
{
	memory handle = 0;

	CHECK_OK(create(&handle, bytes, 0));
	return handle;
}

void release(memory handle)
{
	CHECK_OK(cuMemRelease(handle));
}

CUdeviceptr reserve(uint64_t bytes)
{
	CUdeviceptr address = 0;

	CHECK_OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
	return address;
}

void map(CUdeviceptr address, uint64_t bytes, memory handle)
{
	CHECK_OK(cuMemMap(address, bytes, 0, handle, 0));
}

void unmap(CUdeviceptr address, uint64_t bytes)
{
	CHECK_OK(cuMemUnmap(address, bytes));
}

memory retain(CUdeviceptr address)
{
	memory handle = 0;

	CHECK_OK(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address));
	return handle;
}

/* -- rows of calls ---------------------------------------------------------------------------- */

memory things[ACT_THINGS];
CUdeviceptr space;

void play(const struct acts *row)
{
	acts_begin(row);
	space = reserve(4 * GIB);
	acts_take(row);
}

CUresult create_thing(const struct act_call *call)
{
	CUmemAllocationProp prop = at(call->in, 0);
	memory handle = UNTOUCHED;
	CUresult result = cuMemCreate(&handle, call->size * MIB, &prop, 0);

	CHECK((result == CUDA_SUCCESS) == (handle != UNTOUCHED));
	if (result == CUDA_SUCCESS)
		things[call->thing] = handle;
	return result;
}

ACT(release_thing, cuMemRelease(things[call->thing]));
ACT(map_thing, cuMemMap(space + call->at * MIB, call->size *MIB, 0, things[call->thing], 0));
ACT(unmap_place, cuMemUnmap(space + call->at * MIB, call->size *MIB));

CUresult retain_thing(const struct act_call *call)
{
	memory handle = UNTOUCHED;
	void *address = (void *)(uintptr_t)(space + call->at * MIB);
	CUresult result = cuMemRetainAllocationHandle(&handle, address);

	CHECK_EQUAL(handle, result == CUDA_SUCCESS ? things[call->thing] : UNTOUCHED);
	return result;
}
