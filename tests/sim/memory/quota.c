/* The quota is the truth to the granule, and is given out whole. */
#include "cuda_api.h"

#include <unistd.h>

#define PIECES_MAX (1u << 18)

static CUdeviceptr pieces[PIECES_MAX];

static void assert_held_to(uint64_t quota)
{
	uint64_t outside = outside_used(0);

	CHECK_AT_MOST(outside, quota + GRANULE);
	CHECK_AT_MOST(quota / 100 * 99, outside);
	CHECK_AT_MOST(ledger_used(0), quota);
}

static void assert_all_given_back(void)
{
	struct vgpu_hami_usage usage = ledger_own(0);

	CHECK_EQUAL(usage.data, 0);
	CHECK_EQUAL(usage.context, CONTEXT);
	CHECK_EQUAL(usage.module, 0);
	CHECK_EQUAL(usage.total, usage.context + usage.offset);
	CHECK_EQUAL(outside_of(0, getpid()), CONTEXT);
}

static void give_all(unsigned count)
{
	while (count > 0)
		give(pieces[--count]);
	assert_all_given_back();
}

/* Fills with granules, then with what may still fit into one. */
TEST(whole_granules)
{
	unsigned big, small;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	cuda_start(0);
	big = fill(pieces, PIECES_MAX, GRANULE);
	small = fill(pieces + big, PIECES_MAX - big, KIB);
	assert_held_to(GIB);
	CHECK_EQUAL(big, (GIB - CONTEXT - HIDDEN) / GRANULE);
	CHECK_EQUAL(small, 0); /* not one granule is left, and none has room */
	refused(GRANULE);
	refused(1);
	give(pieces[0]);
	pieces[0] = take(GRANULE);
	refused(GRANULE);
	assert_held_to(GIB);
	give_all(big);
}

/* What an application is refused is counted once, however often it is tried inside. */
TEST(refusals_counted)
{
	const uint32_t *count;
	CUdeviceptr address;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	cuda_start(0);
	count = &ledger()->own.device[0].bucket.refused;
	CHECK_EQUAL(*count, 0);
	refused(2 * GIB);
	refused(GIB);
	CHECK_EQUAL(*count, 2);
	address = take(GRANULE);
	give(address);
	CHECK_EQUAL(*count, 2);
}

/* When the quota is full, small pieces still go where room is: they take nothing. */
TEST(shared_tails)
{
	unsigned big, small;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	cuda_start(0);
	big = fill(pieces, PIECES_MAX, 3 * MIB / 2);
	small = fill(pieces + big, PIECES_MAX - big, KIB);
	assert_held_to(GIB);
	CHECK_EQUAL(big, (GIB - CONTEXT - HIDDEN) / GRANULE);
	CHECK_EQUAL(small, big * (MIB / 2 / KIB));
	give_all(big + small);
}

TEST(small_pieces)
{
	unsigned count;

	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "600m");
	cuda_start(0);
	count = fill(pieces, PIECES_MAX, KIB);
	CHECK_EQUAL(count, (600 * MIB - CONTEXT - HIDDEN) / KIB);
	assert_held_to(600 * MIB);
	give_all(count);
}

/* A quota that is no multiple of anything, with allocations of many granules first. */
TEST(odd_quota)
{
	const uint64_t quota = 3000000001;
	unsigned count = 0;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3000000001");
	cuda_start(0);
	for (uint64_t bytes = GIB; bytes >= KIB; bytes /= 4)
		count += fill(pieces + count, PIECES_MAX - count, bytes + 1);
	assert_held_to(quota);
	give_all(count);
}

/* Freeing each and taking it again, at the limit, many times over. */
TEST(to_and_fro)
{
	unsigned count;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "600m");
	cuda_start(0);
	count = fill(pieces, PIECES_MAX, 3 * MIB);
	for (unsigned round = 0; round < 2000; round++) {
		unsigned i = round % count;

		give(pieces[i]);
		pieces[i] = take(round % 3 ? 3 * MIB : 4 * MIB);
		refused(GRANULE + 1);
	}
	assert_held_to(600 * MIB);
	give_all(count);
}
