/*
 * Small arrays share granules, and which of them share one is the driver's to choose: no granule is
 * charged twice, and none is had for nothing, whatever their sizes, and in what order they go.
 */
#include "arrays_fixture.h"

#include <unistd.h>

/* -- alike ------------------------------------------------------------------------------------ */

/* Small arrays share granules: all of the quota is given out, and the granule that is not charged
 * is not taken. */
TEST(filled_with_small)
{
	unsigned count;

	start("1g");
	count = fill_with(&small, made, ARRAYS_MAX);
	CHECK_EQUAL(count, (GIB - CONTEXT - HIDDEN) / (64 * KIB));
	assert_held_to(GIB);
	true_data();
	end_all(&small, made, count);
	assert_data(0);
}

/* The small arrays of all sizes, each with its like. */
TEST(small_of_each_size)
{
	start("700m");
	for (size_t width = 32; width <= 512; width += 32) {
		struct kind kind = {"units", {width, 128, 0, FLOAT, 4, 0}, 0};
		unsigned count = fill_with(&kind, made, ARRAYS_MAX);

		CHECK_AT_MOST(outside_used(0), 700 * MIB + GRANULE);
		CHECK_AT_MOST(700 * MIB - GRANULE, ledger_used(0));
		true_data();
		end_all(&kind, made, count);
		assert_data(0);
	}
}

/* -- of many sizes ---------------------------------------------------------------------------- */

/* So many times 64 KiB. */
static CUresult make_units(unsigned units, union made *ret_made)
{
	const struct kind kind = {"units", {32 * (size_t)units, 128, 0, FLOAT, 4, 0}, 0};

	ret_made->any = NULL;
	return make(&kind, ret_made);
}

/* Few are left, one in each granule: which nobody else can have. */
TEST(scattered)
{
	static CUdeviceptr pieces[1024];
	unsigned count, kept = 0;

	start("1g");
	count = fill_with(&small, made, ARRAYS_MAX);
	for (unsigned i = 0; i < count; i++) {
		if (i % 32)
			CHECK_OK(end(&small, made[i]));
		else
			made[kept++] = made[i];
	}
	refused(GRANULE);
	assert_held_to(GIB);
	true_data();
	for (unsigned i = 0; i < kept / 2; i++)
		CHECK_OK(end(&small, made[i]));
	CHECK_EQUAL(fill(pieces, 1024, GRANULE), kept / 2);
	assert_held_to(GIB);
	true_data();
	end_all(&small, made + kept / 2, kept - kept / 2);
	assert_data(kept / 2 * GRANULE);
}

static void start_unseen(void)
{
	env_set("VGPU_SIM_NVML_PIDS", "none");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	cuda_start(0);
}

static void assert_no_less(void)
{
	CHECK_AT_MOST(outside_of(0, getpid()) - CONTEXT, ledger_own(0).data);
}

TEST(scattered_unseen)
{
	static CUdeviceptr pieces[1024];
	unsigned count;

	start_unseen();
	count = fill_with(&small, made, ARRAYS_MAX);
	for (unsigned i = 0; i < count; i++)
		if (i % 32)
			CHECK_OK(end(&small, made[i]));
	fill(pieces, 1024, GRANULE);
	CHECK_AT_MOST(outside_used(0), GIB + GRANULE);
}

/* What is alike is charged to the granule, without NVML's help. */
TEST(alike_unseen)
{
	start_unseen();
	for (unsigned units = 1; units <= 16; units++) {
		unsigned each = 32 / units, count = 20 * each + 1;

		for (unsigned i = 0; i < count; i++)
			CHECK_OK(make_units(units, &made[i]));
		CHECK_EQUAL(ledger_own(0).data, 21 * GRANULE);
		for (unsigned i = 0; i < count; i += 2) {
			CHECK_OK(end(&small, made[i]));
			CHECK_OK(make_units(units, &made[i]));
		}
		CHECK_EQUAL(ledger_own(0).data, 21 * GRANULE);
		assert_no_less();
		end_all(&small, made, count);
		CHECK_EQUAL(ledger_own(0).data, 0);
	}
}

/* Gaps of every size that are one too short for what comes then. */
TEST(gaps_unseen)
{
	start_unseen();
	for (unsigned units = 2; units <= 16; units++) {
		unsigned count = 10 * 32, kept = 0;

		for (unsigned i = 0; i < count; i++)
			CHECK_OK(make_units(1, &made[i]));
		for (unsigned i = 0; i < count; i++) {
			if (i % 32 % units == units - 1)
				made[kept++] = made[i];
			else
				CHECK_OK(end(&small, made[i]));
		}
		for (unsigned i = 0; i < 40; i++) {
			CHECK_OK(make_units(units, &made[kept++]));
			assert_no_less();
		}
		end_all(&small, made, kept);
		CHECK_EQUAL(ledger_own(0).data, 0);
	}
}

/* The first is like the last, and those in between fill the granules. */
TEST(unlike_unseen)
{
	unsigned count = 0;

	start_unseen();
	CHECK_OK(make_units(1, &made[count++]));
	while (count < 41)
		CHECK_OK(make_units(16, &made[count++]));
	while (count < 1500) {
		CHECK_OK(make_units(1, &made[count++]));
		assert_no_less();
	}
	end_all(&small, made, count);
	CHECK_EQUAL(ledger_own(0).data, 0);
}

/* In turns, of sizes that do not go together as well as each does with its like, or better. */
TEST(in_turns)
{
	static const unsigned turns[][4] = {{16, 9, 16, 9},   {11, 11, 10, 11}, {9, 16, 12, 16},
					    {16, 6, 11, 1},   {1, 16, 1, 16},   {5, 7, 3, 13},
					    {10, 10, 10, 12}, {2, 15, 15, 2}};

	start("700m");
	for (unsigned i = 0; i < sizeof(turns) / sizeof(*turns); i++) {
		unsigned count = 0;
		CUresult result;

		while ((result = make_units(turns[i][count % 4], &made[count])) == CUDA_SUCCESS)
			count++;
		CHECK_EQUAL(result, CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(!made[count].any);
		assert_held_to(700 * MIB);
		true_data();
		end_all(&small, made, count);
		assert_data(0);
	}
}

TEST(at_random)
{
	unsigned seed = 7, refusals = 0;

	start("700m");
	outside_peak_begin(0);
	for (unsigned round = 0; round < 20000; round++) {
		unsigned i = (unsigned)rand_r(&seed) % 1000;

		if (made[i].any) {
			CHECK_OK(cuArrayDestroy(made[i].array));
			made[i].any = NULL;
		} else {
			refusals += make_units(1 + (unsigned)rand_r(&seed) % 16, &made[i]) !=
				    CUDA_SUCCESS;
		}
	}
	CHECK_AT_MOST(outside_peak(0), 700 * MIB + GRANULE);
	CHECK_AT_MOST(1, refusals);
	for (unsigned i = 0; i < 1000; i++)
		if (made[i].any)
			CHECK_OK(cuArrayDestroy(made[i].array));
	assert_data(0);
}

/* Contexts do not share. */
TEST(small_in_two_contexts)
{
	CUcontext first, second;
	union made one, other;

	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_OK(cuInit(0));
	CHECK_OK(cuCtxCreate_v2(&first, 0, 0));
	one = made_of(&small);
	CHECK_OK(cuCtxCreate_v2(&second, 0, 0));
	other = made_of(&small);
	CHECK_EQUAL(ledger_own(0).data, 2 * GRANULE);
	CHECK_EQUAL(outside_of(0, getpid()), 2 * CONTEXT + 2 * GRANULE);
	CHECK_OK(end(&small, one)); /* in the other's time */
	CHECK_EQUAL(ledger_own(0).data, GRANULE);
	CHECK_EQUAL(outside_of(0, getpid()), 2 * CONTEXT + GRANULE);
	CHECK_OK(cuCtxDestroy_v2(first));
	CHECK_EQUAL(ledger_own(0).data, GRANULE);
	CHECK_OK(end(&small, other));
	assert_data(0);
}
