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

static CUresult (*const moves[])(CUdeviceptr, size_t, int) = {
	by_prefetch, by_prefetch_ptsz, by_prefetch_v2, by_prefetch_v2_ptsz, by_advice, by_advice_v2,
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
