/*
 * Virtual memory management: memory with a handle is charged until the last reference of any kind
 * is gone, on the device of its properties, whatever the driver answers meanwhile. Sparse arrays
 * and multicast objects: virtual_bound.c.
 */
#include "parked.h"
#include "virtual_fixture.h"

#define SIZE (64 * MIB)

/* -- rows of calls ----------------------------------------------------------------------------- */

/* clang-format off */
#define MOST (((uint64_t)1 << 44) - 2) /* MiB: the most whole granules of a 64-bit size */

/* Memory of the host costs the slice nothing, however much it is. */
#define OF_HOST(row, type)                                                               \
	{row, "600m", .acts = {                                                          \
		{CREATE_IN(type, A, 1024), 0}, {MAP(A, 0, 1024), 0}, {RETAIN(A, 0), 0},  \
		{RELEASE(A), 0}, {UNMAP(0, 1024), 0}, {RELEASE(A), 0}}}

/* Memory has two handles and two mappings. They end in some order: a, b, c, d. */
#define IN_ORDER(row, a, b, c, d)                                                        \
	{row, .acts = {                                                                  \
		{CREATE(A, 64), 64}, {MAP(A, 0, 64), 64}, {MAP(A, 64, 64), 64},          \
		{RETAIN(A, 65), 64}, {a, 64}, {b, 64}, {c, 64}, {d, 0},                  \
		{RELEASE(A), 0, INVALID}, {UNMAP(0, 64), 0, INVALID}}}

static const struct acts charged[] = {
	{"created_and_released", .acts = {
		{CREATE(A, 2), 2}, {CREATE(B, 100), 102},
		{CREATE(C, 3), 102, INVALID}, {CREATE(C, 0), 102, INVALID},
		{CREATE(C, 1024), 102, NO_ROOM}, {CREATE(C, MOST), 102, NO_ROOM},
		{CREATE(C, (uint64_t)1 << 42), 102, NO_ROOM},
		{RELEASE(A), 100}, {RELEASE(A), 100, INVALID}, {RELEASE(B), 0}}},
	OF_HOST("of_host", HOST),
	OF_HOST("of_host_numa", HOST_NUMA),
	OF_HOST("of_host_numa_current", HOST_NUMA_CURRENT),
	IN_ORDER("handles_first", RELEASE(A), RELEASE(A), UNMAP(0, 64), UNMAP(64, 64)),
	IN_ORDER("mappings_first", UNMAP(0, 64), UNMAP(64, 64), RELEASE(A), RELEASE(A)),
	IN_ORDER("handles_between", UNMAP(0, 64), RELEASE(A), RELEASE(A), UNMAP(64, 64)),
	IN_ORDER("mappings_between", RELEASE(A), UNMAP(0, 64), UNMAP(64, 64), RELEASE(A)),
	IN_ORDER("alternately_handle_first", RELEASE(A), UNMAP(0, 64), RELEASE(A), UNMAP(64, 64)),
	IN_ORDER("alternately_mapping_first", UNMAP(0, 64), RELEASE(A), UNMAP(64, 64), RELEASE(A)),
	/* A handle that was released comes back through the mapping; then it is one again. */
	{"retained", .acts = {
		{RETAIN(A, 0), 0, INVALID}, {CREATE(A, 64), 64}, {MAP(A, 0, 64), 64},
		{RELEASE(A), 64}, {RETAIN(A, 0), 64}, {RELEASE(A), 64}, {RELEASE(A), 64, INVALID},
		{RETAIN(A, 0), 64}, {RELEASE(A), 64}, {RELEASE(A), 64, INVALID},
		{RETAIN(A, 0), 64}, {UNMAP(0, 64), 64}, {MAP(A, 64, 64), 64}, {RELEASE(A), 64},
		{UNMAP(64, 64), 0}}},
	/* One call unmaps several mappings, of several memories, and no part of one. */
	{"unmapped_together", .acts = {
		{CREATE(A, 4), 4}, {MAP(A, 0, 4), 4}, {MAP(A, 28, 4), 4}, {RELEASE(A), 4},
		{CREATE(B, 8), 12}, {MAP(B, 4, 8), 12}, {RELEASE(B), 12},
		{CREATE(C, 16), 28}, {MAP(C, 12, 16), 28}, {RELEASE(C), 28},
		{UNMAP(0, 8), 28, INVALID}, {UNMAP(2, 10), 28, INVALID}, {UNMAP(0, 0), 28, INVALID},
		{MAP(A, 0, 4), 28, INVALID}, {UNMAP(0, 12), 20}, {UNMAP(12, 20), 0}}},
	/* Nothing is charged for memory that the driver did not make, and memory stays charged that
	 * the driver did not let go of. */
	{"refused_by_the_driver",
	 .faults = "cuMemCreate@1=2,cuMemMap@1=999,cuMemUnmap@1=999,cuMemRelease@1=999,"
		   "cuMemRelease@3=999,cuMemRetainAllocationHandle@1=999",
	 .acts = {
		{CREATE(A, 64), 0, NO_ROOM}, {CREATE(A, 64), 64}, {MAP(A, 0, 64), 64, UNKNOWN},
		{MAP(A, 0, 32), 64, CUDA_ERROR_NOT_SUPPORTED}, {RELEASE(A), 64, UNKNOWN},
		{MAP(A, 0, 64), 64}, {RETAIN(A, 0), 64, UNKNOWN}, {RELEASE(A), 64},
		{UNMAP(0, 64), 64, UNKNOWN}, {RETAIN(A, 0), 64}, {UNMAP(0, 64), 64},
		{RELEASE(A), 64, UNKNOWN}, {RELEASE(A), 0}}},
};
TEST_TABLE(charged, play);
/* clang-format on */

/* -- arguments, and other devices ------------------------------------------------------------- */

static void create_refused(uint64_t bytes, CUdevice device, CUresult expected)
{
	memory handle = UNTOUCHED;

	CHECK_EQUAL(create(&handle, bytes, device), expected);
	CHECK_EQUAL(handle, UNTOUCHED);
}

TEST(wrong_arguments)
{
	CUmemAllocationProp prop = at(CU_MEM_LOCATION_TYPE_DEVICE, 0);
	memory handle = UNTOUCHED;
	CUdeviceptr address;

	start("1g");
	create_refused(GRANULE, 1, CUDA_ERROR_INVALID_DEVICE);
	create_refused(GRANULE, -1, CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(cuMemCreate(NULL, GRANULE, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemCreate(&handle, GRANULE, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemCreate(&handle, GRANULE, &prop, 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(handle, UNTOUCHED);
	CHECK_EQUAL(cuMemRelease(0x12345678), CUDA_ERROR_INVALID_VALUE);
	assert_data(0);
	address = reserve(GRANULE);
	handle = created(GRANULE);
	CHECK_EQUAL(cuMemFree_v2(handle), CUDA_ERROR_INVALID_VALUE);
	map(address, GRANULE, handle);
	CHECK_EQUAL(cuMemRetainAllocationHandle(NULL, (void *)(uintptr_t)address),
		    CUDA_ERROR_INVALID_VALUE);
	release(handle);
	unmap(address, GRANULE);
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
	CHECK_OK(create(&pieces[0], 2 * GRANULE, 0));
	refused(1);
	while (count > 0)
		release(pieces[--count]);
	assert_data(0);
}

/* Whatever context is current, it is the device of the properties that pays. */
TEST(several_devices)
{
	memory a, b;

	env_set("VGPU_SIM_GPUS", "2x8G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "100m");
	start("1g");
	CHECK_OK(create(&a, 100 * MIB, 1));
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
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
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

/* The driver refuses a range that nothing fills at once, and so do we, however long it is. */
TEST(unmapped_nowhere)
{
	memory handle;

	start("1g");
	handle = created(2 * MIB);
	space = reserve(2 * MIB);
	map(space, 2 * MIB, handle);
	release(handle);
	for (unsigned i = 0; i < 100; i++) {
		CHECK_EQUAL(cuMemUnmap(0, (size_t)1 << 55), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemUnmap(space, (size_t)1 << 55), CUDA_ERROR_INVALID_VALUE);
		CHECK_EQUAL(cuMemUnmap(space, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
	}
	assert_data(2 * MIB);
	unmap(space, 2 * MIB);
	assert_data(0);
}

/* -- a call takes long -- */

static memory parting;
static struct call releasing;

static DRIVER_CALL(release_it, cuMemRelease(parting));

/* Memory of 2 MiB, which another thread is about to release: its call has come to the driver. */
static void begin_release(bool mapped)
{
	park("cuMemRelease");
	start("1g");
	parting = created(2 * MIB);
	space = reserve(2 * MIB);
	if (mapped)
		map(space, 2 * MIB, parting);
	begin_call(&releasing, release_it);
}

TEST(unmapped_while_released)
{
	begin_release(true);
	unmap(space, 2 * MIB);
	assert_data(2 * MIB);
	CHECK_OK(end_call(&releasing));
	assert_data(0);
}

TEST(mapped_while_released)
{
	begin_release(false);
	map(space, 2 * MIB, parting);
	assert_data(2 * MIB);
	CHECK_OK(end_call(&releasing));
	assert_data(2 * MIB);
	unmap(space, 2 * MIB);
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
	uint64_t peak;

	start("1g");
	outside_peak_begin(0);
	threads_join(threads_start(THREADS, work));
	peak = outside_peak(0);
	CHECK_AT_MOST(peak, GIB);
	CHECK_AT_MOST(GIB / 2, peak); /* how near it, is a matter of chance */
	assert_data(0);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
}
