/* Processes of one slice on one device: together they have the slice's quota. */
#include "pace_many.h"

/* -- a process -------------------------------------------------------------------------------- */

struct process {
	const char *path;
	unsigned quota;
	const struct kernel *kernels;
	unsigned count;
	uint64_t warm_ns, for_ns;
};

/* Picks kernels at random: alternation would hide what chance shows. */
static void run(void *arg)
{
	const struct process *process = arg;
	struct region_setup setup = setup_from(0, DEVICES, GIB);
	struct pace_quota quotas[VGPU_DEVICES_MAX];
	uint64_t from_ns = FIRST_NS + process->warm_ns, until_ns = from_ns + process->for_ns;
	uint64_t chance = 1 + self, busy_ns = 0;

	many_begin();
	CHECK(open_claimed(process->path, &setup, &region) == 0);
	region.file->hami.sm_limit[0] = process->quota;
	for (int i = 0; i < VGPU_DEVICES_MAX; i++)
		quotas[i] = (struct pace_quota){.index = i < DEVICES ? i : -1};
	pace_forked();
	pace_attach(&region, quotas, PACE_RULE_SWITCH, &fake_driver);
	while (time_ns < until_ns) {
		chance = chance_after(chance);
		CHECK(launch(&process->kernels[(chance >> 33) % process->count]) == 0);
		pass_until(&fake.streams[0][0].done_ns, 50 * MS);
		if (!busy_ns && time_ns >= from_ns)
			busy_ns = fake.busy_ns[0];
	}
	shared->busy_ns[self] = fake.busy_ns[0] - busy_ns;
	many_end();
}

/* What they all have of the device, percent. */
static double sum_of(unsigned processes, unsigned quota, const struct kernel *kernels,
		     unsigned count)
{
	/* the processes begin with launches of unknown cost, and with a debt that lasts for up to
	 * 0.7 s
	 */
	struct process process = {here.path, quota, kernels, count, NS_PER_S, 2 * NS_PER_S};
	double sum = 0;

	unlink(here.path);
	many_play(processes, run, &process);
	for (unsigned i = 0; i < processes; i++)
		sum += 100.0 * (double)shared->busy_ns[i] / (double)process.for_ns;
	harness_note("%u: %lu us and %lu us: %.2f of %u", processes,
		     (unsigned long)kernels[0].ns / 1000,
		     (unsigned long)kernels[count - 1].ns / 1000, sum, quota);
	munmap(shared, sizeof(*shared));
	return sum;
}

/* -- programs --------------------------------------------------------------------------------- */

/* All have the same kernels: together they have the quota. */
UNIT_TEST(test_alike)
{
	static const struct {
		unsigned processes;
		uint64_t ns;
	} cases[] = {{2, 20000}, {2, 2 * MS}, {4, 200000}, {4, MS}, {8, 2 * MS}};
	static const unsigned quotas[] = {30, 80};

	for (unsigned i = 0; i < 10; i++) {
		struct kernel kernel = {.function = 1, .ns = cases[i / 2].ns};
		double sum = sum_of(cases[i / 2].processes, quotas[i % 2], &kernel, 1);

		assert_share("alike", sum, quotas[i % 2], 1.5, 1);
	}
}

/* One function takes now one time, now another. */
UNIT_TEST(test_unlike)
{
	static const struct kernel kernels[][2] = {
		{{.function = 1, .ns = 20000}, {.function = 1, .ns = MS}},
		{{.function = 1, .ns = 50000}, {.function = 1, .ns = 5 * MS}},
	};
	static const unsigned quotas[] = {30, 60}, processes[] = {2, 4};

	for (unsigned i = 0; i < 8; i++) {
		double sum = sum_of(processes[i / 4], quotas[i % 2], kernels[i / 2 % 2], 2);

		assert_share("unlike", sum, quotas[i % 2], 1.5, 1);
	}
}
