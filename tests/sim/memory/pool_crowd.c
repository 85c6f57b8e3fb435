/* Pools of several processes and threads in one slice: together they never pass its limit. */
#include "stream_api.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

#define THREADS   6
#define PROCESSES 3
#define HELD_MAX  6
#define RUN_MS    1500

#define ROUNDS_MOST 20 /* on a busy machine: until they were at the limit, and were seen there */

static CUcontext context;
static uint64_t refusals; /* atomic, of this process */
static pthread_barrier_t together;

static void threshold_set(uint64_t bytes)
{
	CUmemoryPool pool;

	CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
	CHECK_OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

/* -- two processes -- */

/* Keeps, then gives back by a synchronisation; keeps again, and gives back by a trim. */
static void keeper(int wire)
{
	CUstream stream = stream_start("4g");
	CUmemoryPool pool;

	for (unsigned round = 0; round < 2; round++) {
		CUdeviceptr held = take_async(2 * GIB, stream);

		threshold_set(round ? UINT64_MAX : 0);
		say_ready(wire);
		give_async(held, stream);
		if (round)
			synchronise(stream);
		say_ready(wire);
		CHECK_OK(cuDeviceGetDefaultMemPool(&pool, 0));
		if (round)
			CHECK_OK(cuMemPoolTrimTo(pool, 0));
		else
			synchronise(stream);
		assert_data(0);
		say_ready(wire);
	}
}

TEST(one_shrinks)
{
	struct member member;
	CUstream stream;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	member = member_begin(keeper);
	stream = stream_start("4g");
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned step = 0; step < 2; step++) {
			refused_async(1500 * MIB, stream);
			refused(1500 * MIB);
			member_ask(&member, 1);
		}
		give_async(take_async(2800 * MIB, stream), stream);
		synchronise(stream);
		give(take(2800 * MIB));
		assert_data(0);
		tell(member.wire, 1);
		if (!round)
			hear(member.wire);
	}
	member_end(&member);
	ledger_reap();
	assert_data(0);
}

/* -- many threads -- */

static void *work(void *arg)
{
	unsigned seed = (unsigned)getpid() * 31 + (unsigned)(uintptr_t)arg;
	CUdeviceptr held[HELD_MAX] = {0};
	uint64_t end = now_ms() + RUN_MS;
	CUstream stream;

	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_OK(cuStreamCreate(&stream, NON_BLOCKING));
	while (now_ms() < end) {
		unsigned i = (unsigned)rand_r(&seed) % HELD_MAX;
		CUresult result;

		if (rand_r(&seed) % 8 == 0)
			synchronise(stream);
		if (held[i]) {
			give_async(held[i], stream);
			held[i] = 0;
			continue;
		}
		result = cuMemAllocAsync(&held[i], (uint64_t)rand_r(&seed) % (300 * MIB) + 1,
					 stream);
		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(result == CUDA_SUCCESS || !held[i]);
		if (result != CUDA_SUCCESS)
			__atomic_add_fetch(&refusals, 1, __ATOMIC_RELAXED);
	}
	for (unsigned i = 0; i < HELD_MAX; i++)
		if (held[i])
			give_async(held[i], stream);
	synchronise(stream);
	return NULL;
}

static void work_all(void)
{
	CHECK_OK(cuCtxGetCurrent(&context));
	threads_join(threads_start(THREADS, work));
	CHECK_OK(cuCtxSynchronize());
	assert_books(0);
}

static void worker(int wire)
{
	stream_start(getenv("CUDA_DEVICE_MEMORY_LIMIT"));
	tell(wire, 1);
	while (hear(wire)) {
		refusals = 0;
		work_all();
		tell(wire, refusals);
	}
	assert_data(0);
}

/* While all of them allocate and free. Another than in the driver's order is not to be had: a
 * tentative allocation may pass the limit, for as long as it takes to see it, by what was asked. */
TEST(everyone)
{
	const uint64_t quota = PROCESSES * (CONTEXT + HIDDEN) + 2 * GIB;
	struct member members[PROCESSES];
	uint64_t peak, highest = 0;
	uint64_t refused_in_all = 0;
	unsigned rounds = 0;

	limit_set(quota);
	for (unsigned i = 0; i < PROCESSES; i++)
		members[i] = member_begin(worker);
	do {
		outside_peak_begin(0);
		for (unsigned i = 0; i < PROCESSES; i++)
			tell(members[i].wire, 1);
		for (unsigned i = 0; i < PROCESSES; i++)
			refused_in_all += hear(members[i].wire);
		peak = outside_peak(0);
		CHECK_AT_MOST(peak, quota + PROCESSES * GRANULE);
		highest = peak > highest ? peak : highest;
	} while (++rounds < ROUNDS_MOST && (refused_in_all <= 100 || highest < quota / 100 * 90));
	CHECK_AT_MOST(quota / 100 * 90, highest);
	CHECK(refused_in_all > 100);
	for (unsigned i = 0; i < PROCESSES; i++)
		member_finish(&members[i]);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
	CHECK_EQUAL(ledger_used(0), 0);
}

static unsigned in; /* atomic */

static void *first_of_many(void *number)
{
	CUdeviceptr address = 0;
	CUstream stream;
	CUresult result;

	CHECK_OK(cuCtxSetCurrent(context));
	CHECK_OK(cuStreamCreate(&stream, NON_BLOCKING));
	pthread_barrier_wait(&together);
	result = cuMemAllocAsync(&address, 300 * MIB, stream);
	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
	if (result == CUDA_SUCCESS)
		__atomic_add_fetch(&in, 1, __ATOMIC_RELAXED);
	return number;
}

/* The pool is seen for the first time, by all at once: none of them slips by. */
TEST(first_at_once)
{
	stream_start("1g"); /* there is room for one */
	CHECK_OK(cuCtxGetCurrent(&context));
	CHECK(pthread_barrier_init(&together, NULL, THREADS) == 0);
	threads_join(threads_start(THREADS, first_of_many));
	CHECK_EQUAL(in, 1);
	CHECK_OK(cuCtxSynchronize());
	assert_data(320 * MIB);
}

/* -- fork -- */

/* The child's CUDA is spoilt, as the driver has it; the parent's books do not change. */
TEST(after_fork)
{
	CUstream stream = stream_start("2g");
	CUdeviceptr held = take_async(500 * MIB, stream), address = UNTOUCHED, late = take(MIB);
	pid_t child;

	give_async(late, stream);
	child = fork();
	if (child == 0) {
		CHECK(cuMemAllocAsync(&address, MIB, stream) != CUDA_SUCCESS);
		CHECK_EQUAL(address, UNTOUCHED);
		CHECK(cuMemFreeAsync(held, stream) != CUDA_SUCCESS);
		CHECK(cuStreamSynchronize(stream) != CUDA_SUCCESS);
		CHECK(cuCtxSynchronize() != CUDA_SUCCESS);
		CHECK(cuDeviceGraphMemTrim(0) != CUDA_SUCCESS);
		exit(0);
	}
	expect_ended(child);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	refused_async(1400 * MIB, stream);
	synchronise(stream);
	assert_data(512 * MIB);
	give_async(held, stream);
	synchronise(stream);
	assert_data(0);
}

TEST(before_init)
{
	CUstream stream;
	pid_t child = fork();

	stream = stream_start("4g");
	give_async(take_async(500 * MIB, stream), stream);
	take_async(100 * MIB, stream);
	synchronise(stream);
	assert_data(128 * MIB);
	if (child == 0)
		exit(0);
	expect_ended(child);
	CHECK_SOON_EQUAL(ledger_reap(), 1);
	CHECK_EQUAL(ledger_used(0), CONTEXT + HIDDEN + 128 * MIB);
}
