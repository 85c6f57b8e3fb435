/* NVML that cannot say what this process has: the quota holds all the same. */
#include "cuda_api.h"

#include <string.h>
#include <unistd.h>

static CUdeviceptr pieces[4096];

static const struct pids {
	const char *name; /* and VGPU_SIM_NVML_PIDS */
} unseen[] = {{"foreign"}, {"none"}};

static void held_without(const struct pids *pids)
{
	unsigned count;
	uint64_t outside, books;
	struct vgpu_hami_usage usage;

	env_set("VGPU_SIM_NVML_PIDS", pids->name);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "2g");
	cuda_start(0);
	count = fill(pieces, 4096, GRANULE);
	outside = outside_used(0);
	CHECK_AT_MOST(outside, 2 * GIB + GRANULE);
	CHECK_AT_MOST(2 * GIB / 100 * 95, outside);
	usage = ledger_own(0);
	books = usage.context + usage.module + usage.data;
	CHECK_AT_MOST(outside_of(0, getpid()), books);
	CHECK_AT_MOST(books, outside_of(0, getpid()) + CONTEXT);
	while (count)
		give(pieces[--count]);
	CHECK_EQUAL(ledger_own(0).data, 0);
	CHECK_OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK_EQUAL(ledger_own(0).total, 0);
}

TEST_TABLE(unseen, held_without);

static void blind_member(int wire)
{
	cuda_start(0);
	take(MIB);
	say_ready(wire);
}

/* Nobody's context is ever measured; each is charged what it can be at most, and that fits. */
TEST(three_of_them)
{
	struct member members[3];

	env_set("VGPU_SIM_NVML_PIDS", "foreign");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "4g");
	for (unsigned i = 0; i < 3; i++) {
		members[i] = member_begin(blind_member);
		CHECK_AT_MOST(outside_used(0), ledger_used(0));
	}
	for (unsigned i = 0; i < 3; i++)
		member_finish(&members[i]);
	CHECK_SOON_EQUAL(ledger_reap(), 0);
	CHECK_EQUAL(ledger_used(0), 0);
}

/* A context that cannot be measured, and may not fit: refused rather than let in. */
TEST(too_small)
{
	CUcontext context;

	env_set("VGPU_SIM_NVML_PIDS", "none");
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "400m");
	CHECK_OK(cuInit(0));
	CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_AT_MOST(outside_used(0), 4 * MIB);
}

/* -- our pid is of another process in NVML's list --------------------------------------------- */

/* A process that is no member of the slice: how much it has beside a context of so much. */
struct namesake {
	const char *name, *context_mib;
	uint64_t bytes;
};

static const struct namesake namesakes[] = {
	{"namesake_small", "100", 0},
	{"namesake_alike", NULL, 0}, /* as much as we have, at first */
	{"namesake_large", NULL, 10 * GIB},
};

static const struct namesake *namesake;

static void be_namesake(int wire)
{
	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("other.cache"));
	env_set("CUDA_DEVICE_MEMORY_LIMIT", NULL);
	env_set("VGPU_SIM_NVML_PIDS", NULL);
	env_set("VGPU_SIM_FAULTS", NULL);
	env_set("VGPU_SIM_CONTEXT_MIB", namesake->context_mib);
	cuda_start(0);
	if (namesake->bytes)
		take(namesake->bytes);
	say_ready(wire);
}

/* Each comparison comes when the time since the last one is over. */
static void compare_often(void)
{
	for (unsigned i = 0; i < 20; i++) {
		sleep_ms(25);
		give(take(GRANULE));
	}
}

/* The process finds its own entry in the list, and goes by that. */
static void found_among(const struct namesake *other)
{
	struct vgpu_hami_usage usage;
	struct member member;

	namesake = other;
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "8g");
	member = member_begin(be_namesake);
	env_set("VGPU_SIM_NVML_PIDS", "swapped");
	env_set("VGPU_SIM_MODULE_MIB", "20");
	cuda_start(0);
	take(2 * GIB);
	compare_often();
	usage = ledger_own(0);
	CHECK_EQUAL(usage.context, CONTEXT);
	CHECK_EQUAL(usage.module, 0);
	CHECK_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
	compare_often();
	usage = ledger_own(0);
	CHECK_EQUAL(usage.context + usage.module + usage.data, outside_of(0, getpid()));
	member_finish(&member);
}

TEST_TABLE(namesakes, found_among);

static void compare_all_the_time(void)
{
	cuda_start(0);
	take(2 * GIB);
	compare_often();
	CHECK_AT_MOST(outside_of(0, getpid()),
		      ledger_own(0).context + ledger_own(0).module + ledger_own(0).data);
}

/* What the process takes to find itself is refused. */
static const struct namesake anothers[] = {
	{"says_that_small_is_anothers", "100", 0},
	{"says_that_alike_is_anothers", NULL, 0},
};

static void not_found_among(const struct namesake *other)
{
	struct member member;
	struct said said;
	const char *line;

	namesake = other;
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "16g");
	member = member_begin(be_namesake);
	env_set("VGPU_SIM_NVML_PIDS", "swapped");
	env_set("VGPU_SIM_FAULTS", "cuMemCreate=2");
	env_set("LIBCUDA_LOG_LEVEL", "1");
	said = member_listen(compare_all_the_time);
	CHECK_EQUAL(said.status, 0);
	CHECK_EQUAL(lines_in(said.err), 1);
	line = "NVML shows another process's memory under this one's pid on GPU 0, so what the "
	       "driver takes there of itself";
	CHECK(strstr(said.err, line) != NULL);
	member_finish(&member);
}

TEST_TABLE(anothers, not_found_among);

/* -- another process that moves as we do ------------------------------------------------------- */

static void await(const char *parked)
{
	while (access(scene_path(parked), F_OK) != 0)
		sleep_ms(1);
}

/* Takes and gives back just what a process takes to find itself, while that does; then grows. */
static void mimic(int wire)
{
	CUdeviceptr same;

	env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path("other.cache"));
	env_set("VGPU_SIM_NVML_PIDS", NULL);
	env_set("VGPU_SIM_PARK", NULL);
	cuda_start(0);
	tell(wire, 1);
	await("taking");
	same = take(6 * MIB);
	CHECK(unlink(scene_path("taking")) == 0);
	await("giving");
	give(same);
	CHECK(unlink(scene_path("giving")) == 0);
	hear(wire);
	take(GIB);
	say_ready(wire);
}

static void compare_twice(void)
{
	for (unsigned i = 0; i < 2; i++) {
		sleep_ms(25);
		give(take(GRANULE));
	}
}

/* One size that fits may be chance: nothing of the other is taken for ours. */
TEST(chance)
{
	struct vgpu_hami_usage before;
	struct member other;
	char rule[512];

	snprintf(rule, sizeof(rule), "cuMemCreate@1=%s,cuMemRelease@1=%s", scene_path("taking"),
		 scene_path("giving"));
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "8g");
	env_set("VGPU_SIM_NVML_PIDS", "others");
	env_set("VGPU_SIM_PARK", rule);
	other = member_begin(mimic);
	cuda_start(0);
	compare_twice();
	before = ledger_own(0);
	member_ask(&other, 1);
	compare_twice();
	CHECK_EQUAL(ledger_own(0).module, before.module);
	CHECK_EQUAL(ledger_own(0).context, before.context);
	member_finish(&other);
}
