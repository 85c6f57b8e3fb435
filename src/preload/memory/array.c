/*
 * Arrays. The memory of an array depends on its format and on how the GPU tiles it, which only the
 * driver knows. So a second array without memory is made first (CUDA_ARRAY3D_DEFERRED_MAPPING). The
 * driver reports how much memory that array would need (cuArrayGetMemoryRequirements: 40 us on an
 * H200, right to the byte for all formats tried). If the driver is older than CUDA 11.6, or the
 * flags cannot be combined, the size is estimated from the descriptor.
 *
 * Sparse arrays, and arrays whose memory is mapped later, take no memory by themselves. They are
 * recorded as well, because the end of such an array unmaps memory that is mapped into it
 * (virtual.c).
 */
#include "bindings.h"
#include "context.h"
#include "cuda.h"
#include "headroom.h"
#include "hooks.h"
#include "pools.h"
#include "quota.h"
#include "trace.h"

#define NO_MEMORY_FLAGS (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)
#define ALIGNMENT       ((uint64_t)64 << 10)
#define SIZE_MOST       ((uint64_t)1 << 40) /* of a dimension, so that sums do not overflow */

/* The tiling that was seen on an H200 with driver 580. */
#define TILE_BYTES      64
#define TILE_ROWS_LEAST 8
#define TILE_ROWS_MOST  128
#define TILE_DEPTH_MOST 8

/* An array between begin and finish. */
struct pending_array {
	bool counted;
	struct place place;
	struct holding_reservation reservation;
	uint64_t ends; /* contexts that had ended when it began */
};

static bool is_compressed(CUarray_format format)
{
	return format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB;
}

/* The most bytes of a texel, or of a compressed block of 4x4 texels. */
static uint64_t bytes_of(CUarray_format format, uint64_t channels)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2 * channels;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4 * channels;
	default: /* formats with several samples in a texel, of 8 bytes at most */
		return is_compressed(format) ? 16 : channels > 2 ? 4 * channels : 8;
	}
}

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t round_up(uint64_t size, uint64_t to)
{
	return (size + to - 1) / to * to;
}

/* Rounds the size up to whole tiles. A tile is the least power of two that covers the size, between
 * `least` and `most`. */
static uint64_t tiled(uint64_t size, uint64_t least, uint64_t most)
{
	uint64_t tile = least;

	while (tile < size && tile < most)
		tile *= 2;
	return round_up(size, tile);
}

static uint64_t at_level(uint64_t size, unsigned level)
{
	return size >> level ? size >> level : 1;
}

static uint64_t estimate_level(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned level)
{
	bool layers = descriptor->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t block = is_compressed(descriptor->Format) ? 4 : 1, bytes;
	uint64_t width = round_up(at_level(descriptor->Width, level), block) / block;
	uint64_t rows = round_up(at_level(descriptor->Height, level), block) / block;
	uint64_t depth = at_level(descriptor->Depth, layers ? 0 : level);

	width = times(width, bytes_of(descriptor->Format, descriptor->NumChannels));
	if (width > SIZE_MOST)
		return UINT64_MAX;
	bytes = times(tiled(width, TILE_BYTES, TILE_BYTES),
		      tiled(rows, TILE_ROWS_LEAST, TILE_ROWS_MOST));
	return times(bytes, layers ? depth : tiled(depth, 1, TILE_DEPTH_MOST));
}

/* The most bytes that the array can take. It is an upper bound, as the height of tiles is not known
 * for volumes. */
static uint64_t estimate(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
	uint64_t bytes = 0, more;

	if (descriptor->Width > SIZE_MOST || descriptor->Height > SIZE_MOST ||
	    descriptor->Depth > SIZE_MOST)
		return UINT64_MAX;
	for (unsigned level = 0; level < 32 && (level == 0 || level < levels); level++) {
		more = estimate_level(descriptor, level);
		if (more > UINT64_MAX / 2 - bytes)
			return UINT64_MAX;
		bytes += more;
	}
	return round_up(bytes, ALIGNMENT);
}

/* Asks the driver for the size of the array; levels > 0: of a mipmapped array. */
static bool ask(CUDA_ARRAY3D_DESCRIPTOR descriptor, unsigned levels, CUdevice device,
		uint64_t *ret_bytes)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {.size = 0};
	CUmipmappedArray mipmapped;
	CUarray array;
	CUresult result;

	descriptor.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
	if (levels) {
		if (cuda.cuMipmappedArrayCreate(&mipmapped, &descriptor, levels) != CUDA_SUCCESS)
			return false;
		result = cuda.cuMipmappedArrayGetMemoryRequirements(&needs, mipmapped, device);
		cuda.cuMipmappedArrayDestroy(mipmapped);
	} else {
		if (cuda.cuArray3DCreate_v2(&array, &descriptor) != CUDA_SUCCESS)
			return false;
		result = cuda.cuArrayGetMemoryRequirements(&needs, array, device);
		cuda.cuArrayDestroy(array);
	}
	*ret_bytes = needs.size;
	return result == CUDA_SUCCESS && needs.size;
}

/* CUDA_SUCCESS: call the driver, then finish. */
static CUresult begin(struct pending_array *pending, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
		      unsigned levels, const void *out)
{
	CUresult result = headroom_find(&pending->place, &pending->counted);
	CUstreamCaptureMode mode;
	uint64_t bytes;
	bool known;

	pending->ends = quota_context_ends();
	if (!out || !descriptor)
		pending->counted = false;
	if (result != CUDA_SUCCESS || !pending->counted)
		return result;
	if (descriptor->Flags & NO_MEMORY_FLAGS)
		return headroom_reserve_holding(HOLDING_ARRAY, &pending->place, 0,
						&pending->reservation);
	mode = relaxed_begin();
	known = ask(*descriptor, levels, pending->place.device, &bytes);
	relaxed_end(mode);
	if (!known)
		bytes = estimate(descriptor, levels);
	return headroom_reserve_holding(HOLDING_ARRAY, &pending->place, bytes,
					&pending->reservation);
}

/* Another thread may have ended the context, and the array with it, before the array was recorded.
 */
static void drop_if_ended(const struct pending_array *pending, uint64_t handle)
{
	struct holding_release release;

	if (quota_context_has_ended((uintptr_t)pending->place.context, pending->ends) &&
	    quota_holding_unref_begin(HOLDING_ARRAY, handle, &release))
		quota_holding_unref_commit(&release);
}

/* False: the array cannot be counted, and the caller destroys it. */
static bool finish(const struct pending_array *pending, CUresult result, const void *handle)
{
	if (!pending->counted)
		return true;
	if (result == CUDA_SUCCESS &&
	    quota_holding_add(&pending->reservation, (uintptr_t)handle) == 0) {
		drop_if_ended(pending, (uintptr_t)handle);
		headroom_note_taken(pending->place.device, pending->reservation.bytes);
		return true;
	}
	headroom_note_answer(pending->place.device, pending->reservation.bytes, result);
	quota_holding_cancel(&pending->reservation);
	return result != CUDA_SUCCESS;
}

static CUresult finish_array(const struct pending_array *pending, CUresult result, CUarray array,
			     CUarray *pHandle)
{
	if (!finish(pending, result, array)) {
		cuda.cuArrayDestroy(array);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result == CUDA_SUCCESS)
		*pHandle = array;
	return result;
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	const CUDA_ARRAY_DESCRIPTOR *asked = pAllocateArray;
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {0};
	struct pending_array pending;
	CUarray array = NULL;
	CUresult result;

	if (asked)
		descriptor = (CUDA_ARRAY3D_DESCRIPTOR){.Width = asked->Width,
						       .Height = asked->Height,
						       .Format = asked->Format,
						       .NumChannels = asked->NumChannels};
	result = TRACE_CALLED(begin(&pending, asked ? &descriptor : NULL, 0, pHandle));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuArrayCreate_v2(pHandle ? &array : NULL, pAllocateArray);
	return finish_array(&pending, result, array, pHandle);
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
	const CUDA_ARRAY_DESCRIPTOR_v1 *asked = pAllocateArray;
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {0};
	struct pending_array pending;
	CUarray array = NULL;
	CUresult result;

	if (asked)
		descriptor = (CUDA_ARRAY3D_DESCRIPTOR){.Width = asked->Width,
						       .Height = asked->Height,
						       .Format = asked->Format,
						       .NumChannels = asked->NumChannels};
	result = TRACE_CALLED(begin(&pending, asked ? &descriptor : NULL, 0, pHandle));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuArrayCreate(pHandle ? &array : NULL, pAllocateArray);
	return finish_array(&pending, result, array, pHandle);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	struct pending_array pending;
	CUarray array = NULL;
	CUresult result = TRACE_CALLED(begin(&pending, pAllocateArray, 0, pHandle));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuArray3DCreate_v2(pHandle ? &array : NULL, pAllocateArray);
	return finish_array(&pending, result, array, pHandle);
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
	const CUDA_ARRAY3D_DESCRIPTOR_v1 *asked = pAllocateArray;
	CUDA_ARRAY3D_DESCRIPTOR descriptor = {0};
	struct pending_array pending;
	CUarray array = NULL;
	CUresult result;

	if (asked)
		descriptor = (CUDA_ARRAY3D_DESCRIPTOR){.Width = asked->Width,
						       .Height = asked->Height,
						       .Depth = asked->Depth,
						       .Format = asked->Format,
						       .NumChannels = asked->NumChannels,
						       .Flags = asked->Flags};
	result = TRACE_CALLED(begin(&pending, asked ? &descriptor : NULL, 0, pHandle));
	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuArray3DCreate(pHandle ? &array : NULL, pAllocateArray);
	return finish_array(&pending, result, array, pHandle);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
				const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
				unsigned int numMipmapLevels)
{
	struct pending_array pending;
	CUmipmappedArray array = NULL;
	CUresult result = TRACE_CALLED(begin(&pending, numMipmapLevels ? pMipmappedArrayDesc : NULL,
					     numMipmapLevels, pHandle));

	if (result != CUDA_SUCCESS)
		return result;
	result = cuda.cuMipmappedArrayCreate(pHandle ? &array : NULL, pMipmappedArrayDesc,
					     numMipmapLevels);
	if (!finish(&pending, result, array)) {
		cuda.cuMipmappedArrayDestroy(array);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result == CUDA_SUCCESS)
		*pHandle = array;
	return result;
}

/* -- destroying -------------------------------------------------------------------------------- */

static bool begin_end(const void *array, struct holding_release *ret_release)
{
	cuda_bind();
	return quota_attached() &&
	       quota_holding_unref_begin(HOLDING_ARRAY, (uintptr_t)array, ret_release);
}

static CUresult finish_end(struct holding_release *release, CUresult result)
{
	if (result == CUDA_SUCCESS) {
		quota_holding_unref_end(release);
		/* Until the commit, no comparison lowers the accounts. If another array has the
		 * handle by now, the bindings end with that array. */
		if (!release->replaced)
			bindings_end_owner(release->handle);
		quota_holding_unref_commit(release);
		headroom_note_freed(release->device, release->bytes);
	} else {
		quota_holding_unref_undo(release);
	}
	return result;
}

CUresult cuArrayDestroy(CUarray hArray)
{
	struct holding_release release;

	if (!TRACE_CALLED(begin_end(hArray, &release)))
		return cuda.cuArrayDestroy(hArray);
	return finish_end(&release, cuda.cuArrayDestroy(hArray));
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	struct holding_release release;

	if (!TRACE_CALLED(begin_end(hMipmappedArray, &release)))
		return cuda.cuMipmappedArrayDestroy(hMipmappedArray);
	return finish_end(&release, cuda.cuMipmappedArrayDestroy(hMipmappedArray));
}
