/* Which limit holds, and from when on. */
#include "pace.h"

#include <sys/stat.h>

#define CHANGED_MS 100 /* a change holds by then */

static uint64_t *sm_limit;

static void start(const char *cores)
{
	pace_start(cores);
	sm_limit = &file->hami.sm_limit[ledger_index(0)];
}

/* A program that waits for its work now and then, so that it is never far ahead. */
static uint64_t step_waiting(void *turn)
{
	busy(spin, MS, stream);
	if (++*(unsigned *)turn % 4 == 0)
		synchronise(stream);
	return MS;
}

/* A program that never waits; its kernels are short, so that it is not far ahead either. */
static uint64_t step_running(void *turn)
{
	busy(spin, 1000, stream);
	++*(unsigned *)turn;
	usleep(20);
	return 1000;
}

/* After the time that a change may take, and what was under way. */
static struct share share_soon(step_fn *step, void *arg)
{
	share_of(step, arg, CHANGED_MS);
	return share_of(step, arg, 500);
}

static void change(uint64_t to, step_fn *step)
{
	unsigned turn = 0, attempt = 0;
	char what[32];

	POKE(*sm_limit, to);
	snprintf(what, sizeof(what), "changed to %u", (unsigned)to);
	while (!share_is_right(what, share_soon(step, &turn), (double)to, 10, attempt))
		attempt++;
}

TEST(changed)
{
	start("20");
	change(20, step_waiting);
	change(70, step_waiting);
	change(10, step_waiting);
	change(50, step_waiting);
}

/* No limit at all: as much as there is. */
static void is_lifted(step_fn *step, double least_pct)
{
	unsigned turn = 0, attempt = 0;
	double fair;

	do
		fair = share_soon(step, &turn).fair;
	while (fair < least_pct && ++attempt < ATTEMPTS);
	printf("  lifted: %.2f %%\n", fair);
	CHECK(fair >= least_pct);
}

/* From some to none, and from none to some: however the program launches. */
TEST(lifted)
{
	unsigned turn = 0;

	start("30");
	change(30, step_waiting);
	POKE(*sm_limit, 100);
	is_lifted(step_waiting, 60);
	change(30, step_waiting);
	POKE(*sm_limit, 0);
	share_soon(step_running, &turn);
	POKE(*sm_limit, 1);
	CHECK(share_soon(step_running, &turn).pct < 1.5);
}

/* Always with something on its way. */
static void run_for(uint64_t ns)
{
	CUevent over[2];

	for (unsigned i = 0; i < 2; i++)
		CHECK_OK(cuEventCreate(&over[i], 0));
	for (uint64_t turn = 0, end = now_ns() + ns; now_ns() < end; turn++) {
		for (unsigned i = 0; i < 5; i++)
			busy(spin, MS, stream);
		CHECK_OK(cuEventRecord(over[turn % 2], stream));
		if (turn > 0)
			CHECK_OK(cuEventSynchronize(over[1 - turn % 2]));
	}
}

/* What went without a limit is not paid for when there is one: that would take 3 s. */
TEST(again)
{
	uint64_t began, delayed;

	start("50");
	run_for(200 * (uint64_t)MS);
	POKE(*sm_limit, 100);
	run_for(1500 * (uint64_t)MS);
	POKE(*sm_limit, 50);
	began = now_ns();
	delayed = delayed_ns();
	run_for(100 * (uint64_t)MS);
	CHECK(now_ns() - began - (delayed_ns() - delayed) < 1500 * (uint64_t)MS);
}

/* -- the monitor's switch --------------------------------------------------------------------- */

TEST(switched)
{
	start("20");
	change(20, step_waiting);
	POKE(file->hami.utilization_switch, 0);
	is_lifted(step_waiting, 60);
	POKE(file->hami.utilization_switch, 1);
	change(20, step_waiting);
}

TEST(forced)
{
	env_set("GPU_CORE_UTILIZATION_POLICY", "force");
	start("20");
	change(20, step_waiting);
	POKE(file->hami.utilization_switch, 0);
	change(20, step_waiting);
}

/* -- a policy --------------------------------------------------------------------------------- */

static void write_policy(const char *text)
{
	char name[128];

	snprintf(name, sizeof(name), "policy/%s", gpu_uuid(0));
	scene_write(name, text);
}

/* Both ways, by whoever may write it; and what makes no sense changes nothing. */
TEST(of_policy)
{
	unsigned turn = 0, attempt = 0;

	CHECK(mkdir(scene_path("policy"), 0700) == 0);
	env_set("VGPU_POLICY", scene_path("policy"));
	write_policy("memory = unlimited\ncores = 20\nburst = 4ms\n");
	start(NULL);
	change(20, step_waiting);
	write_policy("memory = unlimited\ncores = 60\nburst = 3ms\n");
	while (!share_is_right("policy of 60", share_soon(step_waiting, &turn), 60, 10, attempt))
		attempt++;
	CHECK_EQUAL(PEEK(*sm_limit), 60);
	CHECK_EQUAL(PEEK(file->own.device[ledger_index(0)].burst_ns), 3 * MS);
	write_policy("memory = unlimited\ncores = sixty\n");
	share_soon(step_waiting, &turn);
	CHECK_EQUAL(PEEK(*sm_limit), 60);
	write_policy("memory = 4G\n");
	is_lifted(step_waiting, 75);
	write_policy("memory = unlimited\ncores = 10\nburst = 4ms\n");
	change(10, step_waiting);
	POKE(*sm_limit, 50); /* the region cannot lift it */
	CHECK(share_soon(step_waiting, &turn).pct < 10 + MORE_PCT);
}

/* -- the environment -------------------------------------------------------------------------- */

#define SLOW_MS 200 /* a tenth of a quota: three kernels of 20 ms take twice as long, or none */

static bool is_limited(void)
{
	uint64_t began = now_ns(), delayed = delayed_ns(), took;

	for (unsigned i = 0; i < 3; i++)
		busy(spin, 20 * MS, stream);
	took = now_ns() - began;
	return took > SLOW_MS * MS + delayed_ns() - delayed;
}

static const struct policy {
	const char *value, *cores;
	uint64_t expected;
} * policy; /* of the process that is being started */

/* In a process of its own: whether it is limited, while the switch is on, and while it is off; or
 * 4, it cannot even start. */
static void answers(int wire)
{
	uint64_t answer = 0;

	env_set("GPU_CORE_UTILIZATION_POLICY", policy->value);
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "40g");
	env_set("CUDA_DEVICE_SM_LIMIT", policy->cores);
	if (cuInit(0) != CUDA_SUCCESS) {
		tell(wire, 4);
		return;
	}
	pace_start(policy->cores);
	POKE(file->hami.utilization_switch, 1);
	answer |= is_limited() ? 1 : 0;
	POKE(file->hami.utilization_switch, 0);
	answer |= is_limited() ? 2 : 0;
	tell(wire, answer);
}

#define POLICIES_MOST 20

/* All at the same time: each has a slice, and a machine, of its own. */
static void check_policies(const struct policy *policies, size_t count)
{
	struct member members[POLICIES_MOST];
	char name[32];

	for (size_t i = 0; i < count; i++) {
		policy = &policies[i];
		snprintf(name, sizeof(name), "%zu.cache", i);
		env_set("CUDA_DEVICE_MEMORY_SHARED_CACHE", scene_path(name));
		snprintf(name, sizeof(name), "%zu.machine", i);
		env_set("VGPU_SIM_STATE", scene_path(name));
		members[i] = member_start(answers);
	}
	for (size_t i = 0; i < count; i++) {
		printf("  policy %s, cores %s\n", policies[i].value, policies[i].cores);
		fflush(stdout);
		CHECK_EQUAL(hear(members[i].wire), policies[i].expected);
		member_end(&members[i]);
	}
}

#define NEVER   0
#define DEFAULT 1
#define ALWAYS  3
#define REFUSED 4

TEST(values)
{
	static const struct policy policies[] = {
		{"", "10", DEFAULT},        {"default", "10", DEFAULT}, {"0", "10", DEFAULT},
		{"force", "10", ALWAYS},    {"FORCE", "10", ALWAYS},    {"1", "10", ALWAYS},
		{"disable", "10", NEVER},   {"Disable", "10", NEVER},   {"2", "10", NEVER},
		{"DeFault", "10", DEFAULT}, {"3", "10", REFUSED},       {"on", "10", REFUSED},
		{" force", "10", REFUSED},  {"forced", "10", REFUSED},  {"-1", "10", REFUSED},
	};

	check_policies(policies, sizeof(policies) / sizeof(*policies));
}

TEST(none)
{
	static const struct policy policies[] = {
		{"force", "", NEVER},      {"force", "0", NEVER},
		{"force", "100", NEVER},   {"force", "101", NEVER},
		{"force", "-1", REFUSED},  {"force", "2000000000", NEVER},
		{"force", "10%", ALWAYS},  {"force", "99999999999999999999", REFUSED},
		{"force", "ten", REFUSED}, {"force", "1.5x", REFUSED},
		{"force", "010", ALWAYS},  {"force", "10.5", ALWAYS},
	};

	check_policies(policies, sizeof(policies) / sizeof(*policies));
}
