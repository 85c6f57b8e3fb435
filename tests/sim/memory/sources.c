/* Where the quota comes from, and that no other source lifts it. */
#include "cuda_api.h"

#include <unistd.h>

/* The quota is shown, and kept. */
static void assert_quota(uint64_t quota)
{
	CHECK_EQUAL(total_of(0), quota);
	cuda_start(0);
	refused(quota - CONTEXT - HIDDEN + 1);
	give(take(quota - CONTEXT - HIDDEN - GRANULE));
	refused(quota - CONTEXT - HIDDEN + 1);
}

TEST(policy_names_region)
{
	char text[512];

	policy_write(gpu_uuid(0), "memory = 1G\n");
	snprintf(text, sizeof(text), "region = %s\nname = test\n", scene_path("its.cache"));
	scene_write("policy/slice", text);
	CHECK_OK(cuInit(0));
	assert_quota(GIB);
	CHECK_EQUAL(access(scene_path("its.cache"), F_OK), 0);
	CHECK_EQUAL(access(scene_path("slice.cache"), F_OK), -1);
}

TEST(gpu_not_in_policy)
{
	CUcontext context = (CUcontext)UNTOUCHED;

	env_set("VGPU_SIM_GPUS", "2x8G");
	policy_write(gpu_uuid(0), "memory = 1G\n");
	CHECK_OK(cuInit(0));
	CHECK_EQUAL(cuCtxCreate_v2(&context, 0, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK(context == (CUcontext)UNTOUCHED);
	CHECK_EQUAL(outside_used(1), 0);
	assert_quota(GIB);
}

/* A GPU that the policy lists without a limit is in the slice, and has none. */
TEST(policy_without_memory)
{
	policy_write(gpu_uuid(0), "memory = unlimited\ncores = 50\n");
	CHECK_OK(cuInit(0));
	CHECK_EQUAL(total_of(0), 80 * GIB);
	cuda_start(0);
	give(take(60 * GIB));
}

static const char *holder_limit;

static void holder(int wire)
{
	env_set("CUDA_DEVICE_MEMORY_LIMIT", holder_limit);
	cuda_start(0);
	take(MIB);
	tell(wire, total_of(0));
	hear(wire);
}

/* A region of that limit, that nobody holds any more. */
static void leave_region(const char *limit, uint64_t bytes)
{
	struct member first;

	holder_limit = limit;
	first = member_start(holder);
	CHECK_EQUAL(hear(first.wire), bytes);
	member_finish(&first);
}

/* -- one source, or several -------------------------------------------------------------------- */

static const struct source {
	const char *name, *policy;
	const char *limit, *limit_0; /* of all GPUs and of the first, in the environment */
	uint64_t quota_gib;
	uint64_t left_gib[2]; /* limits of processes that have used the region before */
} sources[] = {
	{"policy_alone", "# a slice\nmemory = 1G\n", NULL, NULL, 1, {0}},
	{"policy_and_lower", "memory = 2G\n", "1g", NULL, 1, {0}},
	{"policy_and_higher", "memory = 1G\n", "2g", "60g", 1, {0}},
	/* No limit in the environment, as after env -i: the limit of the region holds. */
	{"stripped", NULL, NULL, NULL, 1, {1}},
	/* A limit of 0 is no limit, and does not lift the region's. */
	{"zero_limit", NULL, "0", NULL, 1, {1}},
	/* A container starts again over its old file, with other limits. */
	{"restarted", NULL, "2g", NULL, 2, {1, 3}},
};

static void quota_is_kept(const struct source *row)
{
	char limit[8];

	for (unsigned i = 0; i < 2 && row->left_gib[i]; i++) {
		snprintf(limit, sizeof(limit), "%ug", (unsigned)row->left_gib[i] % 10);
		leave_region(limit, row->left_gib[i] * GIB);
	}
	if (row->policy)
		policy_write(gpu_uuid(0), row->policy);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", row->limit);
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", row->limit_0);
	CHECK_OK(cuInit(0));
	assert_quota(row->quota_gib * GIB);
}

TEST_TABLE(sources, quota_is_kept);

/* Another process holds a context and 1 MiB in the region, with a limit. */
static const struct beside {
	const char *name;
	const char *its_limit, *limit;  /* in the environments */
	uint64_t quota_gib, region_gib; /* of this process, and in the region */
	uint64_t fits_mib;              /* 0: nothing is tried */
} besides[] = {
	{"stripped_beside_another", "2g", NULL, 2, 2, 900},
	{"asks_for_more", "2g", "40g", 2, 2, 900},
	/* Its own limit holds for it; the others keep theirs. */
	{"asks_for_less", "4g", "2g", 2, 4, 0},
};

static void quota_beside(const struct beside *row)
{
	struct member other;

	holder_limit = row->its_limit;
	other = member_start(holder);
	CHECK_EQUAL(hear(other.wire), row->region_gib * GIB);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", row->limit);
	CHECK_OK(cuInit(0));
	CHECK_EQUAL(total_of(0), row->quota_gib * GIB);
	CHECK_EQUAL(ledger()->hami.limit[0], row->region_gib * GIB);
	cuda_start(0);
	refused(GIB); /* 2 GiB less two contexts */
	if (row->fits_mib)
		take(row->fits_mib * MIB);
	member_finish(&other);
}

TEST_TABLE(besides, quota_beside);

TEST(restarted_after_kill)
{
	struct member first;

	holder_limit = "1g";
	first = member_begin(holder);
	member_kill(&first);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	CHECK_OK(cuInit(0));
	assert_quota(3 * GIB);
}
