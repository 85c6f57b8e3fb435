/* Managed memory that is moved to another GPU: it is charged there as well, and refused there. */
#include "parked.h"

#define CHUNK (128 * MIB) /* by which it is charged on each GPU */

static CUdeviceptr start(uint64_t bytes)
{
	CUdeviceptr address = 0;

	env_set("VGPU_SIM_GPUS", "2x80G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "4g");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "1g");
	cuda_start(0);
	CHECK_OK(cuMemAllocManaged(&address, bytes, 1));
	return address;
}

static CUmemLocation on(int device)
{
	return device < 0 ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
			  : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

static CUstream a_stream(void)
{
	static CUstream stream;

	if (!stream)
		CHECK_OK(cuStreamCreate(&stream, 0));
	return stream;
}

#define WAYS      10
#define PREFERRED CU_MEM_ADVISE_SET_PREFERRED_LOCATION

/* Moves the memory to the GPU, or to the host for -1, by each function that does so. */
static CUresult move_by(unsigned way, CUdeviceptr address, size_t bytes, int device)
{
	CUmemLocation place = on(device);
	size_t first = 0;

	switch (way) {
	case 0:
		return cuMemPrefetchAsync(address, bytes, device, NULL);
	case 1:
		return cuMemPrefetchAsync_ptsz(address, bytes, device, NULL);
	case 2:
		return cuMemPrefetchAsync_v2(address, bytes, place, 0, NULL);
	case 3:
		return cuMemPrefetchAsync_v2_ptsz(address, bytes, place, 0, NULL);
	case 4:
		return cuMemAdvise(address, bytes, PREFERRED, device);
	case 5:
		return cuMemAdvise_v2(address, bytes, PREFERRED, place);
	case 6:
		return cuMemPrefetchBatchAsync(&address, &bytes, 1, &place, &first, 1, 0,
					       a_stream());
	case 7:
		return cuMemPrefetchBatchAsync_ptsz(&address, &bytes, 1, &place, &first, 1, 0,
						    NULL);
	case 8:
		return cuMemDiscardAndPrefetchBatchAsync(&address, &bytes, 1, &place, &first, 1, 0,
							 a_stream());
	default:
		return cuMemDiscardAndPrefetchBatchAsync_ptsz(&address, &bytes, 1, &place, &first,
							      1, 0, NULL);
	}
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, int device)
{
	return move_by(0, address, bytes, device);
}

/* Bytes that are charged on the second GPU. */
static void assert_moved(uint64_t bytes)
{
	CHECK_EQUAL(ledger_own(1).data, bytes);
}

TEST(each_way)
{
	CUdeviceptr address = start(2 * CHUNK);

	for (unsigned i = 0; i < WAYS; i++) {
		CHECK_OK(move_by(i, address, 2 * CHUNK, 0));
		CHECK_OK(move_by(i, address, 2 * CHUNK, -1));
		assert_moved(0);
		for (unsigned again = 0; again < 2; again++) {
			CHECK_OK(move_by(i, address, 2 * CHUNK, 1));
			assert_moved(2 * CHUNK);
		}
		CHECK_EQUAL(ledger_own(0).data, 2 * CHUNK);
		give(address);
		CHECK_EQUAL(ledger_own(0).data, 0);
		assert_moved(0);
		CHECK_OK(cuMemAllocManaged(&address, 2 * CHUNK, 1));
	}
}

/* As far as it is moved: a half of it is no more, however often; and from the middle on. */
TEST(in_part)
{
	CUdeviceptr address = start(8 * CHUNK);

	for (unsigned i = 0; i < 3; i++) {
		CHECK_OK(prefetch(address + 4 * CHUNK, 2 * CHUNK, 1));
		assert_moved(2 * CHUNK);
	}
	CHECK_OK(move_by(4, address + 3 * CHUNK, 2 * CHUNK, 1));
	assert_moved(3 * CHUNK);
	CHECK_OK(prefetch(address + 6 * CHUNK, CHUNK, 1));
	assert_moved(4 * CHUNK);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	assert_moved(0);
	CHECK_EQUAL(ledger_own(0).total, 0);
}

TEST(no_room)
{
	CUdeviceptr address = start(16 * CHUNK);
	int32_t where = 7;

	for (unsigned i = 0; i < WAYS; i++) {
		CHECK_EQUAL(move_by(i, address, 16 * CHUNK, 1), CUDA_ERROR_OUT_OF_MEMORY);
		assert_moved(0);
	}
	CHECK_OK(cuMemRangeGetAttribute(&where, sizeof(where),
					CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, CHUNK));
	CHECK_EQUAL(where, -2); /* nowhere: the driver was not asked */
	CHECK_OK(prefetch(address, 8 * CHUNK, 1));
	CHECK_EQUAL(prefetch(address + 8 * CHUNK, CHUNK, 1), CUDA_ERROR_OUT_OF_MEMORY);
	assert_moved(8 * CHUNK);
	give(address);
	assert_moved(0);
}

/* What the driver refuses costs nothing, and what is no managed memory is its business. */
TEST(rejected)
{
	CUdeviceptr address = start(4 * CHUNK), plain = take(CHUNK);

	for (unsigned i = 0; i < WAYS; i++) {
		CHECK_EQUAL(move_by(i, plain, CHUNK, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(move_by(i, address, 5 * CHUNK, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(move_by(i, address, CHUNK, 7), CUDA_ERROR_INVALID_DEVICE);
	}
	CHECK_EQUAL(cuMemPrefetchAsync_v2(address, CHUNK, on(1), 1, NULL),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_OK(cuMemAdvise(address, CHUNK, CU_MEM_ADVISE_SET_ACCESSED_BY, 1));
	CHECK_EQUAL(cuMemAdvise(address, CHUNK, 77, 1), CUDA_ERROR_INVALID_VALUE);
	assert_moved(0);
	CHECK_OK(prefetch(address, CHUNK, 1));
	CHECK_EQUAL(cuMemPrefetchAsync_v2(address, 4 * CHUNK, on(1), 1, NULL),
		    CUDA_ERROR_INVALID_VALUE);
	assert_moved(CHUNK);
}

/* -- batches ----------------------------------------------------------------------------------- */

#define RANGES 40

struct batch {
	CUdeviceptr address[RANGES];
	size_t bytes[RANGES];
};

/* Every second chunk of the memory, from the first on. */
static struct batch batch_of(CUdeviceptr address)
{
	struct batch batch;

	for (unsigned i = 0; i < RANGES; i++) {
		batch.address[i] = address + i % 4 * 2 * CHUNK;
		batch.bytes[i] = CHUNK;
	}
	return batch;
}

static CUresult move_batch(struct batch *batch, size_t count, CUmemLocation *locations,
			   size_t *firsts, size_t locations_count)
{
	return cuMemPrefetchBatchAsync(batch->address, batch->bytes, count, locations, firsts,
				       locations_count, 0, a_stream());
}

/* Each range has the last location whose first range is not after it. */
TEST(batch_of_locations)
{
	struct batch batch = batch_of(start(8 * CHUNK));
	CUmemLocation locations[] = {on(-1), on(1), on(0)};

	CHECK_OK(move_batch(&batch, 4, locations, (size_t[]){0, 3}, 1));
	assert_moved(0);
	CHECK_OK(move_batch(&batch, 4, locations, (size_t[]){0, 2, 3}, 3));
	assert_moved(CHUNK);
	CHECK_OK(move_batch(&batch, 4, locations, (size_t[]){0, 2}, 2));
	assert_moved(3 * CHUNK);
	CHECK_EQUAL(ledger_own(0).data, 8 * CHUNK);
	give(batch.address[0]);
	assert_moved(0);
}

/* More ranges than a batch has on the stack. */
TEST(batch_of_many)
{
	struct batch batch = batch_of(start(8 * CHUNK));
	CUmemLocation there = on(1);

	CHECK_OK(move_batch(&batch, RANGES, &there, (size_t[]){0}, 1));
	assert_moved(7 * CHUNK);
	give(batch.address[0]);
	assert_moved(0);
}

/* A batch of which the last range has no room moves nothing, and costs nothing. */
TEST(batch_no_room)
{
	struct batch batch = batch_of(start(16 * CHUNK));
	CUmemLocation there = on(1);
	int32_t where = 7;

	batch.bytes[RANGES - 1] = 10 * CHUNK;
	for (unsigned few = 0; few < 2; few++) {
		CHECK_EQUAL(move_batch(&batch, few ? 4 : RANGES, &there, (size_t[]){0}, 1),
			    CUDA_ERROR_OUT_OF_MEMORY);
		assert_moved(0);
		batch.bytes[3] = 10 * CHUNK;
	}
	CHECK_OK(cuMemRangeGetAttribute(&where, sizeof(where),
					CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
					batch.address[0], CHUNK));
	CHECK_EQUAL(where, -2); /* nowhere: the driver was not asked */
}

/* A batch that the driver rejects costs nothing, and earlier charges stay. */
TEST(batch_rejected)
{
	struct batch batch = batch_of(start(8 * CHUNK));
	CUmemLocation locations[] = {on(1), on(1)};
	static size_t first[] = {0, 2}, not_first[] = {1, 2}, backward[] = {0, 0};

	for (unsigned charged = 0; charged < 2; charged++) {
		CHECK_EQUAL(move_batch(&batch, 4, locations, first, 0), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(move_batch(&batch, 4, NULL, first, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(move_batch(&batch, 4, locations, NULL, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(move_batch(&batch, 4, locations, not_first, 2),
			    CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(move_batch(&batch, 4, locations, backward, 2),
			    CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(move_batch(&batch, 1, locations, first, 2), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(move_batch(&batch, 0, locations, first, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemPrefetchBatchAsync(batch.address, batch.bytes, 4, locations, first,
						    1, 1, a_stream()),
			    CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(
			cuMemPrefetchBatchAsync(NULL, NULL, 4, locations, first, 1, 0, a_stream()),
			CUDA_ERROR_INVALID_VALUE);
		assert_moved(charged * CHUNK);
		CHECK_OK(prefetch(batch.address[1], CHUNK, 1));
	}
}

/* -- beside a refusal -------------------------------------------------------------------------- */

static CUdeviceptr memory; /* of which the driver refuses to move the first chunk */

static DRIVER_CALL(refused_move, cuMemPrefetchAsync_v2(memory, CHUNK, on(1), 1, NULL));

/* The chunk that is moved while the driver refuses another thread. */
static const struct beside {
	const char *name;
	unsigned chunk;
} besides[] = {{"rejected_beside_the_same_move", 0}, {"rejected_beside_another_move", 1}};

static void beside_a_refusal(const struct beside *row)
{
	struct call call;

	park("cuMemPrefetchAsync_v2");
	memory = start(4 * CHUNK);
	begin_call(&call, refused_move);
	CHECK_OK(prefetch(memory + row->chunk * CHUNK, CHUNK, 1));
	CHECK_EQUAL(end_call(&call), CUDA_ERROR_INVALID_VALUE);
	CHECK_AT_MOST(CHUNK, ledger_own(1).data);
	give(memory);
	assert_moved(0);
}

TEST_TABLE(besides, beside_a_refusal);
