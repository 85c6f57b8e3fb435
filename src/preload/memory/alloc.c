/*
 * Allocations: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree, in all versions.
 *
 * Each goes the same way: begin() finds out whether and where there is a quota to keep, and
 * reserves; the driver is called, with no lock held; finish() settles. Refusal is
 * CUDA_ERROR_OUT_OF_MEMORY with the application's variables untouched, as the driver refuses. Where
 * we have nothing to say (no slice, no context, arguments that the driver will reject) the driver's
 * word is the answer. Where the driver has no room but the quota has, elsewhere() may find some.
 */
#include <errno.h>

#include "cuda.h"
#include "exports.h"
#include "headroom.h"
#include "hooks.h"
#include "launch.h"
#include "oversubscribe.h"
#include "pools.h"
#include "quota.h"
#include "trace.h"

/* An allocation on its way. */
struct making {
	bool counted; /* there is a claim to settle */
	struct quota_claim claim;
	struct block block; /* address and size follow from the driver */
	uint64_t ends;      /* contexts that had ended when it began */
};

/* Before a refusal there is made room; before a try whether a small block fits somewhere, pools
 * give back what they keep. */
static int reserve(CUdevice device, bool managed, uint64_t size_bytes, struct quota_claim *claim)
{
	int error = quota_reserve(device, managed, size_bytes, claim);

	if (error == -EDQUOT) {
		headroom_make(device);
		return quota_reserve(device, managed, size_bytes, claim);
	}
	if (error == 0 && claim->tentative && pools_give_back(device)) {
		quota_cancel(claim);
		return quota_reserve(device, managed, size_bytes, claim);
	}
	return error;
}

/* size_bytes: what it will take at most; 0: the driver will reject the call, and is left to.
 * CUDA_SUCCESS: call the driver, then finish. */
static CUresult begin(struct making *making, uint64_t size_bytes, bool managed)
{
	struct place place;
	CUresult result = headroom_find(&place, &making->counted);
	int error;

	making->ends = quota_context_ends();
	making->counted = making->counted && size_bytes;
	if (result != CUDA_SUCCESS || !making->counted)
		return result;
	error = reserve(place.device, managed, size_bytes, &making->claim);
	if (error)
		return headroom_refuse(place.device, size_bytes, error);
	making->block = (struct block){
		.context = (uintptr_t)place.context, .device = place.device, .managed = managed};
	return CUDA_SUCCESS;
}

/* The driver answered to a request for device memory; what came of it, after a second try as
 * managed memory if the slice may have that. */
static CUresult elsewhere(struct making *making, CUresult result, uint64_t size_bytes,
			  CUdeviceptr *address)
{
	if (result != CUDA_ERROR_OUT_OF_MEMORY || !making->counted || !oversubscribe_allowed())
		return result;
	making->counted = oversubscribe_claim(&making->claim, size_bytes);
	if (!making->counted)
		return result;
	making->block.managed = true;
	return oversubscribe_take(making->block.device, size_bytes, address);
}

/* Another thread may have ended the context, and the memory with it, before it was recorded. */
static void drop_if_ended(const struct making *making)
{
	struct quota_release release;

	if (quota_context_has_ended(making->block.context, making->ends) &&
	    quota_free_begin(making->block.address, &release))
		quota_free_commit(&release);
}

/* The driver answered; size_bytes is what it really gave. */
static CUresult finish(struct making *making, CUresult result, CUdeviceptr address,
		       uint64_t size_bytes)
{
	if (!making->counted)
		return result;
	if (result != CUDA_SUCCESS) {
		headroom_note_answer(making->block.device, making->claim.bytes, result);
		quota_cancel(&making->claim);
		return result;
	}
	making->block.address = address;
	making->block.size_bytes = size_bytes;
	if (quota_settle(&making->claim, &making->block) == 0) {
		drop_if_ended(making);
		headroom_note_taken(making->block.device, size_bytes);
		return CUDA_SUCCESS;
	}
	cuda.cuMemFree_v2(address); /* first, so that nobody is given what is still held */
	quota_cancel(&making->claim);
	return headroom_refuse(making->block.device, size_bytes,
			       making->claim.tentative ? -EDQUOT : -EOVERFLOW);
}

CUresult oversubscribe_make(CUdevice device, uint64_t size_bytes, CUdeviceptr *ret_address)
{
	struct making making;
	CUdeviceptr address = 0;
	CUresult result = begin(&making, size_bytes, true);

	if (result != CUDA_SUCCESS || !making.counted)
		return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
	result = CUDA_ERROR_OUT_OF_MEMORY;
	if (making.block.device == device) /* else the stream is none of the current context's */
		result = oversubscribe_take(device, size_bytes, &address);
	result = finish(&making, result, address, size_bytes);
	if (result == CUDA_SUCCESS)
		*ret_address = address;
	return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct making making;
	CUdeviceptr address = 0;
	CUresult result;

	result = TRACE_CALLED(begin(&making, dptr ? bytesize : 0, false));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemAlloc_v2(dptr ? &address : NULL, bytesize);
	result = elsewhere(&making, result, bytesize, &address);
	result = finish(&making, result, address, bytesize);
	if (result == CUDA_SUCCESS)
		*dptr = address;
	return result;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	struct making making;
	CUdeviceptr_v1 address = 0;
	CUresult result;

	result = TRACE_CALLED(begin(&making, dptr ? bytesize : 0, false));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemAlloc(dptr ? &address : NULL, bytesize);
	result = finish(&making, result, address, bytesize);
	if (result == CUDA_SUCCESS)
		*dptr = address;
	return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct making making;
	CUdeviceptr address = 0;
	CUresult result;

	result = TRACE_CALLED(begin(&making, dptr ? bytesize : 0, true));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemAllocManaged(dptr ? &address : NULL, bytesize, flags);
	result = finish(&making, result, address, bytesize);
	if (result == CUDA_SUCCESS)
		*dptr = address;
	return result;
}

#define PITCH_ALIGNMENT 512 /* what the driver rounds a row up to, as far as seen */

/* A pitched block with rows of that pitch; UINT64_MAX, which no quota has, for one that no device
 * has. */
static uint64_t pitched_bytes(uint64_t pitch, uint64_t height)
{
	uint64_t bytes;

	return __builtin_mul_overflow(pitch, height, &bytes) ? UINT64_MAX : bytes;
}

static uint64_t pitch_of(uint64_t width)
{
	return pitched_bytes(width / PITCH_ALIGNMENT + (width % PITCH_ALIGNMENT != 0),
			     PITCH_ALIGNMENT);
}

static uint64_t worst_pitched_bytes(uint64_t width, uint64_t height)
{
	return pitched_bytes(pitch_of(width), height);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
			    unsigned int ElementSizeBytes)
{
	struct making making;
	CUdeviceptr address = 0;
	size_t pitch = 0;
	CUresult result;

	result = TRACE_CALLED(begin(
		&making, dptr && pPitch ? worst_pitched_bytes(WidthInBytes, Height) : 0, false));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemAllocPitch_v2(dptr ? &address : NULL, pPitch ? &pitch : NULL,
					 WidthInBytes, Height, ElementSizeBytes);
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		pitch = pitch_of(WidthInBytes);
		result = elsewhere(&making, result, pitched_bytes(pitch, Height), &address);
	}
	result = finish(&making, result, address, pitched_bytes(pitch, Height));
	if (result == CUDA_SUCCESS) {
		*dptr = address;
		*pPitch = pitch;
	}
	return result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
			 unsigned int Height, unsigned int ElementSizeBytes)
{
	struct making making;
	CUdeviceptr_v1 address = 0;
	unsigned int pitch = 0;
	CUresult result;

	result = TRACE_CALLED(begin(
		&making, dptr && pPitch ? worst_pitched_bytes(WidthInBytes, Height) : 0, false));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemAllocPitch(dptr ? &address : NULL, pPitch ? &pitch : NULL, WidthInBytes,
				      Height, ElementSizeBytes);
	result = finish(&making, result, address, pitched_bytes(pitch, Height));
	if (result == CUDA_SUCCESS) {
		*dptr = address;
		*pPitch = pitch;
	}
	return result;
}

/* A free on its way: false when the address is none that we have counted. */
static bool begin_free(CUdeviceptr address, struct quota_release *ret_release)
{
	cuda_bind();
	launch_will_wait(false); /* for what may be using it */
	return address && quota_attached() && quota_free_begin(address, ret_release);
}

/* It may be a pool's, or another process's. */
static CUresult free_unknown(CUdeviceptr address, CUresult result)
{
	if (result == CUDA_SUCCESS && address && quota_attached()) {
		share_end_pointer(address);
		pools_note_free();
		pools_synchronised(); /* such a free waits, and the pool may shrink */
	}
	return result;
}

static CUresult finish_free(const struct quota_release *release, CUresult result)
{
	if (result != CUDA_SUCCESS) {
		quota_free_undo(release);
		return result;
	}
	share_free(release);
	headroom_note_freed(release->block.device, release->block.size_bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct quota_release release;

	if (!TRACE_CALLED(begin_free(dptr, &release)))
		return free_unknown(dptr, cuda.cuMemFree_v2(dptr));
	return finish_free(&release, cuda.cuMemFree_v2(dptr));
}

CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
	struct quota_release release;

	if (!TRACE_CALLED(begin_free(dptr, &release)))
		return free_unknown(dptr, cuda.cuMemFree(dptr));
	return finish_free(&release, cuda.cuMemFree(dptr));
}
