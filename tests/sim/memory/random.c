/* A long random walk: the ledger goes with the truth, step by step, and meets it at the end. */
#include "cuda_api.h"

#include <unistd.h>

#define LIVE_MAX 300

static CUdeviceptr live[LIVE_MAX];
static unsigned live_count;
static unsigned seed;

static unsigned below(unsigned end)
{
	return (unsigned)rand_r(&seed) % end;
}

enum sizes {
	SIZES_SMALL, /* they share granules */
	SIZES_BIG,   /* each has its own */
	SIZES_ALL,   /* 1 B to 20 MiB, small ones more often */
};

static enum sizes sizes;

static uint64_t some_size(void)
{
	if (sizes == SIZES_SMALL)
		return 1 + below(MIB);
	if (sizes == SIZES_BIG)
		return MIB + 1 + below(19 * MIB);
	switch (below(4)) {
	case 0:
		return 1 + below(4 * KIB);
	case 1:
		return 1 + below(MIB);
	case 2:
		return 1 + below(3 * MIB);
	default:
		return 1 + below(20 * MIB);
	}
}

static CUresult allocate(CUdeviceptr *ret_address)
{
	size_t pitch;

	if (sizes == SIZES_ALL && below(8) == 0)
		return cuMemAllocPitch_v2(ret_address, &pitch, 1 + below(5000), 1 + below(3000), 4);
	return cuMemAlloc_v2(ret_address, some_size());
}

static unsigned step(void)
{
	CUresult result;

	if (live_count == LIVE_MAX || (live_count && below(100) < 45)) {
		unsigned i = below(live_count);

		give(live[i]);
		live[i] = live[--live_count];
		return 0;
	}
	result = allocate(&live[live_count]);
	if (result == CUDA_SUCCESS) {
		live_count++;
		return 0;
	}
	CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
	return 1;
}

static uint64_t difference(void)
{
	struct vgpu_hami_usage usage = ledger_own(0);
	uint64_t books = usage.context + usage.module + usage.data;
	uint64_t truth = outside_of(0, getpid());

	return books > truth ? books - truth : truth - books;
}

static void walk(unsigned steps, const char *limit, bool must_refuse)
{
	unsigned refusals = 0;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", limit);
	cuda_start(0);
	for (unsigned i = 0; i < steps; i++) {
		refusals += step();
		if (i % 100 == 99)
			CHECK_AT_MOST(difference(), 2 * GRANULE);
	}
	CHECK(difference() == 0 || difference() == GRANULE); /* the one charged ahead */
	CHECK(!must_refuse || refusals > 10);
	while (live_count)
		give(live[--live_count]);
	CHECK_EQUAL(ledger_own(0).data, 0);
	CHECK_EQUAL(difference(), 0);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT);
}

TEST(small)
{
	seed = 1;
	sizes = SIZES_SMALL;
	walk(4000, "560m", true);
}

TEST(big)
{
	seed = 2;
	sizes = SIZES_BIG;
	walk(4000, "1g", true);
}

TEST(roomy)
{
	seed = 3;
	sizes = SIZES_ALL;
	walk(6000, "8g", false);
}

TEST(tight)
{
	seed = 4;
	sizes = SIZES_ALL;
	walk(6000, "700m", true);
}

TEST(tight_again)
{
	seed = 5;
	sizes = SIZES_ALL;
	walk(6000, "1000001k", true);
}
