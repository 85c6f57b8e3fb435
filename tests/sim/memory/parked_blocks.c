/* Blocks, managed memory and arrays: the calls that make and end them, parked in the driver. */
#include "parked_fixture.h"

#define BYTES (64 * MIB)
#define CHUNK (128 * MIB) /* by which managed memory is charged */

/* -- blocks ------------------------------------------------------------------------------------ */

static CUdeviceptr block;

static CUresult allocate_block(void)
{
	return cuMemAlloc_v2(&block, BYTES);
}

static CUresult allocate_low(void)
{
	CUdeviceptr_v1 low = 0;
	CUresult result = cuMemAlloc(&low, BYTES);

	block = low;
	return result;
}

static CUresult allocate_managed(void)
{
	return cuMemAllocManaged(&block, CHUNK, CU_MEM_ATTACH_GLOBAL);
}

/* Rows of 500 bytes, for which the driver takes 512. */
static CUresult allocate_pitch(void)
{
	size_t pitch;

	return cuMemAllocPitch_v2(&block, &pitch, 500, BYTES / 512, 4);
}

static CUresult allocate_low_pitch(void)
{
	CUdeviceptr_v1 low = 0;
	unsigned pitch;
	CUresult result = cuMemAllocPitch(&low, &pitch, 500, BYTES / 512, 4);

	block = low;
	return result;
}

static CUresult free_block(void)
{
	return cuMemFree_v2(block);
}

static CUresult free_low(void)
{
	return cuMemFree((CUdeviceptr_v1)block);
}

static CUresult free_in_stream(void)
{
	return cuMemFreeAsync(block, NULL);
}

static CUresult synchronise(void)
{
	return cuStreamSynchronize(NULL);
}

static void with_block(void)
{
	CHECK_OK(allocate_block());
}

static void with_low(void)
{
	CHECK_OK(allocate_low());
}

static void with_managed(void)
{
	CHECK_OK(allocate_managed());
}

static void with_freed(void)
{
	with_block();
	CHECK_OK(free_in_stream());
}

static void give_block(void)
{
	give(block);
}

static void nothing(void)
{
}

/* The first calls of cuMemAlloc_v2 and cuMemFree_v2 settle the context. */
static const struct parked_row blocks[] = {
	PARKED("alloc", "cuMemAlloc_v2@2", .make = allocate_block, .undo = give_block, TAKES(64)),
	PARKED("alloc_low", "cuMemAlloc@1", .make = allocate_low, .undo = give_block, TAKES(64)),
	PARKED("pitch", "cuMemAllocPitch_v2@1", .make = allocate_pitch, .undo = give_block,
	       TAKES(64)),
	PARKED("pitch_low", "cuMemAllocPitch@1", .make = allocate_low_pitch, .undo = give_block,
	       TAKES(64)),
	PARKED("managed", "cuMemAllocManaged@1", .make = allocate_managed, .undo = give_block,
	       TAKES(128)),
	/* The card has no room, and the slice oversubscribes. */
	PARKED("oversubscribed", "cuMemAllocManaged@1", .make = allocate_block, .undo = give_block,
	       .env = {"CUDA_OVERSUBSCRIBE", "true", "VGPU_SIM_FAULTS", "cuMemAlloc_v2@2=2"},
	       .takes = 64, .charges = 128, .reserves = 128),
	PARKED("free", "cuMemFree_v2@2", .prepare = with_block, .make = free_block, .undo = nothing,
	       GIVES(64)),
	PARKED("free_low", "cuMemFree@1", .prepare = with_low, .make = free_low, .undo = nothing,
	       GIVES(64)),
	PARKED("free_managed", "cuMemFree_v2@2", .prepare = with_managed, .make = free_block,
	       .undo = nothing, GIVES(128)),
	PARKED("free_synchronised", "cuStreamSynchronize@1", .prepare = with_freed,
	       .make = synchronise, .undo = nothing, GIVES(64), .found = true),
};
TEST_TABLE(blocks, parked_play);

/* -- managed memory that is moved to another device -------------------------------------------- */

static CUmemLocation there = {CU_MEM_LOCATION_TYPE_DEVICE, 1};

static CUresult prefetch(void)
{
	return cuMemPrefetchAsync(block, CHUNK, 1, NULL);
}

static CUresult prefetch_ptsz(void)
{
	return cuMemPrefetchAsync_ptsz(block, CHUNK, 1, NULL);
}

static CUresult prefetch_v2(void)
{
	return cuMemPrefetchAsync_v2(block, CHUNK, there, 0, NULL);
}

static CUresult prefetch_v2_ptsz(void)
{
	return cuMemPrefetchAsync_v2_ptsz(block, CHUNK, there, 0, NULL);
}

static CUresult advise(void)
{
	return cuMemAdvise(block, CHUNK, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 1);
}

static CUresult advise_v2(void)
{
	return cuMemAdvise_v2(block, CHUNK, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, there);
}

static size_t range_bytes = CHUNK, first_range;

static CUresult prefetch_batch(void)
{
	return cuMemPrefetchBatchAsync(&block, &range_bytes, 1, &there, &first_range, 1, 0,
				       (CUstream)1);
}

static CUresult prefetch_batch_ptsz(void)
{
	return cuMemPrefetchBatchAsync_ptsz(&block, &range_bytes, 1, &there, &first_range, 1, 0,
					    NULL);
}

static CUresult discard_batch(void)
{
	return cuMemDiscardAndPrefetchBatchAsync(&block, &range_bytes, 1, &there, &first_range, 1,
						 0, (CUstream)1);
}

static CUresult discard_batch_ptsz(void)
{
	return cuMemDiscardAndPrefetchBatchAsync_ptsz(&block, &range_bytes, 1, &there, &first_range,
						      1, 0, NULL);
}

/* Allocated on the first device; the second one's context is current. */
static void with_managed_elsewhere(void)
{
	CUcontext first, second;

	CHECK_OK(cuCtxGetCurrent(&second));
	CHECK_OK(cuDevicePrimaryCtxRetain(&first, 0));
	CHECK_OK(cuCtxSetCurrent(first));
	with_managed();
	CHECK_OK(cuCtxSetCurrent(second));
}

/* The simulated driver moves no memory, and NVML's figures never have what was moved. */
#define MOVED(row, function, call)                                                               \
	PARKED(row, function "@1", .device = 1, .prepare = with_managed_elsewhere, .make = call, \
	       .undo = give_block, .charges = 128, .reserves = 128)

static const struct parked_row moves[] = {
	MOVED("prefetch", "cuMemPrefetchAsync", prefetch),
	MOVED("prefetch_ptsz", "cuMemPrefetchAsync_ptsz", prefetch_ptsz),
	MOVED("prefetch_v2", "cuMemPrefetchAsync_v2", prefetch_v2),
	MOVED("prefetch_v2_ptsz", "cuMemPrefetchAsync_v2_ptsz", prefetch_v2_ptsz),
	MOVED("advise", "cuMemAdvise", advise),
	MOVED("advise_v2", "cuMemAdvise_v2", advise_v2),
	MOVED("batch", "cuMemPrefetchBatchAsync", prefetch_batch),
	MOVED("batch_ptsz", "cuMemPrefetchBatchAsync_ptsz", prefetch_batch_ptsz),
	MOVED("discard", "cuMemDiscardAndPrefetchBatchAsync", discard_batch),
	MOVED("discard_ptsz", "cuMemDiscardAndPrefetchBatchAsync_ptsz", discard_batch_ptsz),
};
TEST_TABLE(moves, parked_play);

/* -- arrays: of 64 MiB ------------------------------------------------------------------------- */

static CUarray array;
static CUmipmappedArray mipmapped;

#define FLOAT CU_AD_FORMAT_FLOAT

static CUresult make_old(void)
{
	const CUDA_ARRAY_DESCRIPTOR_v1 flat = {4096, 4096, FLOAT, 1};

	return cuArrayCreate(&array, &flat);
}

static CUresult make_flat(void)
{
	const CUDA_ARRAY_DESCRIPTOR flat = {4096, 4096, FLOAT, 1};

	return cuArrayCreate_v2(&array, &flat);
}

static CUresult make_old_volume(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR_v1 volume = {1024, 1024, 16, FLOAT, 1, 0};

	return cuArray3DCreate(&array, &volume);
}

static CUresult make_volume(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR volume = {1024, 1024, 16, FLOAT, 1, 0};

	return cuArray3DCreate_v2(&array, &volume);
}

static CUresult make_levels(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR flat = {4096, 4096, 0, FLOAT, 1, 0};

	return cuMipmappedArrayCreate(&mipmapped, &flat, 1);
}

static CUresult destroy_array(void)
{
	return cuArrayDestroy(array);
}

static CUresult destroy_levels(void)
{
	return cuMipmappedArrayDestroy(mipmapped);
}

static void with_array(void)
{
	CHECK_OK(make_flat());
}

static void with_levels(void)
{
	CHECK_OK(make_levels());
}

static void end_array(void)
{
	CHECK_OK(destroy_array());
}

static void end_levels(void)
{
	CHECK_OK(destroy_levels());
}

/* Before the second call of two functions, a call without memory tells how much the array takes.
 * Its array is destroyed at once. */
static const struct parked_row arrays[] = {
	PARKED("array_old", "cuArrayCreate@1", .make = make_old, .undo = end_array, TAKES(64)),
	PARKED("array", "cuArrayCreate_v2@1", .make = make_flat, .undo = end_array, TAKES(64)),
	PARKED("volume_old", "cuArray3DCreate@1", .make = make_old_volume, .undo = end_array,
	       TAKES(64)),
	PARKED("volume", "cuArray3DCreate_v2@2", .make = make_volume, .undo = end_array, TAKES(64)),
	PARKED("levels", "cuMipmappedArrayCreate@2", .make = make_levels, .undo = end_levels,
	       TAKES(64)),
	PARKED("end_array", "cuArrayDestroy@2", .prepare = with_array, .make = destroy_array,
	       .undo = nothing, GIVES(64)),
	PARKED("end_levels", "cuMipmappedArrayDestroy@2", .prepare = with_levels,
	       .make = destroy_levels, .undo = nothing, GIVES(64)),
};
TEST_TABLE(arrays, parked_play);
