/*
 * Virtual memory management. cuMemCreate takes device memory. The driver gives the memory back, and
 * the charge is refunded, when the last reference to it has ended. References are
 *
 *     a handle                     ends with cuMemRelease; also one of cuMemRetainAllocationHandle
 *     a mapping                    ends with cuMemUnmap
 *     a part of a sparse array     ends when it is unmapped, or with the array or its context
 *     a binding to a multicast     ends when it is unbound, or with the last reference to the
 *     object                       object; but only when it is unbound, if other processes may
 *                                  have the object
 *
 * The driver may drop the last reference in a call that ends one. It may also refuse a call that
 * makes a reference, after another thread has dropped all others. Until the accounts say so, they
 * have memory that the device does not have. So these calls lie between quota_ending_begin and
 * quota_ending_end, or after a function that begins to release.
 *
 * Addresses (cuMemAddressReserve) cost nothing. Memory of the host (CU_MEM_LOCATION_TYPE_HOST…) is
 * not charged. export.h and import.h are about memory that is exported or imported.
 */
#include "virtual.h"
#include "binding.h"
#include "blocks.h"
#include "cuda.h"
#include "hash.h"
#include "headroom.h"
#include "hooks.h"
#include "import.h"
#include "imports.h"
#include "mapping.h"
#include "oversubscribe.h"
#include "quota.h"
#include "sys.h"
#include "trace.h"

/* Before cuMemCreate: finds out whether the memory is on a device of the slice, and reserves it. */
static CUresult begin(const CUmemAllocationProp *prop, size_t size, bool *ret_counted,
		      struct holding_reservation *ret_reservation)
{
	struct place place = {.context = NULL};
	CUresult result;

	*ret_counted = false;
	if (!prop || !size || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_SUCCESS;
	place.device = prop->location.id;
	result = headroom_on(place.device, ret_counted);
	if (result == CUDA_SUCCESS && *ret_counted)
		result = headroom_reserve_holding(HOLDING_PHYSICAL, &place, size, ret_reservation);
	return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	static bool said; /* oversubscribe_cannot's */
	CUmemGenericAllocationHandle made = 0;
	struct holding_reservation reservation;
	bool counted;
	CUresult result;

	cuda_bind();
	result = TRACE_CALLED(begin(prop, handle ? size : 0, &counted, &reservation));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemCreate(handle ? &made : NULL, size, prop, flags);
	if (counted) {
		headroom_note_answer(prop->location.id, size, result);
		oversubscribe_cannot(result, &said, "cuMemCreate");
	}
	if (counted && result == CUDA_SUCCESS && quota_holding_add(&reservation, made) != 0) {
		cuda.cuMemRelease(made);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (counted && result != CUDA_SUCCESS)
		quota_holding_cancel(&reservation);
	if (result == CUDA_SUCCESS) {
		*handle = made;
		if (counted)
			headroom_note_taken(prop->location.id, size);
	}
	return result;
}

/* The last reference to the memory has ended. */
static void end_memory(struct holding_release *release)
{
	quota_import_ended(quota_holding_number(release->serial));
	quota_holding_unref_commit(release);
}

/* The last reference to memory has ended, or to a multicast object with all its bindings. These end
 * first, before the commit ends what quota_holding_unref_begin began. If another object has the
 * handle by now, the bindings end with that object. */
static void end_physical(struct holding_release *release)
{
	if (release->exported && !release->replaced)
		quota_unbind_never(release->handle);
	else if (!release->replaced)
		virtual_end_owner(release->handle);
	end_memory(release);
	headroom_note_freed(release->device, release->bytes);
}

/* The driver was asked to drop a reference. */
static CUresult dropped(struct holding_release *release, CUresult result)
{
	if (result != CUDA_SUCCESS) {
		quota_holding_unref_undo(release);
		return result;
	}
	quota_holding_unref_end(release);
	if (release->last)
		end_physical(release);
	else
		quota_holding_unref_commit(release);
	return result;
}

CUresult virtual_release(CUmemGenericAllocationHandle handle)
{
	struct holding_release release;

	if (!quota_attached() || !quota_holding_unref_begin(HOLDING_PHYSICAL, handle, &release))
		return cuda.cuMemRelease(handle);
	return dropped(&release, cuda.cuMemRelease(handle));
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	trace_call(__func__);
	cuda_bind();
	return virtual_release(handle);
}

/* -- references that the driver is about to make -- */

/* Drops a reference that this library has counted and the driver does not have. */
static void drop_reference(const struct holding_reference *reference)
{
	struct holding_release release;

	if (quota_reference_drop(reference, &release))
		dropped(&release, CUDA_SUCCESS);
}

/* The driver has made the reference: to the memory that has the handle now. Returns whether that is
 * other memory. */
static bool renew_reference(struct holding_reference *reference)
{
	struct holding_reference old;

	if (!quota_reference_renew(reference, &old))
		return false;
	drop_reference(&old);
	return true;
}

/* Goes on without comparisons that lower the accounts, if a reference was counted. */
static bool keep_ending(bool counted)
{
	if (!counted)
		quota_ending_end();
	return counted;
}

bool virtual_reference_begin(CUmemGenericAllocationHandle memory,
			     struct holding_reference *ret_reference)
{
	if (!quota_attached())
		return false;
	quota_ending_begin();
	return keep_ending(quota_reference_begin(HOLDING_PHYSICAL, memory, ret_reference));
}

bool virtual_reference_begin_mapped(CUdeviceptr address, struct holding_reference *ret_reference)
{
	if (!quota_attached())
		return false;
	quota_ending_begin();
	return keep_ending(quota_reference_begin_mapped(address, ret_reference));
}

void virtual_reference_keep(struct holding_reference *reference)
{
	renew_reference(reference);
	quota_reference_keep(reference);
	quota_ending_end();
}

void virtual_reference_drop(const struct holding_reference *reference)
{
	drop_reference(reference);
	quota_ending_end();
}

/* If the driver says another handle than the accounts, the driver's is counted. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct holding_reference counted, other;
	CUresult result;
	bool known;

	cuda_bind();
	known = virtual_reference_begin_mapped((uintptr_t)addr, &counted);
	result = cuda.cuMemRetainAllocationHandle(handle, addr);
	if (known && result == CUDA_SUCCESS && *handle == counted.handle) {
		virtual_reference_keep(&counted);
		return result;
	}
	if (result == CUDA_SUCCESS && quota_attached() &&
	    quota_reference_begin(HOLDING_PHYSICAL, *handle, &other))
		quota_reference_keep(&other);
	if (known)
		virtual_reference_drop(&counted);
	return result;
}

/* -- mappings -- */

/* The reference is counted before the driver makes it. Otherwise a release in between would be
 * taken for the last. */
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	struct holding_reference reference;
	struct holding_release gone;
	CUresult result;

	cuda_bind();
	if (!virtual_reference_begin(handle, &reference))
		return cuda.cuMemMap(ptr, size, offset, handle, flags);
	result = imports_map(&reference, size);
	if (result == CUDA_SUCCESS)
		result = cuda.cuMemMap(ptr, size, offset, handle, flags);
	if (result == CUDA_SUCCESS && renew_reference(&reference)) {
		result = imports_map(&reference, size);
		if (result != CUDA_SUCCESS)
			cuda.cuMemUnmap(ptr, size);
	}
	if (result != CUDA_SUCCESS) {
		virtual_reference_drop(&reference);
		return result;
	}
	if (quota_mapped(ptr, size, &reference, &gone))
		dropped(&gone, CUDA_SUCCESS);
	quota_ending_end();
	return CUDA_SUCCESS;
}

#define AT_ONCE 16 /* references, where there is no memory for a list of all */

/* The mappings are looked up before the driver's call: after it, another thread may have mapped
 * other memory there. */
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct holding_release few[AT_ONCE], *releases = few;
	size_t most = AT_ONCE, known, count;
	void *many;
	CUresult result;

	trace_call(__func__);
	cuda_bind();
	if (!quota_attached())
		return cuda.cuMemUnmap(ptr, size);
	known = quota_mappings(ptr, ptr + size);
	if (known > most && sys_map_private(known * sizeof(*releases), &many) == 0) {
		releases = many;
		most = known;
	}
	count = quota_unmapping(ptr, ptr + size, releases, most);
	result = cuda.cuMemUnmap(ptr, size);
	for (size_t i = 0; i < count; i++)
		dropped(&releases[i], result);
	/* There are more mappings than the array above has places for. */
	while (result == CUDA_SUCCESS && known > most && count) {
		count = quota_unmapping(ptr, ptr + size, few, AT_ONCE);
		for (size_t i = 0; i < count; i++)
			dropped(&few[i], CUDA_SUCCESS);
	}
	if (releases != few)
		sys_unmap(releases, most * sizeof(*releases));
	return result;
}

/* -- bindings: sparse arrays and multicast objects refer to what is bound to them -- */

/* The last references to some memory have ended with their owner. */
static void drop_last(struct holding_release *releases, size_t count)
{
	for (size_t i = 0; i < count; i++)
		end_memory(&releases[i]);
}

void virtual_end_owner(uint64_t owner)
{
	struct holding_release releases[AT_ONCE];
	size_t count;

	while ((count = quota_unbind_owner(owner, releases, AT_ONCE)))
		drop_last(releases, count);
}

void virtual_end_context(CUcontext context)
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

	renew_reference(reference);
	if (quota_bound(place, owner, reference, &before))
		dropped(&before, CUDA_SUCCESS);
}

static void unbind_place(uint64_t place)
{
	struct holding_release release;

	if (quota_unbound(place, &release))
		dropped(&release, CUDA_SUCCESS);
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
			drop_reference(&tiles->references[i]);
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
static CUresult hold_mapped(const CUarrayMapInfo *list, unsigned count, struct tiles *tiles)
{
	void *many;

	tiles->list = list;
	tiles->count = count;
	tiles->references = tiles->few;
	if (count > AT_ONCE) {
		if (sys_map_private(count * sizeof(*tiles->references), &many) != 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		tiles->references = many;
	}
	quota_ending_begin();
	for (unsigned i = 0; i < count; i++)
		if (!maps(&list[i]) || !quota_reference_begin(HOLDING_PHYSICAL, list[i].memHandle,
							      &tiles->references[i]))
			tiles->references[i].serial = 0;
	if (are_charged(tiles))
		return CUDA_SUCCESS;
	drop_tiles(tiles);
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* The driver unmaps in stream order. The reference ends at once. */
static void mapped_one(const CUarrayMapInfo *info, struct holding_reference *reference)
{
	if (!maps(info))
		unbind_place(place_of(info));
	else if (reference->serial)
		bind_place(place_of(info), (uintptr_t)info->resource, reference);
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
		drop_reference(reference);
}

static CUresult mapped(struct tiles *tiles, CUresult result)
{
	for (unsigned i = 0; i < tiles->count; i++)
		if (result == CUDA_SUCCESS)
			mapped_one(&tiles->list[i], &tiles->references[i]);
		else
			refused_one(&tiles->list[i], &tiles->references[i], tiles->count);
	tiles_end(tiles);
	return result;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	struct tiles tiles;
	CUresult result;

	cuda_bind();
	if (!quota_attached() || !mapInfoList)
		return cuda.cuMemMapArrayAsync(mapInfoList, count, hStream);
	result = hold_mapped(mapInfoList, count, &tiles);
	if (result != CUDA_SUCCESS)
		return result;
	return mapped(&tiles, cuda.cuMemMapArrayAsync(mapInfoList, count, hStream));
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
	struct tiles tiles;
	CUresult result;

	cuda_bind();
	if (!quota_attached() || !mapInfoList)
		return cuda.cuMemMapArrayAsync_ptsz(mapInfoList, count, hStream);
	result = hold_mapped(mapInfoList, count, &tiles);
	if (result != CUDA_SUCCESS)
		return result;
	return mapped(&tiles, cuda.cuMemMapArrayAsync_ptsz(mapInfoList, count, hStream));
}

/* -- multicast objects: handles that are counted as memory's are, at no charge -- */

static CUresult hold_free(CUmemGenericAllocationHandle handle, CUdevice device)
{
	const struct place place = {NULL, device};
	struct holding_reservation reservation;
	CUresult result = headroom_reserve_holding(HOLDING_PHYSICAL, &place, 0, &reservation);

	if (result == CUDA_SUCCESS && quota_holding_add(&reservation, handle) != 0) {
		quota_holding_cancel(&reservation);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return result;
}

CUresult virtual_hold_imported(CUmemGenericAllocationHandle handle, CUdevice device,
			       uint32_t *ret_serial)
{
	CUresult result = hold_free(handle, device);

	*ret_serial = result == CUDA_SUCCESS ? quota_holding_note_export(handle) : 0;
	return result;
}

CUresult virtual_hold_object(CUmemGenericAllocationHandle handle, bool exported)
{
	CUdevice device = 0;
	CUresult result;

	while (device < VGPU_DEVICES_MAX && !quota_has_device(device))
		device++;
	if (device == VGPU_DEVICES_MAX)
		return CUDA_SUCCESS;
	result = hold_free(handle, device);
	if (result == CUDA_SUCCESS && exported)
		quota_holding_note_export(handle);
	return result;
}

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
	if (result == CUDA_SUCCESS && renew_reference(&reference)) {
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
	CUresult result;

	cuda_bind();
	quota_ending_begin();
	result = cuda.cuMulticastUnbind(mcHandle, dev, mcOffset, size);
	if (result == CUDA_SUCCESS && quota_attached())
		for (size_t at = 0; at < size; at += GRANULE_BYTES)
			unbind_place(bound_at(mcHandle, dev, mcOffset + at));
	quota_ending_end();
	return result;
}
