/*
 * Virtual memory management: memory with a handle is charged until the last reference of any kind
 * is gone, on the device of its properties, whatever the driver answers meanwhile. Sparse arrays
 * and multicast objects: virtual_bound.c.
 */
#include "virtual_fixture.h"

#include <pthread.h>

#define SIZE (64 * MIB)

/* -- what is charged -- */

static void create_refused(uint64_t bytes, CUdevice device, CUresult expected)
{
	memory handle = UNTOUCHED;

	CHECK_CUDA(create(&handle, bytes, device), expected);
	CHECK_EQUAL(handle, UNTOUCHED);
}

TEST(created_and_released)
{
	CUmemAllocationProp prop = at(CU_MEM_LOCATION_TYPE_DEVICE, 0);
	memory a, b, handle = UNTOUCHED;

	start("1g");
	a = created(GRANULE);
	b = created(100 * MIB);
	assert_data(102 * MIB);
	create_refused(3 * MIB, 0, CUDA_ERROR_INVALID_VALUE);
	create_refused(0, 0, CUDA_ERROR_INVALID_VALUE);
	create_refused(GRANULE, 1, CUDA_ERROR_INVALID_DEVICE);
	create_refused(GRANULE, -1, CUDA_ERROR_INVALID_DEVICE);
	create_refused(GIB, 0, CUDA_ERROR_OUT_OF_MEMORY);
	create_refused((uint64_t)1 << 62, 0, CUDA_ERROR_OUT_OF_MEMORY);
	create_refused(UINT64_MAX - GRANULE + 1, 0, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_CUDA(cuMemCreate(NULL, GRANULE, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemCreate(&handle, GRANULE, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemCreate(&handle, GRANULE, &prop, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(handle, UNTOUCHED);
	CHECK_CUDA(cuMemFree_v2(b), CUDA_ERROR_INVALID_VALUE);
	assert_data(102 * MIB);
	release(a);
	assert_data(100 * MIB);
	CHECK_CUDA(cuMemRelease(a), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemRelease(0x12345678), CUDA_ERROR_INVALID_VALUE);
	assert_data(100 * MIB);
	release(b);
	assert_data(0);
}

#define PIECES_MAX 512

TEST(to_the_quota)
{
	static memory pieces[PIECES_MAX];
	unsigned count = 0;

	start("1g");
	while (create(&pieces[count], count % 2 ? GRANULE : 2 * GRANULE, 0) == CUDA_SUCCESS)
		CHECK(++count < PIECES_MAX);
	if (create(&pieces[count], GRANULE, 0) == CUDA_SUCCESS)
		count++;
	assert_data((GIB - CONTEXT - HIDDEN) / GRANULE * GRANULE);
	CHECK_AT_MOST(outside_used(0), GIB);
	create_refused(GRANULE, 0, CUDA_ERROR_OUT_OF_MEMORY);
	refused(1);
	release(pieces[0]);
	give(take(2 * GRANULE)); /* the same room for both */
	CHECK_CUDA(create(&pieces[0], 2 * GRANULE, 0), CUDA_SUCCESS);
	refused(1);
	while (count > 0)
		release(pieces[--count]);
	assert_data(0);
}

TEST(on_the_host)
{
	static const unsigned types[] = {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA,
					 CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT};
	CUdeviceptr address;
	memory handle;

	start("600m");
	address = reserve(GIB);
	for (unsigned i = 0; i < sizeof(types) / sizeof(*types); i++) {
		CUmemAllocationProp prop = at(types[i], 0);

		CHECK_CUDA(cuMemCreate(&handle, GIB, &prop, 0), CUDA_SUCCESS); /* not the GPU's */
		map(address, GIB, handle);
		assert_data(0);
		CHECK_EQUAL(retain(address), handle);
		release(handle);
		unmap(address, GIB);
		assert_data(0);
		release(handle);
		assert_data(0);
	}
}

/* Whatever context is current, it is the device of the properties that pays. */
TEST(several_devices)
{
	memory a, b;

	env_set("VGPU_SIM_GPUS", "2x8G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "100m");
	start("1g");
	CHECK_CUDA(create(&a, 100 * MIB, 1), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).data, 0);
	CHECK_EQUAL(ledger_own(1).data, 100 * MIB);
	CHECK_EQUAL(outside_used(1), 100 * MIB);
	create_refused(GRANULE, 1, CUDA_ERROR_OUT_OF_MEMORY);
	b = created(200 * MIB);
	assert_data(200 * MIB);
	CHECK_EQUAL(ledger_used(1), 100 * MIB);
	release(a);
	CHECK_EQUAL(ledger_used(1), 0);
	CHECK_EQUAL(outside_used(1), 0);
	assert_data(200 * MIB);
	release(b);
	assert_data(0);
}

/* It belongs to the process. */
TEST(contexts_end)
{
	CUdeviceptr address;
	memory handle;

	start("1g");
	handle = created(SIZE);
	address = reserve(SIZE);
	map(address, SIZE, handle);
	CHECK_CUDA(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(ledger_own(0).data, SIZE);
	CHECK_EQUAL(ledger_used(0), SIZE);
	CHECK_EQUAL(outside_used(0), SIZE + 3 * MIB); /* which the driver keeps for the process */
	release(handle);
	CHECK_EQUAL(ledger_own(0).data, SIZE);
	unmap(address, SIZE);
	CHECK_EQUAL(ledger_own(0).data, 0);
	CHECK_EQUAL(outside_used(0), 3 * MIB);
	cuda_start(0);
	create_refused(GIB, 0, CUDA_ERROR_OUT_OF_MEMORY);
	release(created(400 * MIB));
	assert_data(0);
}

/* -- references -- */

/* Two handles and two mappings go, in that order: a bit each, set for a mapping. */
static void go_in_order(unsigned order, CUdeviceptr space)
{
	memory handle = created(SIZE);
	unsigned mappings = 0;

	map(space, SIZE, handle);
	map(space + SIZE, SIZE, handle);
	CHECK_EQUAL(retain(space + SIZE + MIB), handle);
	for (unsigned i = 0; i < 4; i++) {
		assert_data(SIZE);
		if (order >> i & 1)
			unmap(space + SIZE * mappings++, SIZE);
		else
			release(handle);
	}
	assert_data(0);
	CHECK_CUDA(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemUnmap(space, SIZE), CUDA_ERROR_INVALID_VALUE);
	assert_data(0);
}

TEST(every_order)
{
	CUdeviceptr space;

	start("1g");
	space = reserve(2 * SIZE);
	for (unsigned order = 0; order < 16; order++)
		if (__builtin_popcount(order) == 2)
			go_in_order(order, space);
}

/* A handle that was released comes back through the mapping; then it is one again. */
TEST(retained)
{
	memory handle = UNTOUCHED;
	CUdeviceptr space;

	start("1g");
	space = reserve(2 * SIZE);
	CHECK_CUDA(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)space),
		   CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(handle, UNTOUCHED);
	handle = created(SIZE);
	map(space, SIZE, handle);
	release(handle);
	for (unsigned round = 0; round < 3; round++) {
		CHECK_EQUAL(retain(space), handle);
		release(handle);
		CHECK_CUDA(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
		assert_data(SIZE);
	}
	CHECK_CUDA(cuMemRetainAllocationHandle(NULL, (void *)(uintptr_t)space),
		   CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(retain(space), handle);
	unmap(space, SIZE);
	assert_data(SIZE);
	map(space + SIZE, SIZE, handle);
	release(handle);
	assert_data(SIZE);
	unmap(space + SIZE, SIZE);
	assert_data(0);
}

/* One call unmaps several mappings, of several memories, and no part of one. */
TEST(unmapped_together)
{
	memory handles[3];
	CUdeviceptr space;

	start("1g");
	space = reserve(32 * MIB);
	for (unsigned i = 0; i < 3; i++)
		handles[i] = created(4 * MIB << i); /* 4, 8, 16: at 0, 4, 12; and 4 again at 28 */
	for (unsigned i = 0; i < 3; i++)
		map(space + 4 * MIB * ((1u << i) - 1), 4 * MIB << i, handles[i]);
	map(space + 28 * MIB, 4 * MIB, handles[0]);
	for (unsigned i = 0; i < 3; i++)
		release(handles[i]);
	CHECK_CUDA(cuMemUnmap(space, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemUnmap(space + 2 * MIB, 10 * MIB), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemUnmap(space, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_CUDA(cuMemMap(space, 4 * MIB, 0, handles[0], 0), CUDA_ERROR_INVALID_VALUE);
	assert_data(28 * MIB);
	unmap(space, 12 * MIB);
	assert_data(20 * MIB); /* the first is mapped at the end as well */
	unmap(space + 12 * MIB, 20 * MIB);
	assert_data(0);
}

/* -- the driver refuses -- */

/* Nothing is charged for what was not made, and nothing lost of what did not go. */
TEST(refused_by_the_driver)
{
	CUdeviceptr space;
	memory handle;

	env_set("VGPU_SIM_FAULTS",
		"cuMemCreate@1=2,cuMemMap@1=999,cuMemUnmap@1=999,cuMemRelease@1=999,"
		"cuMemRelease@3=999,cuMemRetainAllocationHandle@1=999");
	start("1g");
	create_refused(SIZE, 0, CUDA_ERROR_OUT_OF_MEMORY);
	assert_data(0);
	handle = created(SIZE);
	space = reserve(2 * SIZE);
	CHECK_CUDA(cuMemMap(space, SIZE, 0, handle, 0), CUDA_ERROR_UNKNOWN);
	CHECK_CUDA(cuMemMap(space, SIZE / 2, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_data(SIZE);
	CHECK_CUDA(cuMemRelease(handle), CUDA_ERROR_UNKNOWN);
	assert_data(SIZE);
	map(space, SIZE, handle);
	CHECK_CUDA(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)space),
		   CUDA_ERROR_UNKNOWN);
	release(handle);
	assert_data(SIZE);
	CHECK_CUDA(cuMemUnmap(space, SIZE), CUDA_ERROR_UNKNOWN);
	assert_data(SIZE);
	CHECK_EQUAL(retain(space), handle);
	unmap(space, SIZE);
	assert_data(SIZE);
	CHECK_CUDA(cuMemRelease(handle), CUDA_ERROR_UNKNOWN);
	assert_data(SIZE);
	release(handle);
	assert_data(0);
}

/* -- threads -- */

#define THREADS 4
#define HELD    6
#define STEPS   4000

struct held {
	memory handle; /* 0: released, or none */
	CUdeviceptr space;
	uint64_t bytes;
	unsigned mappings;
};

/* Does something at random to it; makes it if there is nothing. */
static void step(struct held *held, unsigned *seed)
{
	if (!held->handle && !held->mappings) {
		held->bytes = (1 + (unsigned)rand_r(seed) % 32) * GRANULE;
		if (create(&held->handle, held->bytes, 0) != CUDA_SUCCESS)
			held->handle = 0;
		return;
	}
	switch ((unsigned)rand_r(seed) % 3) {
	case 0:
		if (held->handle && held->mappings < 2)
			map(held->space + held->bytes * held->mappings++, held->bytes,
			    held->handle);
		break;
	case 1:
		if (held->handle)
			release(held->handle);
		held->handle = held->handle ? 0 : retain(held->space);
		break;
	default:
		if (held->mappings)
			unmap(held->space, held->bytes * held->mappings);
		held->mappings = 0;
	}
}

static void *work(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	struct held held[HELD] = {0};

	for (unsigned i = 0; i < HELD; i++)
		held[i].space = reserve(128 * MIB);
	for (unsigned i = 0; i < STEPS; i++)
		step(&held[(unsigned)rand_r(&seed) % HELD], &seed);
	for (unsigned i = 0; i < HELD; i++) {
		if (held[i].handle)
			release(held[i].handle);
		if (held[i].mappings)
			unmap(held[i].space, held[i].bytes * held[i].mappings);
	}
	return NULL;
}

TEST(threads)
{
	pthread_t workers[THREADS];
	struct figures seen;

	start("1g");
	outside_watch(0);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&workers[i], NULL, work, (void *)i) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK(pthread_join(workers[i], NULL) == 0);
	seen = outside_watched();
	CHECK_AT_MOST(seen.used, GIB);
	CHECK_AT_MOST(GIB / 2, seen.used); /* how near it, is a matter of chance */
	assert_data(0);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
}

/* The driver refuses a range that nothing fills at once, and so do we, however long it is. */
TEST(unmapped_nowhere)
{
	CUdeviceptr space;
	memory handle;

	start("1g");
	handle = created(2 * MIB);
	space = reserve(2 * MIB);
	map(space, 2 * MIB, handle);
	release(handle);
	for (unsigned i = 0; i < 100; i++) {
		CHECK_CUDA(cuMemUnmap(0, (size_t)1 << 55), CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(cuMemUnmap(space, (size_t)1 << 55), CUDA_ERROR_INVALID_VALUE);
		CHECK_CUDA(cuMemUnmap(space, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
	}
	assert_data(2 * MIB);
	unmap(space, 2 * MIB);
	assert_data(0);
}
