/*
 * Virtual memory management: cuMemCreate takes device memory, and it is charged until the last
 * reference of any kind is gone: handles, those that were asked for again with
 * cuMemRetainAllocationHandle, mappings, what is mapped into sparse arrays, and what multicast
 * objects have bound. The driver gives the memory back then and no sooner.
 *
 * Addresses (cuMemAddressReserve) cost nothing. Memory of the host (CU_MEM_LOCATION_TYPE_HOST…) is
 * not the GPU's. share.c has what goes to other processes and comes from them.
 */
#include "cuda.h"
#include "hooks.h"
#include "oversubscribe.h"
#include "quota.h"
#include "room.h"
#include "share.h"
#include "sys.h"

/* What cuMemCreate is asked for: whether it is of a device in the slice. */
static CUresult begin(const CUmemAllocationProp *prop, size_t size, bool *ret_counted,
		      struct holding_claim *ret_claim)
{
	struct place place = {.context = NULL};
	CUresult result;

	*ret_counted = false;
	if (!prop || !size || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_SUCCESS;
	place.device = prop->location.id;
	result = room_on(place.device, ret_counted);
	if (result == CUDA_SUCCESS && *ret_counted)
		result = room_hold(HOLDING_PHYSICAL, &place, size, ret_claim);
	return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	static bool said; /* oversubscribe_cannot's */
	CUmemGenericAllocationHandle made = 0;
	struct holding_claim claim;
	bool counted;
	CUresult result;

	cuda_bind();
	result = begin(prop, handle ? size : 0, &counted, &claim);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemCreate(handle ? &made : NULL, size, prop, flags);
	if (counted)
		oversubscribe_cannot(result, &said, "cuMemCreate");
	if (counted && result == CUDA_SUCCESS && quota_hold(&claim, made) != 0) {
		cuda.cuMemRelease(made);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (counted && result != CUDA_SUCCESS)
		quota_hold_cancel(&claim);
	if (result == CUDA_SUCCESS)
		*handle = made;
	return result;
}

/* A reference that the driver was asked to drop. */
static CUresult dropped(const struct holding_release *release, CUresult result)
{
	if (result != CUDA_SUCCESS)
		quota_let_go_undo(release);
	else if (release->last)
		share_end_physical(release);
	else
		quota_let_go_commit(release);
	return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct holding_release release;

	cuda_bind();
	if (!quota_attached() || !quota_let_go_begin(HOLDING_PHYSICAL, handle, &release))
		return cuda.cuMemRelease(handle);
	return dropped(&release, cuda.cuMemRelease(handle));
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult result;

	cuda_bind();
	result = cuda.cuMemRetainAllocationHandle(handle, addr);
	if (result == CUDA_SUCCESS && quota_attached())
		quota_hold_again(HOLDING_PHYSICAL, *handle);
	return result;
}

/* -- mappings -- */

/* The reference is counted before the driver makes it, so that no release in between is taken for
 * the last. */
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	struct holding_release release;
	CUdevice device = -1;
	CUresult result;

	cuda_bind();
	if (quota_attached())
		device = quota_hold_again(HOLDING_PHYSICAL, handle);
	if (device < 0)
		return cuda.cuMemMap(ptr, size, offset, handle, flags);
	result = share_map(handle, device, size);
	if (result == CUDA_SUCCESS)
		result = cuda.cuMemMap(ptr, size, offset, handle, flags);
	if (result == CUDA_SUCCESS)
		quota_mapped(ptr, size, handle);
	else if (quota_let_go_begin(HOLDING_PHYSICAL, handle, &release))
		dropped(&release, CUDA_SUCCESS);
	return result;
}

/* What an unmapping takes, and puts back where the driver refuses. */
static void unmapped(const struct holding_release *releases, size_t count, CUresult result)
{
	for (size_t i = 0; i < count; i++)
		if (dropped(&releases[i], result) != CUDA_SUCCESS)
			quota_mapped(releases[i].address, releases[i].mapped_bytes,
				     releases[i].handle);
}

/* The references go first: with the last of them the driver may give the handle to another. */
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct holding_release few[16], *releases = few;
	size_t most = sizeof(few) / sizeof(few[0]), known, count = 0;
	uint64_t at = ptr;
	void *many;
	CUresult result;

	cuda_bind();
	if (!quota_attached())
		return cuda.cuMemUnmap(ptr, size);
	known = quota_mappings(ptr, ptr + size);
	if (known > most && sys_map_private(known * sizeof(*releases), &many) == 0) {
		releases = many;
		most = known;
	}
	while (count < most && quota_unmapped(&at, ptr + size, &releases[count]))
		count++;
	result = cuda.cuMemUnmap(ptr, size);
	unmapped(releases, count, result);
	/* More than there was memory for. */
	while (result == CUDA_SUCCESS && count == most && known > most &&
	       quota_unmapped(&at, ptr + size, &few[0]))
		dropped(&few[0], CUDA_SUCCESS);
	if (releases != few)
		sys_unmap(releases, most * sizeof(*releases));
	return result;
}

/* -- sparse arrays -- */

/* Names the place in an array where memory is mapped, apart from any address. */
static uint64_t place_of(const CUarrayMapInfo *info)
{
	uint64_t hash = 0xcbf29ce484222325u ^ (uintptr_t)info->resource;

	hash = hash * 0x100000001b3u + info->subresourceType;
	for (unsigned i = 0; i < 4; i++)
		hash = (hash ^ info->subresource[i]) * 0x100000001b3u;
	return hash | (uint64_t)1 << 63;
}

/* Before the driver maps; what it unmaps goes in stream order, and is let go of afterwards. */
static void hold_mapped(const CUarrayMapInfo *list, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP &&
		    quota_hold_again(HOLDING_PHYSICAL, list[i].memHandle) >= 0)
			quota_mapped(place_of(&list[i]), GRANULE_BYTES, list[i].memHandle);
}

/* What is recorded at one place, which is no address. */
static void drop_place(uint64_t place)
{
	struct holding_release release;
	uint64_t at = place;

	if (quota_unmapped(&at, place + 1, &release))
		dropped(&release, CUDA_SUCCESS);
}

static void drop(const CUarrayMapInfo *list, unsigned count, unsigned operation)
{
	for (unsigned i = 0; i < count; i++)
		if (list[i].memOperationType == operation)
			drop_place(place_of(&list[i]));
}

static CUresult mapped(const CUarrayMapInfo *list, unsigned count, CUresult result)
{
	drop(list, count,
	     result == CUDA_SUCCESS ? CU_MEM_OPERATION_TYPE_UNMAP : CU_MEM_OPERATION_TYPE_MAP);
	return result;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	cuda_bind();
	if (!quota_attached() || !mapInfoList)
		return cuda.cuMemMapArrayAsync(mapInfoList, count, hStream);
	hold_mapped(mapInfoList, count);
	return mapped(mapInfoList, count, cuda.cuMemMapArrayAsync(mapInfoList, count, hStream));
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	cuda_bind();
	if (!quota_attached() || !mapInfoList)
		return cuda.cuMemMapArrayAsync_ptsz(mapInfoList, count, hStream);
	hold_mapped(mapInfoList, count);
	return mapped(mapInfoList, count,
		      cuda.cuMemMapArrayAsync_ptsz(mapInfoList, count, hStream));
}

/* -- multicast objects: what is bound to one is referred to by it -- */

static uint64_t bound_at(CUmemGenericAllocationHandle object, CUdevice device, uint64_t offset)
{
	uint64_t hash = (object * 0x100000001b3u + offset) * 0x100000001b3u + (unsigned)device;

	return hash | (uint64_t)1 << 63;
}

/* The driver was asked to bind memory for which a reference is counted already. */
static CUresult bound(CUresult result, CUmemGenericAllocationHandle object, size_t offset,
		      CUmemGenericAllocationHandle memory, CUdevice device)
{
	struct holding_release release;

	if (result == CUDA_SUCCESS)
		quota_mapped(bound_at(object, device, offset), GRANULE_BYTES, memory);
	else if (quota_let_go_begin(HOLDING_PHYSICAL, memory, &release))
		dropped(&release, CUDA_SUCCESS);
	return result;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
			    CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
			    unsigned long long flags)
{
	CUdevice device = -1;
	CUresult result;

	cuda_bind();
	if (quota_attached())
		device = quota_hold_again(HOLDING_PHYSICAL, memHandle);
	result = cuda.cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size, flags);
	return device < 0 ? result : bound(result, mcHandle, mcOffset, memHandle, device);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
			     CUdeviceptr memptr, size_t size, unsigned long long flags)
{
	CUmemGenericAllocationHandle memory;
	CUdevice device = -1;
	CUresult result;

	cuda_bind();
	if (quota_attached() &&
	    cuda.cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)memptr) == CUDA_SUCCESS) {
		device = quota_hold_again(HOLDING_PHYSICAL, memory);
		cuda.cuMemRelease(memory);
	}
	result = cuda.cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags);
	return device < 0 ? result : bound(result, mcHandle, mcOffset, memory, device);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
			   size_t size)
{
	CUresult result;

	cuda_bind();
	result = cuda.cuMulticastUnbind(mcHandle, dev, mcOffset, size);
	if (result == CUDA_SUCCESS && quota_attached())
		drop_place(bound_at(mcHandle, dev, mcOffset));
	return result;
}
