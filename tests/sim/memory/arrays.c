/* Arrays: each kind takes what it takes on the device, and fills the quota to the granule. */
#include "arrays_fixture.h"

#include <unistd.h>

/* -- filling ---------------------------------------------------------------------------------- */

/* Fills the slice with arrays of one kind, then with the smallest where that leaves room. Neither
 * passes the limit, and both together have all of it. */
static void fill_slice(const struct kind *kind)
{
	unsigned count, rest;

	start("2g");
	count = fill_with(kind, made, ARRAYS_MAX);
	assert_held_to(QUOTA);
	true_data();
	rest = fill_with(&small, made + count, ARRAYS_MAX - count);
	assert_held_to(QUOTA);
	CHECK_AT_MOST(QUOTA - GRANULE, ledger_used(0));
	refused(GRANULE);
	end_all(&small, made + count, rest);
	end_all(kind, made, count);
	assert_data(0);
}

TEST_TABLE(kinds, fill_slice);

/* At the limit, what one gives back another has: arrays, linear memory, mipmapped arrays. */
TEST(to_and_fro)
{
	static const struct kind flat = {"4 MiB", {1024, 1024, 0, FLOAT, 1, 0}, 0};
	static const struct kind mips = {"4 MiB", {512, 1024, 0, FLOAT, 1, 0}, 3};
	unsigned count;

	start("700m");
	count = fill_with(&flat, made, ARRAYS_MAX);
	CHECK_EQUAL(count, (700 * MIB - CONTEXT - HIDDEN) / (4 * MIB));
	for (unsigned round = 0; round < 500; round++) {
		const struct kind *kind = round % 3 ? &flat : &mips;
		union made one, none = {.any = NULL};
		CUdeviceptr linear;

		CHECK_OK(end(&flat, made[round % count]));
		linear = take(4 * MIB);
		CHECK_EQUAL(make(kind, &none), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(!none.any);
		give(linear);
		one = made_of(kind);
		refused(4 * MIB);
		CHECK_OK(end(kind, one));
		made[round % count] = made_of(&flat);
	}
	assert_held_to(700 * MIB);
	true_data();
	end_all(&flat, made, count);
	assert_data(0);
}

/* -- a driver that does not say what an array would take --------------------------------------- */

/* Too much is charged, then, and never too little. */
TEST(reckoned)
{
	start("2g");
	for (unsigned i = 0; i < KINDS; i++) {
		union made one = made_of(&kinds[i]);
		uint64_t really = outside_of(0, getpid()) - CONTEXT;

		if (ledger_own(0).data < really)
			fprintf(stderr, "%s\n", kinds[i].name);
		CHECK_AT_MOST(really, ledger_own(0).data);
		CHECK_OK(end(&kinds[i], one));
		assert_data(0);
	}
}

TEST(reckoned_unanswered)
{
	env_set("VGPU_SIM_FAULTS", "cuArrayGetMemoryRequirements=999,"
				   "cuMipmappedArrayGetMemoryRequirements=999");
	reckoned();
}

/* Every format, in shapes that fill tiles badly and well. */
TEST(reckoned_formats)
{
	static const size_t shapes[][3] = {{1, 1, 0},     {1, 0, 0},      {1000, 0, 0},
					   {1, 5000, 0},  {5, 700, 0},    {129, 129, 0},
					   {17, 17, 17},  {3, 900, 9},    {1000, 3, 2},
					   {64, 2049, 0}, {2049, 513, 0}, {1024, 1024, 0}};
	unsigned tried = 0;

	env_set("VGPU_SIM_FAULTS", "cuArrayGetMemoryRequirements=999,"
				   "cuMipmappedArrayGetMemoryRequirements=999");
	start("2g");
	for (unsigned format = 0; format < 0x100; format++)
		for (unsigned i = 0; i < 12 * 3 * 3; i++) {
			const size_t *shape = shapes[i % 12];
			struct kind kind = {
				"any",
				{shape[0], shape[1], shape[2], format, 1u << i / 12 % 3, 0},
				i / 36 * 3};
			union made one;
			uint64_t really;

			if (make(&kind, &one) != CUDA_SUCCESS)
				continue;
			tried++;
			really = outside_of(0, getpid()) - CONTEXT;
			CHECK_AT_MOST(really, ledger_own(0).data);
			CHECK_OK(end(&kind, one));
		}
	CHECK_AT_MOST(36 * 12 * 3, tried);
	assert_data(0);
}
