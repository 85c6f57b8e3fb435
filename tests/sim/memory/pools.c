/* Stream-ordered allocation: what pools reserve is charged, and goes back when they give it back.
 */
#include "stream_acts.h"

#include <string.h>
#include <sys/wait.h>

#define QUOTA    (8 * GIB)
#define ROOM     (QUOTA - CONTEXT - HIDDEN)
#define CHUNKS   ((unsigned)(ROOM / POOL_CHUNK))
#define MORE_MAX 4096

static CUdeviceptr pieces[MORE_MAX];

/* -- to the quota, through each door -- */

static CUresult take_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream where)
{
	return cuMemAllocAsync_ptsz(dptr, bytes, where);
}

static CUresult take_standard(CUdeviceptr *dptr, size_t bytes, CUstream where)
{
	return cuMemAllocFromPoolAsync(dptr, bytes, standard, where);
}

static CUresult take_standard_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream where)
{
	return cuMemAllocFromPoolAsync_ptsz(dptr, bytes, standard, where);
}

static CUresult synchronise_event(CUstream where)
{
	CUevent event;

	CHECK_OK(cuEventCreate(&event, 0));
	CHECK_OK(cuEventRecord(event, where));
	CHECK_OK(cuEventSynchronize(event));
	return cuEventDestroy_v2(event);
}

static CUresult synchronise_context(CUstream where)
{
	(void)where;
	return cuCtxSynchronize();
}

static CUresult synchronise_context_v2(CUstream where)
{
	CUcontext context;

	(void)where;
	CHECK_OK(cuCtxGetCurrent(&context));
	return cuCtxSynchronize_v2(context);
}

static const struct door {
	CUresult (*take)(CUdeviceptr *, size_t, CUstream);
	CUresult (*give)(CUdeviceptr, CUstream);
	CUresult (*synchronise)(CUstream);
} doors[] = {
	{cuMemAllocAsync, cuMemFreeAsync, cuStreamSynchronize},
	{take_ptsz, cuMemFreeAsync_ptsz, cuStreamSynchronize_ptsz},
	{take_standard, cuMemFreeAsync, synchronise_event},
	{take_standard_ptsz, cuMemFreeAsync_ptsz, synchronise_context},
	{cuMemAllocAsync, cuMemFreeAsync, synchronise_context_v2},
};

static unsigned fill_async(const struct door *door, uint64_t bytes)
{
	CUdeviceptr address = UNTOUCHED;
	unsigned count = 0;
	CUresult result;

	while ((result = door->take(&address, bytes, stream)) == CUDA_SUCCESS) {
		CHECK(count < MORE_MAX);
		pieces[count++] = address;
		address = UNTOUCHED;
	}
	CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(address, UNTOUCHED);
	return count;
}

static void give_all(const struct door *door, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		CHECK_OK(door->give(pieces[i], stream));
	CHECK_OK(door->synchronise(stream));
	assert_data(0);
}

static void filled(const struct door *door, uint64_t bytes, unsigned expected)
{
	unsigned count = fill_async(door, bytes);

	CHECK_EQUAL(count, expected);
	CHECK_AT_MOST(outside_used(0), QUOTA + GRANULE);
	CHECK_AT_MOST(QUOTA / 100 * 99, outside_used(0));
	CHECK_AT_MOST(ledger_used(0), QUOTA);
	CHECK_OK(door->synchronise(stream));
	assert_data(CHUNKS * POOL_CHUNK);
	give_all(door, count);
}

TEST(to_the_quota)
{
	start("8g");
	for (unsigned i = 0; i < sizeof(doors) / sizeof(*doors); i++) {
		filled(&doors[i], POOL_CHUNK, CHUNKS);
		/* Pieces that no chunk is a multiple of still use all of them. */
		filled(&doors[i], 13 * MIB, (unsigned)(CHUNKS * POOL_CHUNK / (13 * MIB)));
		filled(&doors[i], 637 * MIB, (unsigned)(CHUNKS * POOL_CHUNK / (637 * MIB)));
	}
}

TEST(rejected)
{
	CUdeviceptr address = UNTOUCHED;

	start("2g");
	CHECK_EQUAL(cuMemAllocAsync(&address, 0, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocAsync(NULL, MIB, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocAsync_ptsz(NULL, MIB, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&address, MIB, NULL, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocFromPoolAsync_ptsz(NULL, MIB, standard, stream),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFreeAsync(0x123400, stream), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemFreeAsync_ptsz(0x123400, stream), CUDA_ERROR_INVALID_VALUE);
	refused_async(SIZE_MAX, stream);
	refused_async((uint64_t)1 << 60, stream);
	refused_async(2 * GIB, stream);
	synchronise(stream);
	assert_data(0);
}

/* The GPU is full before the quota is. */
TEST(refused_by_the_driver)
{
	env_set("VGPU_SIM_GPUS", "1x1G");
	start("8g");
	refused_async(GIB, stream);
	give_async(take_async(300 * MIB, stream), stream);
	refused_async(GIB, stream);
	synchronise(stream);
	assert_data(0);
}

/* -- in a full slice -- */

/* What is freed is had again in the same stream, without a synchronisation. */
TEST(reused_when_full)
{
	static const uint64_t sizes[] = {32 * MIB, 96 * MIB, 5 * MIB};
	unsigned count;

	start("8g");
	for (unsigned k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
		count = fill_async(&doors[0], sizes[k]);
		for (unsigned round = 0; round < 300; round++) {
			unsigned i = round % count;

			give_async(pieces[i], stream);
			pieces[i] = take_async(sizes[k], stream);
			if (round % 50 == 0)
				refused_async(sizes[k], stream);
		}
		CHECK_AT_MOST(outside_used(0), QUOTA + GRANULE);
		assert_covered();
		give_all(&doors[0], count);
	}
}

/* Makes a second stream, which the driver may not make wait for what the first one frees. Returns
 * the kernel for busy(). */
static CUfunction start_apart(CUstream *ret_other)
{
	int no = 0;

	start("8g");
	CHECK_OK(cuStreamCreate(ret_other, NON_BLOCKING));
	CHECK_OK(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
				       &no));
	return spin_load();
}

/*
 * The pool has room by its sums, but not for this stream: the driver takes more of the device, and
 * that is given back, and refused with the caller's variable as it was.
 */
TEST(not_for_this_stream)
{
	CUdeviceptr found[2] = {UNTOUCHED, UNTOUCHED};
	uint64_t ns = 300 * MS;
	CUresult results[2];
	CUstream other;
	CUfunction spin;
	unsigned count;

	spin = start_apart(&other);
	count = fill_async(&doors[0], POOL_CHUNK);
	for (;; ns *= 5) {
		busy(spin, ns, stream);
		give_async(pieces[--count], stream);
		results[0] = cuMemAllocAsync(&found[0], 20 * MIB, other);
		results[1] = cuMemAllocFromPoolAsync_ptsz(&found[1], 20 * MIB, standard, other);
		if (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
			break; /* so it was meanwhile; or else the machine is busy: once more */
		CHECK(ns < 30000 * MS);
		for (unsigned i = 0; i < 2; i++)
			if (results[i] == CUDA_SUCCESS)
				give_async(found[i], other);
		found[0] = found[1] = UNTOUCHED;
		CHECK_OK(cuCtxSynchronize());
		pieces[count++] = take_async(POOL_CHUNK, stream);
	}
	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQUAL(results[i], CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQUAL(found[i], UNTOUCHED);
	}
	synchronise(other);
	CHECK_AT_MOST(outside_used(0), QUOTA + GRANULE);
	CHECK_OK(cuCtxSynchronize());
	assert_books(count * POOL_CHUNK);
	give_all(&doors[0], count);
}

#define BIG    (6 * GIB)
#define PIECES 16 /* in which the library tries a big allocation */

/* The same, and the other stream is busy, too: it would come late to the free of what was taken
 * above the quota. So the driver must not take much. */
TEST(not_for_this_busy_stream)
{
	CUdeviceptr big, found = UNTOUCHED;
	CUstream other;
	CUfunction spin;
	CUresult result;

	spin = start_apart(&other);
	big = take_async(BIG, stream);
	busy(spin, 300 * MS, stream);
	busy(spin, 300 * MS, other);
	give_async(big, stream);
	outside_peak_begin(0);
	result = cuMemAllocAsync(&found, BIG, other);
	CHECK_AT_MOST(outside_peak(0), QUOTA + BIG / PIECES);
	CHECK(result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_SUCCESS);
	if (result == CUDA_SUCCESS) { /* the streams are not busy any more */
		give_async(found, other);
		synchronise(other);
	} else {
		CHECK_EQUAL(found, UNTOUCHED);
	}
	big = take_async(BIG, stream); /* which may use what it has freed */
	give_async(big, stream);
	CHECK_OK(cuCtxSynchronize());
	assert_books(0);
}

/* A refused allocation had taken memory above the quota. The charge for it ends as soon as the
 * device has it back. */
TEST(refused_and_synchronised)
{
	CUdeviceptr big, found = UNTOUCHED;
	CUstream other, idle;
	CUfunction spin;

	spin = start_apart(&other);
	CHECK_OK(cuStreamCreate(&idle, NON_BLOCKING));
	big = take_async(BIG, stream);
	busy(spin, 300 * MS, stream);
	give_async(big, stream);
	for (unsigned i = 0; i < 20; i++) /* so many times that pools are not looked at any more */
		synchronise(idle);
	if (cuMemAllocAsync(&found, BIG, other) ==
	    CUDA_SUCCESS) /* the stream is not busy any more */
		give_async(found, other);
	synchronise(other);
	assert_books(ledger_own(0).data);
	CHECK_OK(cuCtxSynchronize());
}

/* -- giving back -- */

/* clang-format off */
static const struct acts given_back[] = {
	{"trimmed", "4g", .acts = {
		{KEEP(STANDARD, 1 << 20), 0}, {TAKE_ASYNC(A, 1), COVERED},
		{TAKE_ASYNC(B, 500), COVERED}, {GIVE_ASYNC(B), COVERED}, {SYNCHRONISE, 512},
		{TRIM_POOL(STANDARD, 65), 96}, {TRIM_POOL(STANDARD, 0), 32},
		/* What cuMemFree frees is free at once, and the pool keeps it by its threshold. */
		{GIVE(A), 32}, {SYNCHRONISE, 32}, {KEEP(STANDARD, 0), 32}, {SYNCHRONISE, 0},
		{TRIM_POOL(STANDARD, 0), 0}, {TRIM_POOL(P, 0), 0, INVALID}}},
	/* cuMemFree may give the memory back to the device at once. */
	{"freed_as_linear", "2g", .rounds = 20, .acts = {
		{TAKE_ASYNC(A, 100), COVERED}, {GIVE(A), COVERED}, {SYNCHRONISE, 0}}},
};
TEST_TABLE(given_back, play);
/* clang-format on */

static void by_linear(void)
{
	give(take(7 * GIB));
}

static void by_physical(void)
{
	CUmemAllocationProp property = MEMORY_OF_GPU_0;
	CUmemGenericAllocationHandle handle;

	CHECK_OK(cuMemCreate(&handle, 7 * GIB, &property, 0));
	assert_books(7 * GIB + POOL_CHUNK);
	CHECK_OK(cuMemRelease(handle));
}

static void by_array(void)
{
	CUDA_ARRAY_DESCRIPTOR form = {32768, 57344, CU_AD_FORMAT_FLOAT, 1};
	CUarray array;

	CHECK_OK(cuArrayCreate_v2(&array, &form));
	assert_books(7 * GIB + POOL_CHUNK);
	CHECK_OK(cuArrayDestroy(array));
}

static void by_managed(void)
{
	CUdeviceptr address;

	CHECK_OK(cuMemAllocManaged(&address, 7 * GIB, CU_MEM_ATTACH_GLOBAL));
	CHECK_EQUAL(ledger_own(0).data, 7 * GIB + POOL_CHUNK);
	give(address);
}

static void by_context(void)
{
	CUcontext context;

	CHECK_OK(cuCtxCreate_v2(&context, 0, 0));
	CHECK_OK(cuCtxDestroy_v2(context));
}

static void by_another_pool(void)
{
	CUmemoryPool pool = device_pool();
	CUdeviceptr address = take_from(pool, 7 * GIB);

	give_async(address, stream);
	synchronise(stream);
	CHECK_OK(cuMemPoolDestroy(pool));
}

/* What a pool keeps by its release threshold is somebody else's who needs it. */
TEST(kept_until_needed)
{
	static void (*const needs[])(void) = {by_linear,  by_physical, by_array,
					      by_managed, by_context,  by_another_pool};
	struct vgpu_hami_usage usage;
	CUdeviceptr held;

	start("8g");
	threshold_set(standard, UINT64_MAX);
	held = take_async(MIB, stream);
	for (unsigned i = 0; i < sizeof(needs) / sizeof(*needs); i++) {
		unsigned count = fill_async(&doors[0], POOL_CHUNK);

		for (unsigned k = 0; k < count; k++)
			give_async(pieces[k], stream);
		synchronise(stream);
		assert_data(CHUNKS * POOL_CHUNK);
		CHECK_AT_MOST(7 * GIB, CHUNKS * POOL_CHUNK);
		needs[i]();
		usage = ledger_own(0);
		CHECK_EQUAL(usage.data, POOL_CHUNK);
		CHECK_EQUAL(outside_of(0, getpid()), CONTEXT + POOL_CHUNK);
	}
	give_async(held, stream);
	synchronise(stream);
	CHECK_OK(cuMemPoolTrimTo(standard, 0));
	assert_books(0);
}

/* The pool is the device's: contexts end, what it has stays charged. */
TEST(survives_contexts)
{
	CUdeviceptr address;

	start("4g");
	address = take_async(100 * MIB, stream);
	give_async(take_async(300 * MIB, stream), stream);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	assert_covered();
	cuda_start(0);
	give(take(1));
	CHECK_OK(cuMemFreeAsync(address, NULL));
	CHECK_OK(cuStreamSynchronize(NULL));
	assert_data(0);
}

/* Allocations in two streams, random, are charged at any time. */
TEST(always_covered)
{
	CUdeviceptr held[16] = {0};
	CUstream streams[2];
	unsigned seed = 7;

	start("8g");
	streams[0] = stream;
	CHECK_OK(cuStreamCreate(&streams[1], 0));
	for (unsigned round = 0; round < 2000; round++) {
		unsigned i = (unsigned)rand_r(&seed) % 16, turn = (unsigned)rand_r(&seed);
		CUstream where = streams[turn % 2];

		if (held[i])
			give_async(held[i], where);
		held[i] = held[i] ? 0 : take_async((turn >> 8) % (200 * MIB) + 1, where);
		if (turn % 16 == 0)
			synchronise(where);
		if (round % 20 == 0)
			assert_covered();
	}
	for (unsigned i = 0; i < 16; i++)
		if (held[i])
			give_async(held[i], stream);
	synchronise(streams[1]);
	synchronise(stream);
	assert_data(0);
}
