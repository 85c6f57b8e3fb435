/* Pools of every kind: the default one, the current one, an application's own, of managed memory
 * and of the host's; made, destroyed, and on a driver that lacks part of it. */
#include "stream_acts.h"

#include <string.h>

#include "parked.h"

static void refused_from(CUmemoryPool pool, uint64_t bytes)
{
	CUdeviceptr address = UNTOUCHED;

	CHECK_EQUAL(cuMemAllocFromPoolAsync(&address, bytes, pool, stream),
		    CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(address, UNTOUCHED);
}

static void destroy(CUmemoryPool pool)
{
	CHECK_OK(cuMemPoolDestroy(pool));
}

/* -- rows of calls ---------------------------------------------------------------------------- */

static ACT(set_device, cuDeviceSetMemPool(0, pools[call->in]));

static CUresult set_location(const struct act_call *call)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};

	return cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pools[call->in]);
}

static CUresult check_reserved(const struct act_call *call)
{
	cuuint64_t bytes = 0;
	CUresult result = cuMemPoolGetAttribute(pools[call->in],
						CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);

	CHECK_EQUAL(bytes, call->size * MIB);
	return result;
}

/* clang-format off */
#define SET_DEVICE(pool)    {set_device, NONE, pool, 0, 0}
#define SET_LOCATION(pool)  {set_location, NONE, pool, 0, 0}
#define RESERVES(pool, mib) {check_reserved, NONE, pool, 0, mib}

/* P is made the device's pool, the default pool, P again, and then P is destroyed. */
#define CURRENT_POOL(row, set)                                                             \
	{row, "2g", .acts = {                                                              \
		{MAKE_POOL(P), 0}, {TAKE_ASYNC(A, 30), COVERED},                           \
		{set(P), COVERED}, {TAKE_ASYNC(B, 1000), COVERED}, {RESERVES(P, 1024), COVERED}, \
		{TAKE_ASYNC(D, 500), COVERED, NO_ROOM},                                    \
		{set(STANDARD), COVERED}, {TAKE_ASYNC(C, 30), COVERED},                    \
		{RESERVES(STANDARD, 64), COVERED}, {SYNCHRONISE, 1088},                    \
		{set(P), 1088}, {GIVE_ASYNC(B), COVERED}, {SYNCHRONISE, 64},               \
		{DESTROY_POOL(P), 64}, {TAKE_ASYNC(B, 30), COVERED},                       \
		{RESERVES(STANDARD, 96), COVERED}, {TAKE_ASYNC(D, 1500), COVERED, NO_ROOM}, \
		{GIVE_ASYNC(A), COVERED}, {GIVE_ASYNC(B), COVERED}, {GIVE_ASYNC(C), COVERED}, \
		{SYNCHRONISE, 0}}}

static const struct acts own_pools[] = {
	{"explicit_pool", "2g", .acts = {
		{MAKE_POOL(P), 0}, {MAKE_POOL(Q), 0}, {MAKE_POOL(R), 0},
		{TAKE_FROM(P, A, 100), COVERED}, {TAKE_FROM(Q, B, 100), COVERED},
		{TAKE_FROM(R, C, 100), COVERED}, {SYNCHRONISE, 3 * 128},
		{TAKE_FROM(P, D, 1200), COVERED, NO_ROOM}, {TAKE_ASYNC(D, 1200), COVERED, NO_ROOM},
		{GIVE_ASYNC(B), COVERED}, {SYNCHRONISE, 2 * 128},
		{GIVE_ASYNC(A), COVERED}, {GIVE_ASYNC(C), COVERED}, {SYNCHRONISE, 0},
		{DESTROY_POOL(P), 0}, {DESTROY_POOL(Q), 0}, {DESTROY_POOL(R), 0}}},
	CURRENT_POOL("current_pool_of_device", SET_DEVICE),
	CURRENT_POOL("current_pool_of_location", SET_LOCATION),
	/* What is allocated in a pool stays charged when the pool is destroyed, until it is freed
	 * and a comparison with NVML has found that. */
	{"destroyed_with_allocations", "8g", .acts = {
		{MAKE_POOL(P), 0}, {TAKE_FROM(P, A, 500), COVERED}, {DESTROY_POOL(P), COVERED},
		{TAKE(B, 7300), COVERED, NO_ROOM}, {SYNCHRONISE, COVERED}, {GIVE_ASYNC(A), COVERED},
		{SYNCHRONISE, COVERED}, {LOOK, COVERED}, {TAKE(B, 7300), 7300}, {GIVE(B), 0}}},
	/* A pool that the driver does not destroy stays charged. */
	{"not_destroyed", "4g", .faults = "cuMemPoolDestroy@2=999", .acts = {
		{TAKE_ASYNC(A, 500), COVERED}, {SYNCHRONISE, 512},
		{DESTROY_POOL(STANDARD), COVERED, INVALID},
		{TAKE_ASYNC(B, 3 * 1024 + 200), COVERED, NO_ROOM}, {SYNCHRONISE, 512},
		{GIVE_ASYNC(A), COVERED}, {MAKE_POOL(P), COVERED}, {TAKE_FROM(P, A, 500), COVERED},
		{DESTROY_POOL(P), COVERED, UNKNOWN}, {TAKE_FROM(P, B, 3200), COVERED, NO_ROOM},
		{GIVE_ASYNC(A), COVERED}, {SYNCHRONISE, 0}, {DESTROY_POOL(P), 0},
		{DESTROY_POOL(Q), 0, INVALID}}},
	/* The driver fails once to say which its pools are: that allocation fails, and no other. */
	{"default_not_said", "2g", .faults = "cuDeviceGetDefaultMemPool@2=999", .acts = {
		{TAKE_ASYNC(A, 500), 0, UNKNOWN}, {TAKE_ASYNC(A, 500), COVERED},
		{TAKE_ASYNC(B, 1100), COVERED, NO_ROOM}, {GIVE_ASYNC(A), COVERED}}},
	{"current_not_said", "2g", .faults = "cuDeviceGetMemPool@1=999", .acts = {
		{TAKE_ASYNC(A, 500), 0, UNKNOWN}, {TAKE_ASYNC(A, 500), COVERED},
		{TAKE_ASYNC(B, 1100), COVERED, NO_ROOM}, {GIVE_ASYNC(A), COVERED}}},
	/* The driver does not say what a pool has: allocations succeed while NVML's figure leaves
	 * room. */
	{"no_figures_when_full", "2g", .faults = "cuMemPoolGetAttribute=999", .acts = {
		{TAKE_ASYNC(A, 800), UNCHECKED}, {TAKE_ASYNC(B, 500), UNCHECKED},
		{TAKE_ASYNC(C, 500), UNCHECKED, NO_ROOM}, {GIVE_ASYNC(A), UNCHECKED},
		{GIVE_ASYNC(B), UNCHECKED}}},
	{"no_figures", "4g", .faults = "cuMemPoolGetAttribute=999", .acts = {
		{TAKE_ASYNC(A, 500), UNCHECKED}, {LOOK, COVERED}, {TAKE(B, 3200), COVERED, NO_ROOM},
		{GIVE_ASYNC(A), COVERED}, {SYNCHRONISE, COVERED}, {LOOK, COVERED},
		{TAKE(B, 3200), 3200}, {GIVE(B), 0}}},
};
TEST_TABLE(own_pools, play);
/* clang-format on */

/* -- whose memory it is -- */

/* Managed memory is in no process's figure, and the driver keeps it until the pool is destroyed. */
TEST(managed_pool)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUmemoryPool pool, by_default;
	uint64_t bare;
	CUdeviceptr a, b;

	start("2g");
	bare = outside_used(0);
	pool = pool_on(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, 0);
	a = take_from(pool, 300 * MIB);
	b = take_from(pool, 300 * MIB);
	synchronise(stream);
	CHECK_AT_MOST(outside_used(0) - bare, ledger_own(0).data);
	refused_from(pool, 1000 * MIB);
	refused(920 * MIB);
	give_async(a, stream);
	give_async(b, stream);
	synchronise(stream);
	CHECK_AT_MOST(600 * MIB, outside_used(0) - bare);
	CHECK_AT_MOST(outside_used(0) - bare, ledger_own(0).data);
	refused(1300 * MIB);
	destroy(pool);
	assert_data(0);
	pool = pool_on(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, 0);
	give_async(take_from(pool, 600 * MIB), stream); /* over before anybody looks */
	synchronise(stream);
	CHECK_EQUAL(outside_used(0) - bare, 608 * MIB);
	CHECK_AT_MOST(608 * MIB, ledger_own(0).data);
	destroy(pool);
	assert_data(0);
	CHECK_OK(cuMemGetDefaultMemPool(&by_default, &location, CU_MEM_ALLOCATION_TYPE_MANAGED));
	a = take_from(by_default, 600 * MIB);
	CHECK_AT_MOST(outside_used(0) - bare, ledger_own(0).data);
	refused_from(by_default, 1000 * MIB);
	give_async(a, stream);
}

/* The application sets the marks back before anybody has read them. */
TEST(managed_pool_marks_reset)
{
	CUmemoryPool pool;
	uint64_t bare, zero = 0;

	start("2g");
	bare = outside_used(0);
	pool = pool_on(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, 0);
	give(take_from(pool, 600 * MIB));
	CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
	CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	synchronise(stream);
	CHECK_EQUAL(outside_used(0) - bare, 608 * MIB);
	CHECK_AT_MOST(608 * MIB, ledger_own(0).data);
	refused(1000 * MIB);
	destroy(pool);
	assert_data(0);
}

static CUmemoryPool marked;

static CUresult reset_mark(void)
{
	uint64_t zero = 0;

	return cuMemPoolSetAttribute(marked, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero);
}

static DRIVER_CALL(trim_marked, cuMemPoolTrimTo(marked, 0));

/* Starts CUDA with that call parked, and makes the pool. Returns what the device holds. */
static uint64_t start_marked(const char *rule)
{
	park(rule);
	start("2g");
	marked = pool_on(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, 0);
	return outside_used(0);
}

/* The pool holds what 600 MiB took, and so much is charged. */
static void check_marked(uint64_t bare)
{
	CHECK_EQUAL(outside_used(0) - bare, 608 * MIB);
	CHECK_AT_MOST(608 * MIB, ledger_own(0).data);
	refused(1300 * MIB);
	destroy(marked);
	assert_data(0);
}

/* The driver has trimmed the pool, and the application resets the mark before it is read. */
TEST(managed_pool_mark_reset_in_trim)
{
	uint64_t bare = start_marked("cuMemPoolTrimTo@1:done");
	struct call call;

	give_async(take_from(marked, 600 * MIB), stream);
	begin_call(&call, trim_marked);
	CHECK_OK(reset_mark());
	CHECK_OK(end_call(&call));
	check_marked(bare);
}

/* An allocation does not wait for the reset for ever. While that is in the driver, the pool grows
 * and is trimmed. */
static void reset_while_growing(const char *rule)
{
	uint64_t bare = start_marked(rule);
	struct call call;

	begin_call(&call, reset_mark);
	give_async(take_from(marked, 600 * MIB), stream);
	CHECK_OK(trim_marked());
	synchronise(stream);
	CHECK_OK(end_call(&call));
	synchronise(stream);
	check_marked(bare);
}

TEST(managed_pool_grows_before_reset)
{
	reset_while_growing("cuMemPoolSetAttribute@1");
}

TEST(managed_pool_grows_after_reset)
{
	reset_while_growing("cuMemPoolSetAttribute@1:done");
}

static DRIVER_CALL(take_marked,
		   cuMemAllocFromPoolAsync(&(CUdeviceptr){0}, 600 * MIB, marked, stream));

/* A reset does not wait for ever for an allocation. */
static void reset_while_allocating(const char *rule)
{
	uint64_t bare = start_marked(rule);
	struct call call;

	begin_call(&call, take_marked);
	CHECK_OK(reset_mark());
	CHECK_OK(trim_marked());
	CHECK_OK(end_call(&call));
	synchronise(stream);
	CHECK_EQUAL(outside_used(0) - bare, 608 * MIB);
	CHECK_AT_MOST(608 * MIB, ledger_own(0).data);
	refused(1300 * MIB);
}

TEST(managed_pool_mark_reset_before_growth)
{
	reset_while_allocating("cuMemAllocFromPoolAsync@1");
}

TEST(managed_pool_mark_reset_after_growth)
{
	reset_while_allocating("cuMemAllocFromPoolAsync@1:done");
}

/* An allocation that was over before the reset is charged for what it took. */
TEST(managed_pool_mark_reset_in_turn)
{
	start("2g");
	marked = pool_on(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, 0);
	for (unsigned i = 0; i < 10; i++) {
		give_async(take_from(marked, 100 * MIB), stream);
		CHECK_OK(reset_mark());
	}
	synchronise(stream);
	CHECK_EQUAL(ledger_own(0).data, 128 * MIB);
	destroy(marked);
	assert_data(0);
}

static void *reset_often(void *done)
{
	while (!__atomic_load_n((bool *)done, __ATOMIC_ACQUIRE))
		CHECK_OK(reset_mark());
	return NULL;
}

/* Resets at the same time as allocations and looks do not add up. */
TEST(managed_pool_mark_reset_often)
{
	pthread_t thread;
	bool done = false;

	start("2g");
	marked = pool_on(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, 0);
	CHECK(pthread_create(&thread, NULL, reset_often, &done) == 0);
	for (unsigned i = 0; i < 300; i++) {
		give_async(take_from(marked, 100 * MIB), stream);
		synchronise(stream);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
	CHECK(pthread_join(thread, NULL) == 0);
	synchronise(stream);
	CHECK_EQUAL(ledger_own(0).data, 128 * MIB);
	destroy(marked);
	assert_data(0);
}

/* It counts although no context says on which device. */
TEST(managed_pool_without_context)
{
	CUmemoryPool pool;
	CUcontext context;
	CUdeviceptr a;

	start("2g");
	CHECK_OK(cuCtxPopCurrent_v2(&context));
	pool = pool_on(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_INVALID, 0);
	CHECK_OK(cuCtxPushCurrent_v2(context));
	a = take_from(pool, 600 * MIB);
	synchronise(stream);
	CHECK_AT_MOST(600 * MIB, ledger_own(0).data);
	refused_from(pool, 1000 * MIB);
	give_async(a, stream);
	synchronise(stream);
	destroy(pool);
	assert_data(0);
}

static CUmemoryPool managed_by_default(unsigned location_type)
{
	CUmemLocation location = {location_type, 0};
	CUmemoryPool pool = NULL, now = NULL;

	CHECK_OK(cuMemGetMemPool(&pool, &location, CU_MEM_ALLOCATION_TYPE_MANAGED));
	CHECK_OK(cuMemGetDefaultMemPool(&now, &location, CU_MEM_ALLOCATION_TYPE_MANAGED));
	CHECK(pool == now);
	return pool;
}

/* It may move to the device from wherever its pool is. */
TEST(managed_pool_elsewhere)
{
	static const unsigned locations[] = {CU_MEM_LOCATION_TYPE_HOST,
					     CU_MEM_LOCATION_TYPE_HOST_NUMA,
					     CU_MEM_LOCATION_TYPE_INVALID};
	CUmemoryPool pool;

	start("2g");
	for (unsigned i = 0; i < 3; i++) {
		pool = pool_on(CU_MEM_ALLOCATION_TYPE_MANAGED, locations[i], 0);
		give_async(take_from(pool, 600 * MIB), stream);
		refused_from(pool, 1600 * MIB);
		CHECK_AT_MOST(600 * MIB, ledger_own(0).data);
		synchronise(stream);
		destroy(pool);
		assert_data(0);
	}
	for (unsigned i = 0; i < 3; i++) {
		pool = managed_by_default(locations[i]);
		refused_from(pool, 2000 * MIB);
		take_from(pool, 100 * MIB);
		CHECK_AT_MOST((i + 1) * 100 * MIB, ledger_own(0).data);
	}
}

/* Memory of the host is not the slice's affair, however much it is. */
TEST(host_pool)
{
	static const unsigned locations[] = {CU_MEM_LOCATION_TYPE_HOST,
					     CU_MEM_LOCATION_TYPE_HOST_NUMA};

	start("600m");
	for (unsigned i = 0; i < 2; i++) {
		CUmemoryPool pool = pool_on(CU_MEM_ALLOCATION_TYPE_PINNED, locations[i], 0);
		CUdeviceptr address = take_from(pool, 700 * MIB);

		assert_data(0);
		give_async(address, stream);
		synchronise(stream);
		destroy(pool);
		assert_data(0);
	}
}

/* The pool's device counts, not the stream's or the context's. */
TEST(two_devices)
{
	CUcontext contexts[2];
	CUstream streams[2];
	CUmemoryPool pool;
	CUdeviceptr a, b = UNTOUCHED, c;

	env_set("VGPU_SIM_GPUS", "2x80G");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_1", "1g");
	streams[0] = stream_start("4g");
	CHECK_OK(cuCtxGetCurrent(&contexts[0]));
	contexts[1] = cuda_start(1);
	give(take(1));
	CHECK_OK(cuStreamCreate(&streams[1], NON_BLOCKING));
	a = take_async(200 * MIB, streams[0]); /* while the other one's context is current */
	CHECK_EQUAL(ledger_own(0).data >= 224 * MIB, true);
	CHECK_EQUAL(ledger_own(1).data, 0);
	refused_async(500 * MIB, streams[1]);
	pool = pool_on(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 1);
	CHECK_OK(cuCtxSetCurrent(contexts[0]));
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&b, 500 * MIB, pool, streams[0]),
		    CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(b, UNTOUCHED);
	CHECK_OK(cuMemAllocFromPoolAsync(&b, 300 * MIB, pool, streams[0]));
	c = take_async(100 * MIB, NULL);
	synchronise(streams[0]);
	CHECK_EQUAL(ledger_own(0).data, 320 * MIB);
	CHECK_EQUAL(ledger_own(1).data, 320 * MIB);
	give_async(a, streams[0]);
	give_async(b, streams[0]);
	give_async(c, NULL);
	CHECK_OK(cuCtxSynchronize());
	CHECK_EQUAL(ledger_own(0).data, 0);
	CHECK_EQUAL(ledger_own(1).data, 0);
	destroy(pool);
}

/* -- pools that end -- */

/* Nothing lives in it, but the work that uses it is not over: it is held until somebody waits. */
TEST(destroyed_before_it_is_over)
{
	CUmemoryPool pool;
	CUfunction spin;

	start("8g");
	spin = spin_load();
	pool = device_pool();
	busy(spin, 200 * MS, stream);
	give_async(take_from(pool, 500 * MIB), stream);
	destroy(pool);
	assert_covered();
	synchronise(stream);
	sleep_ms(1100);
	give(take(7300 * MIB));
	assert_books(0);
}

TEST(destroyed_empty)
{
	start("8g");
	for (unsigned i = 0; i < 600; i++) { /* more than there may be at a time */
		CUmemoryPool pool = device_pool();

		give_async(take_from(pool, 500 * MIB), stream);
		if (i % 2)
			synchronise(stream);
		destroy(pool);
		assert_covered();
	}
	sleep_ms(1100);
	give(take(7300 * MIB));
	assert_data(0);
}

TEST(too_many)
{
	CUmemPoolProps properties = POOL_OF_GPU_0;
	static CUmemoryPool many[300];
	unsigned count = 0;

	start("2g");
	while (count < 300 && cuMemPoolCreate(&many[count], &properties) == CUDA_SUCCESS)
		count++;
	CHECK(count >= 200 && count < 300);
	CHECK(many[count] == NULL);
	CHECK_EQUAL(cuMemPoolCreate(&many[count], &properties), CUDA_ERROR_OUT_OF_MEMORY);
	give_async(take_from(many[count - 1], MIB), stream);
	while (count > 0)
		destroy(many[--count]);
	many[0] = device_pool();
	give_async(take_from(many[0], MIB), stream);
	synchronise(stream);
	assert_data(0);
}

TEST(create_rejected)
{
	CUmemPoolProps wrong = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
	CUmemoryPool pool = (CUmemoryPool)UNTOUCHED;

	start("1g");
	CHECK_EQUAL(cuMemPoolCreate(&pool, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemPoolCreate(NULL, &wrong), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemPoolCreate(&pool, &wrong), CUDA_ERROR_INVALID_VALUE);
	CHECK(pool == (CUmemoryPool)UNTOUCHED);
	CHECK_EQUAL(cuDeviceSetMemPool(0, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemSetMemPool(NULL, CU_MEM_ALLOCATION_TYPE_PINNED, standard),
		    CUDA_ERROR_INVALID_VALUE);
	assert_data(0);
}

/* -- faults -- */

/* What the driver refuses costs nothing, whatever it says. */
TEST(refusals_cost_nothing)
{
	CUdeviceptr address = UNTOUCHED, held;

	env_set("VGPU_SIM_FAULTS", "cuMemAllocAsync=999,cuMemAllocAsync_ptsz=2,"
				   "cuMemAllocFromPoolAsync@1=700,"
				   "cuMemAllocFromPoolAsync_ptsz=999,cuMemFreeAsync@1=999,"
				   "cuMemPoolTrimTo@1=999,cuStreamSynchronize@1=999,"
				   "cuEventSynchronize=700,cuCtxSynchronize@1=999");
	start("4g");
	CHECK_EQUAL(cuMemAllocAsync(&address, 100 * MIB, stream), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuMemAllocAsync_ptsz(&address, 100 * MIB, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&address, 100 * MIB, standard, stream), 700);
	CHECK_EQUAL(cuMemAllocFromPoolAsync_ptsz(&address, 100 * MIB, standard, stream),
		    CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(address, UNTOUCHED);
	CHECK_OK(cuStreamSynchronize_ptsz(stream));
	assert_data(0);
	held = take_from(standard, 100 * MIB);
	CHECK_EQUAL(cuMemFreeAsync(held, stream), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuStreamSynchronize(stream), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuMemPoolTrimTo(standard, 0), CUDA_ERROR_UNKNOWN);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
	assert_covered();
	synchronise(stream);
	assert_data(128 * MIB);
	give_async(held, stream);
	synchronise(stream);
	assert_data(0);
}

/* A driver from before these came. */
TEST(old_driver)
{
	CUmemoryPool pool;
	CUdeviceptr held;

	env_set("VGPU_SIM_MISSING",
		"cuMemGetDefaultMemPool,cuMemSetMemPool,cuMemGetMemPool,cuCtxSynchronize_v2,"
		"cuThreadExchangeStreamCaptureMode,cuDeviceGetGraphMemAttribute,"
		"cuDeviceGraphMemTrim,cuGraphInstantiateWithParams,cuGraphUpload");
	start("2g");
	held = take_async(500 * MIB, stream);
	pool = device_pool();
	give_async(take_from(pool, 100 * MIB), stream);
	refused_async(1500 * MIB, stream);
	synchronise(stream);
	assert_data(512 * MIB);
	give_async(held, stream);
	CHECK_OK(cuCtxSynchronize());
	destroy(pool);
	assert_data(0);
}
