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
#include "bindings.h"
#include "cuda.h"
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
void virtual_memory_end(struct holding_release *release)
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
		bindings_end_owner(release->handle);
	virtual_memory_end(release);
	headroom_note_freed(release->device, release->bytes);
}

/* The driver was asked to drop a reference. */
CUresult virtual_released(struct holding_release *release, CUresult result)
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
	return virtual_released(&release, cuda.cuMemRelease(handle));
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	trace_call(__func__);
	cuda_bind();
	return virtual_release(handle);
}

/* -- references that the driver is about to make -- */

/* Drops a reference that this library has counted and the driver does not have. */
void virtual_reference_drop_counted(const struct holding_reference *reference)
{
	struct holding_release release;

	if (quota_reference_drop(reference, &release))
		virtual_released(&release, CUDA_SUCCESS);
}

/* The driver has made the reference: to the memory that has the handle now. Returns whether that is
 * other memory. */
bool virtual_reference_renew(struct holding_reference *reference)
{
	struct holding_reference old;

	if (!quota_reference_renew(reference, &old))
		return false;
	virtual_reference_drop_counted(&old);
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
	virtual_reference_renew(reference);
	quota_reference_keep(reference);
	quota_ending_end();
}

void virtual_reference_drop(const struct holding_reference *reference)
{
	virtual_reference_drop_counted(reference);
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
	if (result == CUDA_SUCCESS && virtual_reference_renew(&reference)) {
		result = imports_map(&reference, size);
		if (result != CUDA_SUCCESS)
			cuda.cuMemUnmap(ptr, size);
	}
	if (result != CUDA_SUCCESS) {
		virtual_reference_drop(&reference);
		return result;
	}
	if (quota_mapped(ptr, size, &reference, &gone))
		virtual_released(&gone, CUDA_SUCCESS);
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
		virtual_released(&releases[i], result);
	/* There are more mappings than the array above has places for. */
	while (result == CUDA_SUCCESS && known > most && count) {
		count = quota_unmapping(ptr, ptr + size, few, AT_ONCE);
		for (size_t i = 0; i < count; i++)
			virtual_released(&few[i], CUDA_SUCCESS);
	}
	if (releases != few)
		sys_unmap(releases, most * sizeof(*releases));
	return result;
}

/* -- handles that are counted at no charge -- */

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
