/* Managed memory that is moved to another GPU: it is charged there as well, and refused there. */
#include "cuda_api.h"

#include <pthread.h>
#include <unistd.h>

#define CHUNK (128 * MIB) /* by which it is charged on each GPU */

static CUdeviceptr start(uint64_t bytes)
{
	CUdeviceptr address = 0;

	env_set("VGPU_SIM_GPUS", "2x80G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "4g");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "1g");
	cuda_start(0);
	CHECK_CUDA(cuMemAllocManaged(&address, bytes, 1), CUDA_SUCCESS);
	return address;
}

static CUmemLocation on(int device)
{
	return device < 0 ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
			  : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

static CUresult by_prefetch(CUdeviceptr address, size_t bytes, int device)
{
	return cuMemPrefetchAsync(address, bytes, device, NULL);
}

static CUresult by_prefetch_ptsz(CUdeviceptr address, size_t bytes, int device)
{
	return cuMemPrefetchAsync_ptsz(address, bytes, device, NULL);
}

static CUresult by_prefetch_v2(CUdeviceptr address, size_t bytes, int device)
{
	return cuMemPrefetchAsync_v2(address, bytes, on(device), 0, NULL);
}

static CUresult by_prefetch_v2_ptsz(CUdeviceptr address, size_t bytes, int device)
{
	return cuMemPrefetchAsync_v2_ptsz(address, bytes, on(device), 0, NULL);
}

static CUresult by_advice(CUdeviceptr address, size_t bytes, int device)
{
	return cuMemAdvise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
}

static CUresult by_advice_v2(CUdeviceptr address, size_t bytes, int device)
{
	return cuMemAdvise_v2(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on(device));
}

static CUstream a_stream(void)
{
	static CUstream stream;

	if (!stream)
		CHECK_CUDA(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
	return stream;
}

static CUresult by_batch(CUdeviceptr address, size_t bytes, int device)
{
	return cuMemPrefetchBatchAsync(&address, &bytes, 1, (CUmemLocation[]){on(device)},
				       (size_t[]){0}, 1, 0, a_stream());
}

static CUresult by_batch_ptsz(CUdeviceptr address, size_t bytes, int device)
{
	return cuMemPrefetchBatchAsync_ptsz(&address, &bytes, 1, (CUmemLocation[]){on(device)},
					    (size_t[]){0}, 1, 0, NULL);
}

static CUresult by_discard(CUdeviceptr address, size_t bytes, int device)
{
	return cuMemDiscardAndPrefetchBatchAsync(&address, &bytes, 1, (CUmemLocation[]){on(device)},
						 (size_t[]){0}, 1, 0, a_stream());
}

static CUresult by_discard_ptsz(CUdeviceptr address, size_t bytes, int device)
{
	return cuMemDiscardAndPrefetchBatchAsync_ptsz(
		&address, &bytes, 1, (CUmemLocation[]){on(device)}, (size_t[]){0}, 1, 0, NULL);
}

static CUresult (*const moves[])(CUdeviceptr, size_t, int) = {
	by_prefetch,  by_prefetch_ptsz, by_prefetch_v2, by_prefetch_v2_ptsz, by_advice,
	by_advice_v2, by_batch,         by_batch_ptsz,  by_discard,          by_discard_ptsz,
};

#define MOVES (sizeof(moves) / sizeof(*moves))

TEST(each_way)
{
	CUdeviceptr address = start(2 * CHUNK);

	for (unsigned i = 0; i < MOVES; i++) {
		CHECK_CUDA(moves[i](address, 2 * CHUNK, 0), CUDA_SUCCESS);
		CHECK_CUDA(moves[i](address, 2 * CHUNK, -1), CUDA_SUCCESS);
		CHECK_EQUAL(ledger_own(1).data, 0);
		for (unsigned again = 0; again < 2; again++) {
			CHECK_CUDA(moves[i](address, 2 * CHUNK, 1), CUDA_SUCCESS);
			CHECK_EQUAL(ledger_own(1).data, 2 * CHUNK);
		}
		CHECK_EQUAL(ledger_own(0).data, 2 * CHUNK);
		give(address);
		CHECK_EQUAL(ledger_own(0).data, 0);
		CHECK_EQUAL(ledger_own(1).data, 0);
		CHECK_CUDA(cuMemAllocManaged(&address, 2 * CHUNK, 1), CUDA_SUCCESS);
	}
}

/* As far as it is moved: a half of it is no more, however often; and from the middle on. */
TEST(in_part)
{
	CUdeviceptr address = start(8 * CHUNK);

	for (unsigned i = 0; i < 3; i++) {
		CHECK_CUDA(by_prefetch(address + 4 * CHUNK, 2 * CHUNK, 1), CUDA_SUCCESS);
		CHECK_EQUAL(ledger_own(1).data, 2 * CHUNK);
	}
	CHECK_CUDA(by_advice(address + 3 * CHUNK, 2 * CHUNK, 1), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(1).data, 3 * CHUNK);
	CHECK_CUDA(by_prefetch(address + 6 * CHUNK, CHUNK, 1), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(1).data, 4 * CHUNK);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(1).data, 0);
	CHECK_EQUAL(ledger_own(0).total, 0);
}

TEST(no_room)
{
	CUdeviceptr address = start(16 * CHUNK);
	int32_t where = 7;

	for (unsigned i = 0; i < MOVES; i++) {
		CHECK_CUDA(moves[i](address, 16 * CHUNK, 1), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQUAL(ledger_own(1).data, 0);
	}
	CHECK_CUDA(cuMemRangeGetAttribute(&where, sizeof(where),
					  CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address,
					  CHUNK),
		   CUDA_SUCCESS);
	CHECK_EQUAL(where, -2); /* nowhere: the driver was not asked */
	CHECK_CUDA(by_prefetch(address, 8 * CHUNK, 1), CUDA_SUCCESS);
	CHECK_CUDA(by_prefetch(address + 8 * CHUNK, CHUNK, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(ledger_own(1).data, 8 * CHUNK);
	give(address);
	CHECK_EQUAL(ledger_own(1).data, 0);
}

/* What the driver refuses costs nothing, and what is no managed memory is its business. */
TEST(rejected)
{
	CUdeviceptr address = start(4 * CHUNK), plain = take(CHUNK);

	for (unsigned i = 0; i < MOVES; i++) {
		CHECK_CUDA(moves[i](plain, CHUNK, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(moves[i](address, 5 * CHUNK, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(moves[i](address, CHUNK, 7), CUDA_ERROR_INVALID_DEVICE);
	}
	CHECK_CUDA(cuMemPrefetchAsync_v2(address, CHUNK, on(1), 1, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemAdvise(address, CHUNK, CU_MEM_ADVISE_SET_ACCESSED_BY, 1), CUDA_SUCCESS);
	CHECK_CUDA(cuMemAdvise(address, CHUNK, 77, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(ledger_own(1).data, 0);
	CHECK_CUDA(by_prefetch(address, CHUNK, 1), CUDA_SUCCESS);
	CHECK_CUDA(cuMemPrefetchAsync_v2(address, 4 * CHUNK, on(1), 1, NULL),
		   CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(ledger_own(1).data, CHUNK);
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

	CHECK_CUDA(move_batch(&batch, 4, locations, (size_t[]){0, 3}, 1), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(1).data, 0);
	CHECK_CUDA(move_batch(&batch, 4, locations, (size_t[]){0, 2, 3}, 3), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(1).data, CHUNK);
	CHECK_CUDA(move_batch(&batch, 4, locations, (size_t[]){0, 2}, 2), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(1).data, 3 * CHUNK);
	CHECK_EQUAL(ledger_own(0).data, 8 * CHUNK);
	give(batch.address[0]);
	CHECK_EQUAL(ledger_own(1).data, 0);
}

/* More ranges than a batch has on the stack. */
TEST(batch_of_many)
{
	struct batch batch = batch_of(start(8 * CHUNK));
	CUmemLocation there = on(1);

	CHECK_CUDA(move_batch(&batch, RANGES, &there, (size_t[]){0}, 1), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(1).data, 7 * CHUNK);
	give(batch.address[0]);
	CHECK_EQUAL(ledger_own(1).data, 0);
}

/* A batch of which the last range has no room moves nothing, and costs nothing. */
TEST(batch_no_room)
{
	struct batch batch = batch_of(start(16 * CHUNK));
	CUmemLocation there = on(1);
	int32_t where = 7;

	batch.bytes[RANGES - 1] = 10 * CHUNK;
	for (unsigned few = 0; few < 2; few++) {
		CHECK_CUDA(move_batch(&batch, few ? 4 : RANGES, &there, (size_t[]){0}, 1),
			   CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQUAL(ledger_own(1).data, 0);
		batch.bytes[3] = 10 * CHUNK;
	}
	CHECK_CUDA(cuMemRangeGetAttribute(&where, sizeof(where),
					  CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
					  batch.address[0], CHUNK),
		   CUDA_SUCCESS);
	CHECK_EQUAL(where, -2); /* nowhere: the driver was not asked */
}

/* A batch that the driver rejects costs nothing, and earlier charges stay. */
TEST(batch_rejected)
{
	struct batch batch = batch_of(start(8 * CHUNK));
	CUmemLocation locations[] = {on(1), on(1)};
	static size_t first[] = {0, 2}, not_first[] = {1, 2}, backward[] = {0, 0};

	for (unsigned charged = 0; charged < 2; charged++) {
		CHECK_CUDA(move_batch(&batch, 4, locations, first, 0), CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(move_batch(&batch, 4, NULL, first, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(move_batch(&batch, 4, locations, NULL, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(move_batch(&batch, 4, locations, not_first, 2),
			   CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(move_batch(&batch, 4, locations, backward, 2), CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(move_batch(&batch, 1, locations, first, 2), CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(move_batch(&batch, 0, locations, first, 1), CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(cuMemPrefetchBatchAsync(batch.address, batch.bytes, 4, locations, first,
						   1, 1, a_stream()),
			   CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(
			cuMemPrefetchBatchAsync(NULL, NULL, 4, locations, first, 1, 0, a_stream()),
			CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(ledger_own(1).data, charged * CHUNK);
		CHECK_CUDA(by_prefetch(batch.address[1], CHUNK, 1), CUDA_SUCCESS);
	}
}

/* -- beside a refusal -------------------------------------------------------------------------- */

static CUcontext its_context;

static void *refused_move(void *address)
{
	CHECK_CUDA(cuCtxSetCurrent(its_context), CUDA_SUCCESS);
	CHECK_CUDA(cuMemPrefetchAsync_v2((CUdeviceptr)(uintptr_t)address, CHUNK, on(1), 1, NULL),
		   CUDA_ERROR_INVALID_VALUE);
	return NULL;
}

/* Moves the chunk of that number while the driver refuses another thread to move the first one. */
static void beside_a_refusal(unsigned chunk)
{
	CUdeviceptr address;
	pthread_t thread;
	char rule[512];

	snprintf(rule, sizeof(rule), "cuMemPrefetchAsync_v2=%s", scene_path("parked"));
	env_set("VGPU_SIM_PARK", rule);
	address = start(4 * CHUNK);
	CHECK_CUDA(cuCtxGetCurrent(&its_context), CUDA_SUCCESS);
	CHECK(pthread_create(&thread, NULL, refused_move, (void *)(uintptr_t)address) == 0);
	while (access(scene_path("parked"), F_OK) != 0)
		sleep_ms(1);
	CHECK_CUDA(by_prefetch(address + chunk * CHUNK, CHUNK, 1), CUDA_SUCCESS);
	CHECK(unlink(scene_path("parked")) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK_AT_MOST(CHUNK, ledger_own(1).data);
	give(address);
	CHECK_EQUAL(ledger_own(1).data, 0);
}

TEST(rejected_beside_the_same_move)
{
	beside_a_refusal(0);
}

TEST(rejected_beside_another_move)
{
	beside_a_refusal(1);
}
