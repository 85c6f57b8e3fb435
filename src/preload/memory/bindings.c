/*
 * Bindings: sparse arrays and multicast objects refer to the physical memory that is bound to them.
 * A binding has a reference to its memory, as a handle or a mapping has (virtual.c). The call that
 * makes it counts the reference before the driver makes it. The reference ends when the memory is
 * unbound, when other memory is bound in its place, or with the array or object.
 *
 * All these calls lie between quota_ending_begin and quota_ending_end, as virtual.c says. Where two
 * threads bind memory at the same place at once, the one whose call returns last counts.
 */
#include "bindings.h"

#include "binding.h"
#include "blocks.h"
#include "cuda.h"
#include "hash.h"
#include "headroom.h"
#include "hooks.h"
#include "import.h"
#include "imports.h"
#include "mapping.h"
#include "quota.h"
#include "sys.h"
#include "trace.h"
#include "virtual.h"

#define AT_ONCE 16 /* references, where there is no memory for a list of all */

/* The last references to some memory have ended with their owner. */
static void drop_last(struct holding_release *releases, size_t count)
{
	for (size_t i = 0; i < count; i++)
		virtual_memory_end(&releases[i]);
}

void bindings_end_owner(uint64_t owner)
{
	struct holding_release releases[AT_ONCE];
	size_t count;

	while ((count = quota_unbind_owner(owner, releases, AT_ONCE)))
		drop_last(releases, count);
}

void bindings_end_context(CUcontext context)
{
	struct holding_release releases[AT_ONCE];
	size_t count;

	while (context && (count = quota_unbind_context((uintptr_t)context, releases, AT_ONCE)))
		drop_last(releases, count);
}

/* Memory is bound at the place, and replaces memory that was bound there. Its reference is counted.
 */
static void bind_place(uint64_t place, uint64_t owner, struct holding_reference *reference)
{
	struct holding_release before;

	virtual_reference_renew(reference);
	if (quota_bound(place, owner, reference, &before))
		virtual_released(&before, CUDA_SUCCESS);
}

static void unbind_place(uint64_t place, uint32_t newest)
{
	struct holding_release release;

	if (quota_unbound(place, newest, &release))
		virtual_released(&release, CUDA_SUCCESS);
}

/* -- sparse arrays -- */

/* Names the place in an array where memory is mapped. */
static uint64_t place_of(const CUarrayMapInfo *info)
{
	uint64_t place = hash_add(HASH_START, (uintptr_t)info->resource);

	place = hash_add(place, info->subresourceType);
	for (unsigned i = 0; i < 4; i++)
		place = hash_add(place, info->subresource[i]);
	return place | (uint64_t)1 << 63;
}

static bool maps(const CUarrayMapInfo *info)
{
	return info->memOperationType == CU_MEM_OPERATION_TYPE_MAP;
}

/* The parts of sparse arrays that one call maps, with a reference for each. */
struct tiles {
	const CUarrayMapInfo *list;
	unsigned count;
	CUstream stream;
	bool per_thread; /* the call is a _ptsz one */
	uint32_t newest; /* binding before the driver was asked; then of this list */
	struct holding_reference few[AT_ONCE], *references; /* serial 0: none */
};

static void tiles_end(const struct tiles *tiles)
{
	if (tiles->references != tiles->few)
		sys_unmap(tiles->references, tiles->count * sizeof(*tiles->references));
	quota_ending_end();
}

static void drop_tiles(const struct tiles *tiles)
{
	for (unsigned i = 0; i < tiles->count; i++)
		if (tiles->references[i].serial)
			virtual_reference_drop_counted(&tiles->references[i]);
	tiles_end(tiles);
}

/* Whether all imported memory of the call has a charge: it was mapped elsewhere before, or a
 * process of the slice exports it. The size of other imported memory is not known. */
static bool are_charged(const struct tiles *tiles)
{
	for (unsigned i = 0; i < tiles->count; i++)
		if (quota_import_is_due(quota_holding_number(tiles->references[i].serial), 1))
			return false;
	return true;
}

/* References are counted before the driver makes them. Imported memory without a charge is refused.
 * CUDA_SUCCESS: call the driver, then mapped. */
static CUresult hold_mapped(struct tiles *tiles)
{
	const CUarrayMapInfo *list = tiles->list;
	unsigned count = tiles->count;
	void *many;

	tiles->references = tiles->few;
	if (count > AT_ONCE) {
		if (sys_map_private(count * sizeof(*tiles->references), &many) != 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		tiles->references = many;
	}
	quota_ending_begin();
	tiles->newest = quota_newest_binding();
	for (unsigned i = 0; i < count; i++)
		if (!maps(&list[i]) || !quota_reference_begin(HOLDING_PHYSICAL, list[i].memHandle,
							      &tiles->references[i]))
			tiles->references[i].serial = 0;
	if (are_charged(tiles))
		return CUDA_SUCCESS;
	drop_tiles(tiles);
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult map_tiles(const struct tiles *tiles, CUarrayMapInfo *list, unsigned count)
{
	return (tiles->per_thread ? cuda.cuMemMapArrayAsync_ptsz
				  : cuda.cuMemMapArrayAsync)(list, count, tiles->stream);
}

/* By the time of the driver's call, the handle was that of other memory. If it is imported memory
 * without a charge, the part is unmapped again. */
static CUresult mapped_other(const struct tiles *tiles, const CUarrayMapInfo *info,
			     const struct holding_reference *reference)
{
	CUarrayMapInfo unmap = *info;

	if (!quota_import_is_due(quota_holding_number(reference->serial), 1))
		return CUDA_SUCCESS;
	unmap.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
	return map_tiles(tiles, &unmap, 1) == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED
							   : CUDA_SUCCESS;
}

/* The driver unmaps in stream order. The reference ends at once. A list may unmap what it maps. */
static CUresult mapped_one(struct tiles *tiles, const CUarrayMapInfo *info,
			   struct holding_reference *reference)
{
	CUresult result = CUDA_SUCCESS;

	if (!maps(info)) {
		unbind_place(place_of(info), tiles->newest);
		return result;
	}
	if (!reference->serial)
		return result;
	if (virtual_reference_renew(reference))
		result = mapped_other(tiles, info, reference);
	if (result == CUDA_SUCCESS) {
		bind_place(place_of(info), (uintptr_t)info->resource, reference);
		tiles->newest = quota_newest_binding();
	} else {
		virtual_reference_drop_counted(reference);
	}
	return result;
}

/* If the driver refuses a list, it may have mapped some of it: these count until the array ends. */
static void refused_one(const CUarrayMapInfo *info, struct holding_reference *reference,
			unsigned count)
{
	static uint64_t refusals;
	uint64_t number = __atomic_fetch_add(&refusals, 1, __ATOMIC_RELAXED);

	if (!reference->serial)
		return;
	if (count > 1)
		bind_place(hash_add(place_of(info), number) | (uint64_t)1 << 63,
			   (uintptr_t)info->resource, reference);
	else
		virtual_reference_drop_counted(reference);
}

static CUresult mapped(struct tiles *tiles, CUresult result)
{
	CUresult answer = result, one;

	for (unsigned i = 0; i < tiles->count; i++) {
		if (result != CUDA_SUCCESS) {
			refused_one(&tiles->list[i], &tiles->references[i], tiles->count);
			continue;
		}
		one = mapped_one(tiles, &tiles->list[i], &tiles->references[i]);
		if (one != CUDA_SUCCESS)
			answer = one;
	}
	tiles_end(tiles);
	return answer;
}

static CUresult map_array(CUarrayMapInfo *list, unsigned count, CUstream stream, bool per_thread)
{
	struct tiles tiles = {
		.list = list, .count = count, .stream = stream, .per_thread = per_thread};
	CUresult result;

	if (!quota_attached() || !list)
		return map_tiles(&tiles, list, count);
	result = hold_mapped(&tiles);
	if (result != CUDA_SUCCESS)
		return result;
	return mapped(&tiles, map_tiles(&tiles, list, count));
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	cuda_bind();
	return map_array(mapInfoList, count, hStream, false);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	cuda_bind();
	return map_array(mapInfoList, count, hStream, true);
}

/* -- multicast objects ------------------------------------------------------------------------- */

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle,
			   const CUmulticastObjectProp *prop)
{
	CUmemGenericAllocationHandle made = 0;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	if (!quota_attached() || !mcHandle)
		return cuda.cuMulticastCreate(mcHandle, prop);
	result = cuda.cuMulticastCreate(&made, prop);
	if (result != CUDA_SUCCESS)
		return result;
	result = virtual_hold_object(made, false);
	if (result == CUDA_SUCCESS)
		*mcHandle = made;
	else
		cuda.cuMemRelease(made);
	return result;
}

static uint64_t bound_at(CUmemGenericAllocationHandle object, CUdevice device, uint64_t offset)
{
	uint64_t place = hash_add(hash_add(hash_add(object, 0), offset), (unsigned)device);

	return place | (uint64_t)1 << 63;
}

/* After virtual_reference_begin. */
static CUresult bound(CUresult result, CUmemGenericAllocationHandle object, size_t offset,
		      struct holding_reference *reference)
{
	if (result == CUDA_SUCCESS) {
		bind_place(bound_at(object, reference->device, offset), object, reference);
		quota_ending_end();
	} else {
		virtual_reference_drop(reference);
	}
	return result;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
			    CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
			    unsigned long long flags)
{
	struct holding_reference reference;
	CUresult result;

	cuda_bind();
	if (!virtual_reference_begin(memHandle, &reference))
		return cuda.cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size,
					       flags);
	result = imports_map(&reference, memOffset + size);
	if (result == CUDA_SUCCESS)
		result = cuda.cuMulticastBindMem(mcHandle, mcOffset, memHandle, memOffset, size,
						 flags);
	if (result == CUDA_SUCCESS && virtual_reference_renew(&reference)) {
		result = imports_map(&reference, memOffset + size);
		if (result != CUDA_SUCCESS)
			cuda.cuMulticastUnbind(mcHandle, reference.device, mcOffset, size);
	}
	return bound(result, mcHandle, mcOffset, &reference);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
			     CUdeviceptr memptr, size_t size, unsigned long long flags)
{
	struct holding_reference reference;
	CUresult result;

	cuda_bind();
	if (!virtual_reference_begin_mapped(memptr, &reference))
		return cuda.cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags);
	result = cuda.cuMulticastBindAddr(mcHandle, mcOffset, memptr, size, flags);
	if (result == CUDA_SUCCESS && quota_mapping_is_stale(&reference)) {
		cuda.cuMulticastUnbind(mcHandle, reference.device, mcOffset, size);
		result = CUDA_ERROR_INVALID_VALUE; /* other memory may have been bound */
	}
	return bound(result, mcHandle, mcOffset, &reference);
}

/* All bindings in the range end. Bindings begin at whole granules. */
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
			   size_t size)
{
	uint32_t newest;
	CUresult result;

	cuda_bind();
	quota_ending_begin();
	newest = quota_newest_binding();
	result = cuda.cuMulticastUnbind(mcHandle, dev, mcOffset, size);
	if (result == CUDA_SUCCESS && quota_attached())
		for (size_t at = 0; at < size; at += GRANULE_BYTES)
			unbind_place(bound_at(mcHandle, dev, mcOffset + at), newest);
	quota_ending_end();
	return result;
}
