/*
 * Allocations: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree, in all versions.
 *
 * Each takes three steps. begin() finds out whether a quota applies and on which device, and
 * reserves. Then the driver is called. finish() settles the reservation. If a small block did not
 * fit into the granules that are charged, may_again() tries to make room, and the three steps are
 * made once more. A refusal is CUDA_ERROR_OUT_OF_MEMORY, and the application's variables are
 * untouched, as when the driver refuses. If no quota applies (no slice, no context, arguments that
 * the driver will reject), the driver's answer is passed on. If the quota has room and the driver
 * has not, elsewhere() may allocate managed memory.
 */
#include <errno.h>

#include "allocation.h"
#include "context.h"
#include "cuda.h"
#include "freeing.h"
#include "headroom.h"
#include "hooks.h"
#include "launch.h"
#include "oversubscribe.h"
#include "pools.h"
#include "quota.h"
#include "trace.h"

/* An allocation between begin and finish. All of it is 0 before the first begin. */
struct pending_alloc {
	bool counted;       /* `reservation` is valid */
	bool lacks_granule; /* a tentative reservation did not do, and nobody was told yet */
	bool was_again;     /* this is the second try */
	struct quota_reservation reservation;
	struct block block; /* finish adds the address and the size */
	uint64_t ends;      /* quota_context_ends() before the driver's call */
};

/* Before a refusal, headroom_make tries to make room. Before a tentative allocation, only pools
 * give back memory that they keep: most such allocations need no room. */
static int reserve(CUdevice device, bool managed, uint64_t size_bytes,
		   struct quota_reservation *reservation)
{
	int error = quota_reserve(device, managed, size_bytes, reservation);

	if (error == -EDQUOT) {
		headroom_make(device);
		return quota_reserve(device, managed, size_bytes, reservation);
	}
	if (error == 0 && reservation->tentative && pools_give_back(device)) {
		quota_cancel(reservation);
		return quota_reserve(device, managed, size_bytes, reservation);
	}
	return error;
}

/* size_bytes: the most that the allocation will take; 0: the driver will reject the call, and
 * nothing is reserved. CUDA_SUCCESS: call the driver, then finish. */
static CUresult begin(struct pending_alloc *pending, uint64_t size_bytes, bool managed)
{
	struct place place;
	CUresult result = headroom_find(&place, &pending->counted);
	int error;

	pending->ends = quota_context_ends();
	pending->counted = pending->counted && size_bytes;
	if (result != CUDA_SUCCESS || !pending->counted)
		return result;
	error = reserve(place.device, managed, size_bytes, &pending->reservation);
	if (error)
		return headroom_refuse(place.device, size_bytes, error);
	pending->block = (struct block){
		.context = (uintptr_t)place.context, .device = place.device, .managed = managed};
	return CUDA_SUCCESS;
}

/* The driver has answered to a request for device memory. If it had no room and the slice
 * oversubscribes, managed memory is allocated. Returns the result of the last of the two tries. */
static CUresult elsewhere(struct pending_alloc *pending, CUresult result, uint64_t size_bytes,
			  CUdeviceptr *address)
{
	if (result != CUDA_ERROR_OUT_OF_MEMORY || !pending->counted || !oversubscribe_allowed())
		return result;
	pending->counted = oversubscribe_claim(&pending->reservation, size_bytes);
	if (!pending->counted)
		return result;
	pending->block.managed = true;
	return oversubscribe_take(pending->block.device, size_bytes, address);
}

/* The driver has answered; size_bytes is the size of the block. */
static CUresult finish(struct pending_alloc *pending, CUresult result, CUdeviceptr address,
		       uint64_t size_bytes)
{
	if (!pending->counted)
		return result;
	if (result != CUDA_SUCCESS) {
		headroom_note_answer(pending->block.device, pending->reservation.bytes, result);
		quota_cancel(&pending->reservation);
		return result;
	}
	pending->block.address = address;
	pending->block.size_bytes = size_bytes;
	if (quota_settle(&pending->reservation, &pending->block) == 0) {
		freeing_drop_if_ended(&pending->block, pending->ends);
		headroom_note_taken(pending->block.device, size_bytes);
		return CUDA_SUCCESS;
	}
	cuda.cuMemFree_v2(address); /* before the refund, which lets another thread allocate */
	quota_cancel(&pending->reservation);
	if (pending->reservation.tentative && !pending->was_again) {
		pending->lacks_granule = true;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return headroom_refuse(pending->block.device, size_bytes,
			       pending->reservation.tentative ? -EDQUOT : -EOVERFLOW);
}

/* After finish. True: begin again. */
static bool may_again(struct pending_alloc *pending)
{
	if (!pending->lacks_granule)
		return false;
	headroom_make(pending->block.device);
	pending->lacks_granule = false;
	pending->was_again = true;
	return true;
}

CUresult oversubscribe_make(CUdevice device, uint64_t size_bytes, CUdeviceptr *ret_address)
{
	struct pending_alloc pending = {0};
	CUdeviceptr address = 0;
	CUresult result = begin(&pending, size_bytes, true);

	if (result != CUDA_SUCCESS || !pending.counted)
		return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
	result = CUDA_ERROR_OUT_OF_MEMORY;
	if (pending.block.device == device) /* else the stream is of another context */
		result = oversubscribe_take(device, size_bytes, &address);
	result = finish(&pending, result, address, size_bytes);
	if (result == CUDA_SUCCESS)
		*ret_address = address;
	return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct pending_alloc pending = {0};
	CUdeviceptr address = 0;
	CUresult result;

	do {
		result = TRACE_CALLED(begin(&pending, dptr ? bytesize : 0, false));
		if (result != CUDA_SUCCESS)
			return result;
		result = cuda.cuMemAlloc_v2(dptr ? &address : NULL, bytesize);
		result = elsewhere(&pending, result, bytesize, &address);
		result = finish(&pending, result, address, bytesize);
	} while (may_again(&pending));
	if (result == CUDA_SUCCESS)
		*dptr = address;
	return result;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	struct pending_alloc pending = {0};
	CUdeviceptr_v1 address = 0;
	CUresult result;

	do {
		result = TRACE_CALLED(begin(&pending, dptr ? bytesize : 0, false));
		if (result != CUDA_SUCCESS)
			return result;
		result = cuda.cuMemAlloc(dptr ? &address : NULL, bytesize);
		result = finish(&pending, result, address, bytesize);
	} while (may_again(&pending));
	if (result == CUDA_SUCCESS)
		*dptr = address;
	return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct pending_alloc pending = {0};
	CUdeviceptr address = 0;
	CUresult result;

	result = TRACE_CALLED(begin(&pending, dptr ? bytesize : 0, true));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMemAllocManaged(dptr ? &address : NULL, bytesize, flags);
	result = finish(&pending, result, address, bytesize);
	if (result == CUDA_SUCCESS)
		*dptr = address;
	return result;
}

#define PITCH_ALIGNMENT 512 /* the driver rounds rows up to this (seen with driver 580) */

/* The size of a pitched block with rows of that pitch; UINT64_MAX, which exceeds every quota, if
 * the product overflows. */
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
	const uint64_t worst = dptr && pPitch ? worst_pitched_bytes(WidthInBytes, Height) : 0;
	struct pending_alloc pending = {0};
	CUdeviceptr address = 0;
	size_t pitch = 0;
	CUresult result;

	do {
		result = TRACE_CALLED(begin(&pending, worst, false));
		if (result != CUDA_SUCCESS)
			return result;
		result = cuda.cuMemAllocPitch_v2(dptr ? &address : NULL, pPitch ? &pitch : NULL,
						 WidthInBytes, Height, ElementSizeBytes);
		if (result == CUDA_ERROR_OUT_OF_MEMORY) {
			pitch = pitch_of(WidthInBytes);
			result =
				elsewhere(&pending, result, pitched_bytes(pitch, Height), &address);
		}
		result = finish(&pending, result, address, pitched_bytes(pitch, Height));
	} while (may_again(&pending));
	if (result == CUDA_SUCCESS) {
		*dptr = address;
		*pPitch = pitch;
	}
	return result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
			 unsigned int Height, unsigned int ElementSizeBytes)
{
	const uint64_t worst = dptr && pPitch ? worst_pitched_bytes(WidthInBytes, Height) : 0;
	struct pending_alloc pending = {0};
	CUdeviceptr_v1 address = 0;
	unsigned int pitch = 0;
	CUresult result;

	do {
		result = TRACE_CALLED(begin(&pending, worst, false));
		if (result != CUDA_SUCCESS)
			return result;
		result = cuda.cuMemAllocPitch(dptr ? &address : NULL, pPitch ? &pitch : NULL,
					      WidthInBytes, Height, ElementSizeBytes);
		result = finish(&pending, result, address, pitched_bytes(pitch, Height));
	} while (may_again(&pending));
	if (result == CUDA_SUCCESS) {
		*dptr = address;
		*pPitch = pitch;
	}
	return result;
}

static void begin_free(CUdeviceptr address, struct freeing *ret_freeing)
{
	cuda_bind();
	launch_will_wait(false); /* the driver waits for work that may use the block */
	freeing_begin(address, ret_freeing);
}

/* The freed address may be of a pool, or of memory of another process. */
static CUresult finish_pointer(const struct quota_pointer *pointer, CUresult result)
{
	if (result == CUDA_SUCCESS && pointer->address && quota_attached()) {
		pools_note_free();
		pools_synchronised(); /* such a free synchronises, and the pool may shrink */
	}
	quota_pointer_free_end(pointer, result == CUDA_SUCCESS);
	return result;
}

static CUresult finish_free(const struct freeing *freeing, CUresult result)
{
	const struct quota_release *release = &freeing->release;

	if (!freeing->is_block)
		return finish_pointer(&freeing->pointer, result);
	if (result != CUDA_SUCCESS) {
		freeing_undo(freeing);
		return result;
	}
	quota_free_commit(release);
	headroom_note_freed(release->block.device, release->block.size_bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct freeing freeing;

	trace_call(__func__);
	begin_free(dptr, &freeing);
	return finish_free(&freeing, cuda.cuMemFree_v2(dptr));
}

CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
	struct freeing freeing;

	trace_call(__func__);
	begin_free(dptr, &freeing);
	return finish_free(&freeing, cuda.cuMemFree(dptr));
}
