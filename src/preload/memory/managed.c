/*
 * Managed memory is charged on the GPU that was current when it was allocated. A prefetch or an
 * advice on its preferred location makes another GPU hold its pages. Then it is charged there as
 * well (quota/moved.c), or the call is refused where the slice has no room there. A batch of
 * prefetches is refused as a whole.
 *
 * Two kinds of memory are not charged there. One is memory that the driver moves by itself when a
 * kernel on another GPU uses it, because no call reports that. The other is __managed__ variables
 * (variables.c) and memory of managed pools, for which the accounts have no block at the address.
 */
#include <errno.h>

#include "cuda.h"
#include "headroom.h"
#include "hooks.h"
#include "moved.h"
#include "sys.h"
#include "trace.h"

#define NO_DEVICE (-1)

/* Charges memory that is to be moved to the device. CUDA_SUCCESS: call the driver, then finish. */
static CUresult begin(struct quota_move *move, CUdeviceptr address, size_t bytes, int device)
{
	CUdeviceptr base = 0;
	size_t size = 0;
	bool counted;
	CUresult result;
	int error;

	*move = (struct quota_move){.charged = false};
	if (device < 0)
		return CUDA_SUCCESS;
	result = headroom_on(device, &counted);
	if (result != CUDA_SUCCESS || !counted ||
	    cuda.cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS ||
	    bytes > size - (address - base))
		return result; /* the driver will reject it */
	error = quota_move(device, base, address, bytes, move);
	if (error == -EDQUOT) {
		headroom_make(device);
		error = quota_move(device, base, address, bytes, move);
	}
	return error ? headroom_refuse(device, bytes, error) : CUDA_SUCCESS;
}

static CUresult finish(const struct quota_move *move, CUresult result)
{
	if (result != CUDA_SUCCESS)
		quota_move_undo(move);
	return result;
}

static int device_at(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : NO_DEVICE;
}

static int device_of_advice(CUmem_advise advice, int device)
{
	return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? device : NO_DEVICE;
}

/* Defines the hook of a call that moves memory to `device`; negative: to the host. */
#define MOVER(name, device, parameters, arguments)                          \
	CUresult name parameters                                            \
	{                                                                   \
		struct quota_move move;                                     \
		CUresult result;                                            \
                                                                            \
		cuda_bind();                                                \
		result = TRACE_CALLED(begin(&move, devPtr, count, device)); \
		if (result != CUDA_SUCCESS)                                 \
			return result;                                      \
		return finish(&move, cuda.name arguments);                  \
	}

MOVER(cuMemPrefetchAsync, dstDevice,
      (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
      (devPtr, count, dstDevice, hStream))

MOVER(cuMemPrefetchAsync_ptsz, dstDevice,
      (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
      (devPtr, count, dstDevice, hStream))

MOVER(cuMemPrefetchAsync_v2, device_at(&location),
      (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
       CUstream hStream),
      (devPtr, count, location, flags, hStream))

MOVER(cuMemPrefetchAsync_v2_ptsz, device_at(&location),
      (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
       CUstream hStream),
      (devPtr, count, location, flags, hStream))

MOVER(cuMemAdvise, device_of_advice(advice, device),
      (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device),
      (devPtr, count, advice, device))

MOVER(cuMemAdvise_v2, device_of_advice(advice, device_at(&location)),
      (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location),
      (devPtr, count, advice, location))

/* -- batches ----------------------------------------------------------------------------------- */

#define FEW 16

struct batch {
	const CUdeviceptr *addresses;
	const size_t *sizes;
	size_t count;
	const CUmemLocation *locations;
	const size_t *firsts; /* for each location, the first range that is moved there */
	size_t locations_count;
};

/* The bytes that were charged for each range of a batch. */
struct batch_moves {
	struct quota_move few[FEW], *move;
	size_t count;
};

static CUresult make_moves(struct batch_moves *moves, size_t count)
{
	void *memory;

	moves->move = moves->few;
	moves->count = count;
	if (count <= FEW)
		return CUDA_SUCCESS;
	if (count > SIZE_MAX / sizeof(struct quota_move) ||
	    sys_map_private(count * sizeof(struct quota_move), &memory) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	moves->move = memory;
	return CUDA_SUCCESS;
}

static CUresult finish_batch(struct batch_moves *moves, size_t begun, CUresult result)
{
	while (begun-- > 0)
		finish(&moves->move[begun], result);
	if (moves->move != moves->few)
		sys_unmap(moves->move, moves->count * sizeof(struct quota_move));
	return result;
}

/* The driver rejects a batch without ranges, or without locations. */
static bool is_complete(const struct batch *batch)
{
	return batch->addresses && batch->sizes && batch->locations && batch->firsts &&
	       batch->locations_count;
}

static CUresult begin_batch(struct batch_moves *moves, const struct batch *batch)
{
	size_t count = is_complete(batch) ? batch->count : 0, at = 0;
	CUresult result = make_moves(moves, count);

	if (result != CUDA_SUCCESS)
		return result;
	for (size_t i = 0; i < count; i++) {
		while (at + 1 < batch->locations_count && batch->firsts[at + 1] <= i)
			at++;
		result = begin(&moves->move[i], batch->addresses[i], batch->sizes[i],
			       device_at(&batch->locations[at]));
		if (result != CUDA_SUCCESS)
			return finish_batch(moves, i, result);
	}
	return CUDA_SUCCESS;
}

/* Defines the hook of a call that moves several ranges. */
#define BATCH_MOVER(name)                                                                    \
	CUresult name(CUdeviceptr *dptrs, size_t *sizes, size_t count,                       \
		      CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,                  \
		      size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)    \
	{                                                                                    \
		const struct batch batch = {dptrs,        sizes,           count,            \
					    prefetchLocs, prefetchLocIdxs, numPrefetchLocs}; \
		struct batch_moves moves;                                                    \
		CUresult result;                                                             \
                                                                                             \
		cuda_bind();                                                                 \
		result = TRACE_CALLED(begin_batch(&moves, &batch));                          \
		if (result != CUDA_SUCCESS)                                                  \
			return result;                                                       \
		result = cuda.name(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,       \
				   numPrefetchLocs, flags, hStream);                         \
		return finish_batch(&moves, moves.count, result);                            \
	}

BATCH_MOVER(cuMemPrefetchBatchAsync)
BATCH_MOVER(cuMemPrefetchBatchAsync_ptsz)
BATCH_MOVER(cuMemDiscardAndPrefetchBatchAsync)
BATCH_MOVER(cuMemDiscardAndPrefetchBatchAsync_ptsz)
