/*
 * Two slices on one device, each with a process of its own, that take turns. A process that has
 * nothing to do waits for its work first.
 */
#include <sys/stat.h>

#include "pace_many.h"

/* -- a slice ---------------------------------------------------------------------------------- */

struct tenant {
	unsigned quota; /* 0: none */
	uint64_t ns;    /* of a kernel */
	/* When it has work, from the first second on; until_ns 0: always. */
	uint64_t from_ns, until_ns;
	/* Every so often its host does something else for so long. */
	uint64_t each_ns, pause_ns;
};

/* What a test looks at: from one time to the other, from the first second on. */
struct case_of {
	struct tenant tenants[2];
	uint64_t from_ns, until_ns;
};

static struct place *place;
static const struct case_of *played;
static struct result {
	uint64_t busy_ns, paid_ns;
} * results;

static void join(const struct tenant *tenant)
{
	struct region_setup setup = setup_from(0, DEVICES, GIB);
	struct pace_quota quotas[VGPU_DEVICES_MAX];
	static char path[128]; /* the region keeps it */

	snprintf(path, sizeof(path), "%s/region.%u", place->dir, self);
	MUST(open_claimed(path, &setup, &region) == 0);
	region.file->hami.sm_limit[0] = region.file->hami.sm_limit[1] = tenant->quota;
	for (int i = 0; i < VGPU_DEVICES_MAX; i++)
		quotas[i] = (struct pace_quota){.index = i < DEVICES ? i : -1};
	pace_forget();
	pace_set_turns(place->dir, "");
	pace_attach(&region, quotas, PACE_RULE_SWITCH, &fake_driver);
}

static bool has_work(const struct tenant *tenant)
{
	return time_ns >= FIRST_NS + tenant->from_ns &&
	       (!tenant->until_ns || time_ns < FIRST_NS + tenant->until_ns);
}

static void wait_for_work(void)
{
	uint64_t done_ns = fake.streams[0][0].done_ns;

	pace_will_wait(&context_a, true);
	if (done_ns > time_ns)
		pass(done_ns - time_ns);
	meet();
	pace_waited();
}

static void go_on(const struct tenant *tenant, uint64_t *paused_ns)
{
	static uint64_t waited_ns; /* when the work was over that it has waited for last */
	const struct kernel kernel = {.function = 1, .ns = tenant->ns};
	uint64_t done_ns = fake.streams[0][0].done_ns;

	if (!has_work(tenant)) {
		if (done_ns != waited_ns)
			wait_for_work();
		waited_ns = done_ns;
		pass(MS / 10);
		meet();
		return;
	}
	MUST(launch(&kernel) == 0);
	done_ns = fake.streams[0][0].done_ns;
	if (done_ns > time_ns + 50 * MS)
		pass(done_ns - time_ns - 50 * MS);
	if (tenant->each_ns && time_ns - *paused_ns > tenant->each_ns) {
		pass(tenant->pause_ns);
		*paused_ns = time_ns;
	}
}

static void run(void *arg)
{
	const struct tenant *tenant = &played->tenants[self];
	uint64_t paused_ns = FIRST_NS, busy_ns = UINT64_MAX, paid_ns = 0;

	(void)arg;
	many_begin();
	join(tenant);
	while (time_ns < FIRST_NS + played->until_ns) {
		go_on(tenant, &paused_ns);
		if (busy_ns == UINT64_MAX && time_ns >= FIRST_NS + played->from_ns) {
			busy_ns = fake.busy_ns[0];
			paid_ns = region.file->turn[0].paid_ns;
		}
	}
	results[self].busy_ns = fake.busy_ns[0] - busy_ns;
	results[self].paid_ns = region.file->turn[0].paid_ns - paid_ns;
	many_end();
}

static void remove_files(void)
{
	static const char *const names[] = {"region.0", "region.1", "GPU-0", "GPU-1"};
	char path[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(path, sizeof(path), "%s/%s", place->dir, names[i]);
		unlink(path);
	}
}

/* What the slices got, percent. */
static void play(void **state, const struct case_of *which, double ret_share[2])
{
	place = *state;
	played = which;
	results = shared_memory(2 * sizeof(*results));
	many_play(2, run, NULL);
	for (unsigned i = 0; i < 2; i++)
		ret_share[i] = 100.0 * (double)results[i].busy_ns /
			       (double)(which->until_ns - which->from_ns);
	harness_note("%u and %u, %lu and %lu us: %.2f and %.2f, paid %.1f and %.1f ms",
		     which->tenants[0].quota, which->tenants[1].quota,
		     (unsigned long)which->tenants[0].ns / 1000,
		     (unsigned long)which->tenants[1].ns / 1000, ret_share[0], ret_share[1],
		     (double)results[0].paid_ns / 1e6, (double)results[1].paid_ns / 1e6);
	munmap(shared, sizeof(*shared));
	remove_files();
}

/* -- what they get ---------------------------------------------------------------------------- */

static const uint64_t lengths[] = {50000, MS, 20 * MS};

#define LENGTHS (sizeof(lengths) / sizeof(*lengths))

UNIT_TEST(test_quotas)
{
	for (size_t i = 0; i < LENGTHS; i++) {
		const struct case_of both = {
			{{.quota = 30, .ns = lengths[i]}, {.quota = 60, .ns = lengths[i]}},
			NS_PER_S,
			4 * NS_PER_S};
		double share[2];

		play(state, &both, share);
		assert_share("30 beside 60", share[0], 30, 1, 1);
		assert_share("60 beside 30", share[1], 60, 2, 1);
	}
}

UNIT_TEST(test_unlike)
{
	const struct case_of both = {
		{{.quota = 30, .ns = 50000}, {.quota = 60, .ns = 20 * MS}}, NS_PER_S, 4 * NS_PER_S};
	double share[2];

	play(state, &both, share);
	assert_share("50 us beside 20 ms", share[0], 30, 2, 1);
	assert_share("20 ms beside 50 us", share[1], 60, 2, 1);
}

UNIT_TEST(test_rest)
{
	for (size_t i = 0; i < LENGTHS; i++) {
		const struct case_of both = {
			{{.quota = 30, .ns = lengths[i]}, {.quota = 0, .ns = lengths[i]}},
			NS_PER_S,
			4 * NS_PER_S};
		double share[2];

		play(state, &both, share);
		assert_share("30", share[0], 30, 1, 1);
		assert_share("no quota", share[1], 70, 3, 1);
	}
}

/* -- alone, and not --------------------------------------------------------------------------- */

/* The first slice is alone at first and at last: nothing is paid for turns then, and the quota
 * holds throughout. */
UNIT_TEST(test_comes_and_goes)
{
	static const struct {
		uint64_t from_ns, until_ns;
		bool is_alone;
	} parts[] = {{NS_PER_S, 2 * NS_PER_S, true},
		     {NS_PER_S, 5 * NS_PER_S, false},
		     {4500 * MS, 6 * NS_PER_S, true}};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		const struct case_of both = {{{.quota = 60, .ns = MS},
					      {.quota = 30,
					       .ns = MS,
					       .from_ns = 2 * NS_PER_S,
					       .until_ns = 3 * NS_PER_S}},
					     parts[i].from_ns,
					     parts[i].until_ns};
		double share[2];

		play(state, &both, share);
		assert_share("60, sometimes alone", share[0], 60, 2, 2);
		if (parts[i].is_alone)
			assert_int_equal(results[0].paid_ns, 0);
	}
}

/* A host that does something else pays nothing for that time, and costs the other slice a turn's
 * length, 20 ms, for each pause at most. */
UNIT_TEST(test_host_pauses)
{
	const struct case_of both = {
		{{.quota = 60, .ns = MS},
		 {.quota = 30, .ns = MS, .each_ns = 130 * MS, .pause_ns = 70 * MS}},
		NS_PER_S,
		4 * NS_PER_S};
	double share[2];

	play(state, &both, share);
	assert_share("60 beside one that pauses", share[0], 60, 10, 1);
	assert_share("30 with pauses", share[1], 30, 6, 1);
}
