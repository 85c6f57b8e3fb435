/* Where the quota comes from, and that no other source lifts it. */
#include "cuda_api.h"

#include <sys/stat.h>
#include <unistd.h>

static uint64_t total_of(CUdevice device)
{
	size_t bytes = 0;

	CHECK_CUDA(cuDeviceTotalMem_v2(&bytes, device), CUDA_SUCCESS);
	return bytes;
}

/* The quota is shown, and kept. */
static void assert_quota(uint64_t quota)
{
	CHECK_EQUAL(total_of(0), quota);
	cuda_start(0);
	refused(quota - CONTEXT - HIDDEN + 1);
	give(take(quota - CONTEXT - HIDDEN - GRANULE));
	refused(quota - CONTEXT - HIDDEN + 1);
}

static void policy(unsigned gpu, const char *text)
{
	char name[256];

	mkdir(scene_path("policy"), 0755);
	snprintf(name, sizeof(name), "policy/%s", gpu_uuid(gpu));
	scene_write(name, text);
	env_set("VGPU_POLICY", scene_path("policy"));
}

TEST(policy_alone)
{
	policy(0, "# a slice\nmemory = 1G\n");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	assert_quota(GIB);
}

TEST(policy_and_lower)
{
	policy(0, "memory = 2G\n");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	assert_quota(GIB);
}

TEST(policy_and_higher)
{
	policy(0, "memory = 1G\n");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	env_set("CUDA_DEVICE_MEMORY_LIMIT_0", "60g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	assert_quota(GIB);
}

TEST(policy_names_region)
{
	char text[512];

	policy(0, "memory = 1G\n");
	snprintf(text, sizeof(text), "region = %s\nname = test\n", scene_path("its.cache"));
	scene_write("policy/slice", text);
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	assert_quota(GIB);
	CHECK_EQUAL(access(scene_path("its.cache"), F_OK), 0);
	CHECK_EQUAL(access(scene_path("slice.cache"), F_OK), -1);
}

TEST(gpu_not_in_policy)
{
	CUcontext context = (CUcontext)UNTOUCHED;

	env_set("VGPU_SIM_GPUS", "2x8G");
	policy(0, "memory = 1G\n");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	CHECK_CUDA(cuCtxCreate_v2(&context, 0, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 1), CUDA_ERROR_INVALID_DEVICE);
	CHECK(context == (CUcontext)UNTOUCHED);
	CHECK_EQUAL(outside_used(1), 0);
	assert_quota(GIB);
}

/* A GPU that the policy lists without a limit is in the slice, and has none. */
TEST(policy_without_memory)
{
	policy(0, "memory = unlimited\ncores = 50\n");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
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

static void holder_end(struct member *member)
{
	member_finish(member);
}

/* A region of that limit, that nobody holds any more. */
static void leave_region(const char *limit, uint64_t bytes)
{
	struct member first;

	holder_limit = limit;
	first = member_start(holder);
	CHECK_EQUAL(hear(first.wire), bytes);
	holder_end(&first);
}

/* No limit in the environment, as after env -i: the region that is found is kept to. */
TEST(stripped)
{
	leave_region("1g", GIB);
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	assert_quota(GIB);
}

TEST(stripped_beside_another)
{
	struct member first;

	holder_limit = "2g";
	first = member_start(holder);
	CHECK_EQUAL(hear(first.wire), 2 * GIB);
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	CHECK_EQUAL(total_of(0), 2 * GIB);
	cuda_start(0);
	refused(GIB); /* 2 GiB less two contexts */
	take(900 * MIB);
	holder_end(&first);
}

/* A limit of 0 is no limit: it must not lift what is there either. */
TEST(zero_limit)
{
	leave_region("1g", GIB);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "0");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	assert_quota(GIB);
}

TEST(asks_for_more)
{
	struct member first;

	holder_limit = "2g";
	first = member_start(holder);
	CHECK_EQUAL(hear(first.wire), 2 * GIB);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "40g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	CHECK_EQUAL(total_of(0), 2 * GIB);
	CHECK_EQUAL(ledger()->hami.limit[0], 2 * GIB);
	cuda_start(0);
	refused(GIB);
	take(900 * MIB);
	holder_end(&first);
}

/* Its own limit holds for it; the others keep theirs. */
TEST(asks_for_less)
{
	struct member first;

	holder_limit = "4g";
	first = member_start(holder);
	CHECK_EQUAL(hear(first.wire), 4 * GIB);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	CHECK_EQUAL(total_of(0), 2 * GIB);
	CHECK_EQUAL(ledger()->hami.limit[0], 4 * GIB);
	cuda_start(0);
	refused(GIB);
	holder_end(&first);
}

/* A container that starts again over its old file, with other limits. */
TEST(restarted)
{
	leave_region("1g", GIB);
	leave_region("3g", 3 * GIB);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	assert_quota(2 * GIB);
}

TEST(restarted_after_kill)
{
	struct member first;

	holder_limit = "1g";
	first = member_begin(holder);
	member_kill(&first);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "3g");
	CHECK_CUDA(cuInit(0), CUDA_SUCCESS);
	assert_quota(3 * GIB);
}
