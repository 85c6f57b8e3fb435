/* Many processes with many threads at one quota: it is never passed, and at the end all is back. */
#include "cuda_api.h"

#include <unistd.h>

#define PROCESSES 8
#define THREADS   4
#define HELD_MAX  8
#define RUN_MS    3000

#define ROUNDS_MOST 20 /* on a busy machine: until they were at the limit, and were seen there */

#define CONTEXTS (PROCESSES * (CONTEXT + HIDDEN))

static CUcontext context;
static uint64_t refusals; /* atomic, of this process */

static uint64_t some_size(unsigned *seed)
{
	unsigned bits =
		10 + (unsigned)rand_r(seed) % 16; /* 1 KiB to 64 MiB, small ones more often */

	return ((uint64_t)1 << bits) + (unsigned)rand_r(seed) % ((uint64_t)1 << bits);
}

static void *work(void *arg)
{
	unsigned seed = (unsigned)getpid() * 31 + (unsigned)(uintptr_t)arg;
	CUdeviceptr held[HELD_MAX] = {0};
	uint64_t end = now_ms() + RUN_MS;

	CHECK_OK(cuCtxSetCurrent(context));
	while (now_ms() < end) {
		unsigned i = (unsigned)rand_r(&seed) % HELD_MAX;
		CUresult result;

		if (held[i]) {
			give(held[i]);
			held[i] = 0;
			continue;
		}
		result = cuMemAlloc_v2(&held[i], some_size(&seed));
		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
		if (result != CUDA_SUCCESS)
			__atomic_add_fetch(&refusals, 1, __ATOMIC_RELAXED);
	}
	for (unsigned i = 0; i < HELD_MAX; i++)
		give(held[i]);
	return NULL;
}

static void member(int wire)
{
	context = cuda_start(0);
	give(take(1));
	tell(wire, 1);
	while (hear(wire)) {
		refusals = 0;
		threads_join(threads_start(THREADS, work));
		CHECK_EQUAL(ledger_own(0).data, 0);
		tell(wire, refusals);
	}
}

/* Each has its context before the next one comes. */
TEST(everyone)
{
	const uint64_t quota = CONTEXTS + 640 * MIB;
	struct member members[PROCESSES];
	uint64_t peak, highest = 0;
	uint64_t refused_in_all = 0;
	unsigned rounds = 0;

	limit_set(quota);
	for (unsigned i = 0; i < PROCESSES; i++)
		members[i] = member_begin(member);
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
	CHECK_AT_MOST(quota / 100 * 90, highest); /* it was at the limit */
	CHECK(refused_in_all > 100);
	CHECK_EQUAL(outside_used(0), PROCESSES * (CONTEXT + 9 * MIB));
	CHECK_EQUAL(ledger_used(0), CONTEXTS);
	for (unsigned i = 0; i < PROCESSES; i++)
		member_finish(&members[i]);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
	CHECK_EQUAL(ledger_used(0), 0);
	CHECK_SOON_EQUAL(outside_used(0), 0);
}

static void starter(int wire)
{
	hear(wire);
	cuda_start(0);
	give(take(1));
	say_ready(wire);
}

/* All at once, in a slice in which nobody has seen a context yet: there is room for each. */
TEST(all_at_once)
{
	struct member members[PROCESSES];

	limit_set(CONTEXTS + 256 * MIB);
	for (unsigned i = 0; i < PROCESSES; i++)
		members[i] = member_start(starter);
	for (unsigned i = 0; i < PROCESSES; i++)
		tell(members[i].wire, 1);
	for (unsigned i = 0; i < PROCESSES; i++)
		hear(members[i].wire);
	CHECK_EQUAL(outside_used(0), PROCESSES * (CONTEXT + 9 * MIB));
	CHECK_AT_MOST(ledger_used(0), CONTEXTS + 256 * MIB);
	for (unsigned i = 0; i < PROCESSES; i++)
		member_finish(&members[i]);
}

/* More want in than there is room for: those that get in are within the quota. */
static void late_starter(int wire)
{
	CUcontext own;
	CUdeviceptr address;
	bool in;

	hear(wire);
	CHECK_OK(cuInit(0));
	in = cuDevicePrimaryCtxRetain(&own, 0) == CUDA_SUCCESS;
	if (in) {
		CHECK_OK(cuCtxSetCurrent(own));
		if (cuMemAlloc_v2(&address, MIB) == CUDA_SUCCESS)
			give(address);
	}
	tell(wire, in);
	hear(wire);
}

TEST(too_many)
{
	const uint64_t quota = 3 * GIB;
	struct member members[PROCESSES];
	uint64_t in = 0;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	for (unsigned i = 0; i < PROCESSES; i++)
		members[i] = member_start(late_starter);
	for (unsigned i = 0; i < PROCESSES; i++)
		tell(members[i].wire, 1);
	for (unsigned i = 0; i < PROCESSES; i++)
		in += hear(members[i].wire);
	/* A context that turns out not to fit is on the device for as long as it takes to see it.
	 */
	CHECK_AT_MOST(outside_used(0), quota);
	CHECK(in >= 2 && in <= 5);
	CHECK_AT_MOST(in * (CONTEXT + 9 * MIB), quota);
	for (unsigned i = 0; i < PROCESSES; i++)
		member_finish(&members[i]);
}
