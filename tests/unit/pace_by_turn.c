/*
 * Two slices on one device that take turns. Each has one process, or several. A process that has
 * nothing to do waits for its work first.
 */
#include <sys/stat.h>
#include <sys/wait.h>

#include "cores.h"
#include "pace_many.h"
#include "turn.h"

#define RING_MOST    16
#define RING_WAKE_NS 20000  /* from the end of a kernel until its host goes on */
#define RING_LATE_NS 350000 /* later than that: longer than a half of a ring of 8 takes */

/* -- a slice ---------------------------------------------------------------------------------- */

struct tenant {
	unsigned quota; /* 0: none */
	unsigned most;  /* while the other wants nothing; 0: quota */
	bool is_blind;  /* it has no file of turns */
	uint64_t ns;    /* of a kernel */
	/* When it has work, from the first second on; until_ns 0: always. */
	uint64_t from_ns, until_ns;
	/* Every so often its host does something else for so long. */
	uint64_t each_ns, pause_ns;
	/* It has so many kernels in flight at most, and waits for the first half of them then. One
	 * of late_one_in waits ends too late. 0: it waits for none. */
	unsigned ring, late_one_in;
	unsigned peers; /* other processes that do the same; as many in both slices */
};

/* What a test looks at: from one time to the other, from the first second on. */
struct case_of {
	struct tenant tenants[2];
	uint64_t from_ns, until_ns;
};

static const struct case_of *played;
static unsigned peers; /* as the tenants have it */

static unsigned slice_of(unsigned process)
{
	return process / (peers + 1);
}

static struct result {
	uint64_t busy_ns, paid_ns;
} * results;

static void join(const struct tenant *tenant)
{
	struct region_setup setup = setup_from(0, DEVICES, GIB);
	struct pace_quota quotas[VGPU_DEVICES_MAX];
	static char path[128]; /* the region keeps it */

	snprintf(path, sizeof(path), "%s/region.%u", here.dir, slice_of(self));
	MUST(open_claimed(path, &setup, &region) == 0);
	region.file->hami.sm_limit[0] = region.file->hami.sm_limit[1] = tenant->quota;
	region.file->turn[0].cores_most = region.file->turn[1].cores_most = tenant->most;
	for (int i = 0; i < VGPU_DEVICES_MAX; i++)
		quotas[i] = (struct pace_quota){.index = i < DEVICES ? i : -1};
	pace_forget();
	pace_set_turns(tenant->is_blind ? "" : here.dir, "");
	pace_attach(&region, quotas, PACE_RULE_SWITCH, &fake_driver);
}

static bool has_work(const struct tenant *tenant)
{
	return time_ns >= FIRST_NS + tenant->from_ns &&
	       (!tenant->until_ns || time_ns < FIRST_NS + tenant->until_ns);
}

static bool is_late(const struct tenant *tenant)
{
	static uint64_t chance = 1;

	chance = (chance + self) * 6364136223846793005u + 1442695040888963407u;
	return tenant->late_one_in && (chance >> 33) % tenant->late_one_in == 0;
}

/* A kernel was launched: if the ring is full, its host waits for the first half. */
static void wait_for_half(const struct tenant *tenant)
{
	static uint64_t work_ns[RING_MOST], launches, over;
	const struct device_queue *queue = &shared->device.queue[self];

	work_ns[launches++ % RING_MOST] = queue->given_ns;
	if (launches - over < tenant->ring)
		return;
	over += tenant->ring / 2;
	pace_will_wait(&context_a, true);
	if (pass_until_done(work_ns[(over - 1) % RING_MOST]))
		pass(RING_WAKE_NS);
	if (is_late(tenant))
		pass(RING_LATE_NS);
	meet();
	pace_waited();
}

static void go_on(const struct tenant *tenant, uint64_t *paused_ns)
{
	static uint64_t waited_ns; /* when the work was over that it has waited for last */
	const struct kernel kernel = {.function = 1, .ns = tenant->ns};
	const uint64_t *done_ns = &fake.streams[0][0].done_ns;

	if (!has_work(tenant)) {
		if (*done_ns != waited_ns)
			synchronise_stream(0);
		waited_ns = *done_ns;
		pass(MS / 10);
		meet();
		return;
	}
	MUST(launch(&kernel) == 0);
	if (tenant->ring)
		wait_for_half(tenant);
	pass_until(done_ns, 50 * MS);
	if (tenant->each_ns && time_ns - *paused_ns > tenant->each_ns) {
		pass(tenant->pause_ns);
		*paused_ns = time_ns;
	}
}

static void run(void *arg)
{
	const struct tenant *tenant = &played->tenants[slice_of(self)];
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
		snprintf(path, sizeof(path), "%s/%s", here.dir, names[i]);
		unlink(path);
	}
}

/* What the slices got, percent. */
static void play(const struct case_of *which, double ret_share[2])
{
	played = which;
	peers = which->tenants[0].peers;
	results = shared_memory(PROCESSES_MAX * sizeof(*results));
	many_play(2 * (peers + 1), run, NULL);
	ret_share[0] = ret_share[1] = 0;
	for (unsigned i = 0; i < 2 * (peers + 1); i++)
		ret_share[slice_of(i)] += 100.0 * (double)results[i].busy_ns /
					  (double)(which->until_ns - which->from_ns);
	harness_note("%u and %u, %lu and %lu us: %.2f and %.2f, paid %.1f and %.1f ms",
		     which->tenants[0].quota, which->tenants[1].quota,
		     (unsigned long)which->tenants[0].ns / 1000,
		     (unsigned long)which->tenants[1].ns / 1000, ret_share[0], ret_share[1],
		     (double)results[0].paid_ns / 1e6, (double)results[peers + 1].paid_ns / 1e6);
	munmap(shared, sizeof(*shared));
	remove_files();
	peers = 0;
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

		play(&both, share);
		assert_share("30 beside 60", share[0], 30, 1, 1);
		assert_share("60 beside 30", share[1], 60, 2, 1);
	}
}

UNIT_TEST(test_unlike)
{
	const struct case_of both = {
		{{.quota = 30, .ns = 50000}, {.quota = 60, .ns = 20 * MS}}, NS_PER_S, 4 * NS_PER_S};
	double share[2];

	play(&both, share);
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

		play(&both, share);
		assert_share("30", share[0], 30, 1, 1);
		assert_share("no quota", share[1], 70, 3, 1);
	}
}

/* Slices of two and of four processes: together, these get what one process would get. */
UNIT_TEST(test_processes)
{
	static const struct {
		unsigned quota, peers, ring;
		uint64_t ns;
	} cases[] = {
		{50, 1, 2, 2 * MS}, {30, 3, 2, 2 * MS}, {50, 3, 8, 2 * MS}, {30, 3, 4, 200000}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct tenant tenant = {.quota = cases[i].quota,
					      .ns = cases[i].ns,
					      .ring = cases[i].ring,
					      .peers = cases[i].peers};
		const struct case_of both = {{tenant, tenant}, NS_PER_S, 4 * NS_PER_S};
		double share[2];

		play(&both, share);
		assert_share("the first slice", share[0], cases[i].quota, 1.5, 1);
		assert_share("the second slice", share[1], cases[i].quota, 1.5, 1);
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

		play(&both, share);
		assert_share("60, sometimes alone", share[0], 60, 2, 2);
		if (parts[i].is_alone)
			assert_int_equal(results[0].paid_ns, 0);
	}
}

/* A host that does something else pays nothing for that time, and costs the other slice little. */
UNIT_TEST(test_host_pauses)
{
	const struct case_of both = {
		{{.quota = 60, .ns = MS},
		 {.quota = 30, .ns = MS, .each_ns = 130 * MS, .pause_ns = 70 * MS}},
		NS_PER_S,
		4 * NS_PER_S};
	double share[2];

	play(&both, share);
	assert_share("60 beside one that pauses", share[0], 60, 1.5, 1);
	assert_share("30 with pauses", share[1], 30, 1, 1);
}

/* -- the end ---------------------------------------------------------------------------------- */

/* A child that has its parent's memory, as a vfork child has, exits. */
static void exit_as_child(void)
{
	pid_t child = fork();

	if (child == 0) {
		pace_begin_exit();
		_exit(0);
	}
	MUST(child > 0 && waitpid(child, NULL, 0) == child);
}

static void leave(void *arg)
{
	const struct tenant tenant = {.quota = 30};
	const struct kernel kernel = {.function = 1, .ns = MS};
	const struct vgpu_turns_file *file;
	const struct turn *turn;
	unsigned seat, slice;

	(void)arg;
	many_begin();
	join(&tenant);
	MUST(launch(&kernel) == 0);
	turn = cores_meter_at(0)->turn;
	file = turn->file.file;
	seat = turn->file.seat;
	slice = turn->file.slice;
	MUST((file->seat[seat].owner & VGPU_TURNS_HOLDER) == slice + 1);
	MUST((file->header.turn & VGPU_TURNS_HOLDER) == slice + 1);
	exit_as_child();
	MUST((file->seat[seat].owner & VGPU_TURNS_HOLDER) == slice + 1);
	pace_begin_exit();
	MUST((file->seat[seat].owner & VGPU_TURNS_HOLDER) == 0);
	MUST((file->header.turn & VGPU_TURNS_HOLDER) == 0);
	MUST((file->header.present >> slice & 1) == 0);
	MUST(!cores_meter_at(0)->turn);
	pace_begin_exit();
	MUST(launch(&kernel) == 0);
	many_end();
}

/* A process that exits gives its turn and its seat up; a launch after that goes all the same. */
UNIT_TEST(test_exit)
{
	many_play(1, leave, NULL);
	munmap(shared, sizeof(*shared));
	remove_files();
}

/* -- what nobody else wants ------------------------------------------------------------------- */

/* What a slice with two figures gets beside another, of kernels of that length. */
static double elastic(const struct tenant *tenant, const struct tenant *other, uint64_t ns,
		      double *ret_other)
{
	struct case_of both = {{*tenant, *other}, NS_PER_S, 4 * NS_PER_S};
	double share[2];

	both.tenants[0].ns = both.tenants[1].ns = ns;
	play(&both, share);
	*ret_other = share[1];
	return share[0];
}

static const struct tenant nobody = {.from_ns = 100 * NS_PER_S};

UNIT_TEST(test_elastic_alone)
{
	const struct tenant to_100 = {.quota = 30, .most = 100}, to_60 = {.quota = 30, .most = 60};
	double other;

	for (size_t i = 0; i < LENGTHS; i++) {
		assert_share("30-100 alone", elastic(&to_100, &nobody, lengths[i], &other), 100, 1,
			     1);
		assert_share("30-60 alone", elastic(&to_60, &nobody, lengths[i], &other), 60, 1, 1);
	}
}

/* Without turns, nothing shows what others want. */
UNIT_TEST(test_elastic_blind)
{
	const struct tenant to_100 = {.quota = 30, .most = 100, .is_blind = true};
	double other;

	assert_share("30-100 without turns", elastic(&to_100, &nobody, MS, &other), 30, 1, 1);
}

/* Beside one that always wants the device, it gets what it is assured, and what the other may not
 * take. */
UNIT_TEST(test_elastic_beside)
{
	static const struct {
		struct tenant other;
		double share, other_share;
	} cases[] = {
		{{.quota = 70}, 30, 70},
		{{.quota = 40}, 60, 40},
		{{.quota = 0}, 30, 70},
		{{.quota = 70, .most = 100}, 30, 70},
		{{.quota = 30, .most = 100}, 50, 50},
	};
	const struct tenant tenant = {.quota = 30, .most = 100};
	double other;

	/* Not of 50 us, where a device that is busy all the time loses some with each turn. */
	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++) {
		size_t at = i / 2;
		double share = elastic(&tenant, &cases[at].other, lengths[1 + i % 2], &other);

		assert_share("30-100 beside another", share, cases[at].share, 3, 3);
		assert_share("the other", other, cases[at].other_share, 3, 2);
	}
}

/* Hosts that have few kernels in flight, and go on too late at times, let the device run dry. What
 * it does is divided by the weights all the same. */
UNIT_TEST(test_elastic_late_hosts)
{
	static const unsigned pairs[][2] = {{30, 70}, {10, 90}, {30, 30}}, late_one_in[] = {20, 60};

	for (unsigned i = 0; i < 2 * sizeof(pairs) / sizeof(*pairs); i++) {
		struct tenant tenants[2];
		double one, other;

		for (unsigned k = 0; k < 2; k++)
			tenants[k] = (struct tenant){.quota = pairs[i / 2][k],
						     .most = 100,
						     .ring = 8,
						     .late_one_in = late_one_in[i % 2]};
		one = elastic(&tenants[0], &tenants[1], lengths[0], &other);
		assert_share("both", one + other, i % 2 ? 99 : 96, 1, 1);
		assert_share("one, of what both get", 100 * one / (one + other),
			     100.0 * pairs[i / 2][0] / (pairs[i / 2][0] + pairs[i / 2][1]), 2, 2);
	}
}

/* Limits hold for such hosts, too: a slice that rests at its limit lends nothing. */
UNIT_TEST(test_limits_late_hosts)
{
	static const unsigned late_one_in[] = {20, 60};

	for (unsigned i = 0; i < 2; i++) {
		struct tenant one = {.quota = 30, .ring = 8, .late_one_in = late_one_in[i]};
		struct tenant two = {.quota = 60, .ring = 8, .late_one_in = late_one_in[i]};
		double other, share = elastic(&one, &two, lengths[0], &other);

		assert_share("30 beside 60", share, 30, 1, 1);
		assert_share("60", other, 60, 1, 1);
	}
}

/* The most holds beside others, too. */
UNIT_TEST(test_elastic_most)
{
	const struct tenant tenant = {.quota = 30, .most = 60}, light = {.quota = 20};
	double other;

	assert_share("30-60 beside 20", elastic(&tenant, &light, MS, &other), 60, 2, 3);
	assert_share("20", other, 20, 1, 1);
}

/* Another slice that comes gets its share from then on, and what it gives up is taken again. */
UNIT_TEST(test_elastic_comes_and_goes)
{
	const struct case_of parts[] = {
		{{{.quota = 30, .most = 100, .ns = MS},
		  {.quota = 70, .ns = MS, .from_ns = 2 * NS_PER_S, .until_ns = 3 * NS_PER_S}},
		 2200 * MS,
		 3 * NS_PER_S},
		{{{.quota = 30, .most = 100, .ns = MS},
		  {.quota = 70, .ns = MS, .from_ns = NS_PER_S, .until_ns = 2 * NS_PER_S}},
		 2500 * MS,
		 4 * NS_PER_S},
	};
	double share[2];

	play(&parts[0], share);
	assert_share("30-100 beside one that came", share[0], 30, 2, 4);
	assert_share("one that came", share[1], 70, 5, 1);
	play(&parts[1], share);
	assert_share("30-100 after one that went", share[0], 100, 2, 4);
}

static void doubt(void *arg)
{
	const struct tenant tenant = {.quota = 30, .most = 100};
	const struct kernel kernel = {.function = 1, .ns = MS};
	struct meter *meter = cores_meter_at(0);
	struct turn *turn;

	(void)arg;
	many_begin();
	join(&tenant);
	MUST(launch(&kernel) == 0);
	MUST(cores_limit(meter) == 0);
	turn = (struct turn *)(uintptr_t)meter->turn;
	turn->doubt_until = time_ns + NS_PER_S;
	MUST(cores_limit(meter) == 30);
	pass(NS_PER_S);
	MUST(cores_limit(meter) == 0);
	cores_note_gang(meter, true);
	MUST(cores_limit(meter) == 30);
	cores_note_gang(meter, false);
	turn->is_lost = true;
	MUST(cores_limit(meter) == 30);
	many_end();
}

/* While it doubts that it gets its turns, launches go by a gang, or the file is lost, turns do not
 * show what others want. */
UNIT_TEST(test_elastic_doubts)
{
	many_play(1, doubt, NULL);
	munmap(shared, sizeof(*shared));
	remove_files();
}
