/*
 * One thread's call is in the driver. Meanwhile another thread uses the memory that the call
 * changes.
 */
#include "parked.h"
#include "stream_api.h"

#define SIZE   (64 * MIB)
#define FIGURE (CONTEXT + 9 * MIB) /* bytes on the device without allocations */

static void start(const char *limit)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	cuda_start(0);
	give(take(1));
}

/* Two mappings, and a hole between them, for which the driver refuses to unmap them together. */
static CUdeviceptr space;

static CUresult unmap_all(void)
{
	return cuMemUnmap(space, 3 * SIZE);
}

static void map_at(CUdeviceptr address)
{
	const CUmemAllocationProp prop = MEMORY_OF_GPU_0;
	CUmemGenericAllocationHandle memory;

	CHECK_OK(cuMemCreate(&memory, SIZE, &prop, 0));
	CHECK_OK(cuMemMap(address, SIZE, 0, memory, 0));
	CHECK_OK(cuMemRelease(memory));
}

/* Memory that is unmapped is given back, although another thread's call has it in its range. */
TEST(unmapped_beside_a_refusal)
{
	struct call call;

	park("cuMemUnmap@1");
	start("1g");
	CHECK_OK(cuMemAddressReserve(&space, 3 * SIZE, 0, 0, 0));
	map_at(space);
	map_at(space + 2 * SIZE);
	begin_call(&call, unmap_all);
	CHECK_OK(cuMemUnmap(space, SIZE));
	CHECK_EQUAL(ledger_own(0).data, SIZE);
	CHECK_EQUAL(end_call(&call), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(ledger_own(0).data, SIZE);
	CHECK_OK(cuMemUnmap(space + 2 * SIZE, SIZE));
	CHECK_EQUAL(outside_used(0), FIGURE);
	CHECK_EQUAL(ledger_own(0).data, 0);
}

static CUmemoryPool pool;

static CUresult destroy_pool(void)
{
	return cuMemPoolDestroy(pool);
}

/* A pool is charged while the driver is asked to destroy it, whether the driver does or not. */
static void used_while_destroyed(CUresult answer)
{
	CUdeviceptr address;
	struct call call;

	CHECK_OK(cuMemAllocFromPoolAsync(&address, MIB, pool, NULL));
	begin_call(&call, destroy_pool);
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&address, 900 * MIB, pool, NULL),
		    CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_OK(cuMemAllocFromPoolAsync(&address, 64 * MIB, pool, NULL));
	CHECK_EQUAL(end_call(&call), answer);
	CHECK_EQUAL(outside_used(0), FIGURE + 96 * MIB);
	CHECK_AT_MOST(outside_used(0), ledger_used(0));
}

TEST(pool_used_while_destroyed)
{
	const CUmemPoolProps props = POOL_OF_GPU_0;

	park("cuMemPoolDestroy@1");
	start("1g");
	CHECK_OK(cuMemPoolCreate(&pool, &props));
	used_while_destroyed(CUDA_SUCCESS);
}

TEST(default_pool_used_while_kept)
{
	park("cuMemPoolDestroy@1");
	start("1g");
	CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
	used_while_destroyed(CUDA_ERROR_INVALID_VALUE);
}

/* The stream of a free is synchronised after many others, and then the program rests. */
TEST(freed_in_a_late_stream)
{
	CUstream late, other;
	CUdeviceptr address;
	CUfunction spin;

	start("1g");
	CHECK_OK(cuStreamCreate(&late, 1));
	CHECK_OK(cuStreamCreate(&other, 1));
	spin = spin_load();
	address = take_async(300 * MIB, late);
	busy(spin, 50 * MS, late);
	give_async(address, late);
	while (cuStreamQuery(late) != CUDA_SUCCESS)
		CHECK_OK(cuStreamSynchronize(other));
	CHECK_OK(cuStreamSynchronize(late));
	CHECK_EQUAL(outside_used(0), FIGURE);
	CHECK_EQUAL(ledger_own(0).data, 0);
}
