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

enum { AS_GIVEN, EACH_LENGTH, NOT_THE_SHORTEST }; /* of the lengths below */

/* The part of a run that a test looks at, and the shares that the slices must get. */
struct row {
	const char *name;
	struct tenant tenants[2];
	struct {
		double share, less, more; /* percent of the device; 0: anything */
	} gets[2];
	int kernels; /* the length of both slices' kernels */
	/* The test looks from one time to the other, from the first second on. 0: from 1 s to 4 s
	 */
	uint64_t from_ns, until_ns;
	bool pays_nothing; /* the first slice pays for no turns */
};

static const struct row *played;
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
	CHECK(open_claimed(path, &setup, &region) == 0);
	region.file->hami.sm_limit[0] = region.file->hami.sm_limit[1] = tenant->quota;
	region.file->turn[0].cores_most = region.file->turn[1].cores_most = tenant->most;
	for (int i = 0; i < VGPU_DEVICES_MAX; i++)
		quotas[i] = (struct pace_quota){.index = i < DEVICES ? i : -1};
	pace_forked();
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
	CHECK(launch(&kernel) == 0);
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

/* What the slices got, percent. */
static void play(const struct row *which, double ret_share[2])
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
	place_empty();
	peers = 0;
}

/* -- what they get ---------------------------------------------------------------------------- */

static const uint64_t lengths[] = {50000, MS, 20 * MS};

#define NOBODY                            \
	{                                 \
		.from_ns = 100 * NS_PER_S \
	}
#define US50 .ns = 50000
/* A host that has few kernels in flight, and goes on too late at times. */
#define LATE(q, often)                                            \
	{                                                         \
		.quota = q, US50, .ring = 8, .late_one_in = often \
	}

static const struct row rows[] = {
	/* clang-format off */
	{"30 beside 60", {{.quota = 30}, {.quota = 60}}, .gets = {{30, 1, 1}, {60, 2, 1}},
	 .kernels = EACH_LENGTH},
	{"50 us beside 20 ms", {{.quota = 30, US50}, {.quota = 60, .ns = 20 * MS}},
	 .gets = {{30, 2, 1}, {60, 2, 1}}},
	{"30 beside no quota", {{.quota = 30}, {.quota = 0}}, .gets = {{30, 1, 1}, {70, 3, 1}},
	 .kernels = EACH_LENGTH},

	/* Slices of two and of four processes: together, these get what one process would get. */
	{"two processes of 50", {{.quota = 50, .peers = 1, .ring = 2, .ns = 2 * MS},
	 {.quota = 50, .peers = 1, .ring = 2, .ns = 2 * MS}}, .gets = {{50, 1.5, 1}, {50, 1.5, 1}}},
	{"four processes of 30", {{.quota = 30, .peers = 3, .ring = 2, .ns = 2 * MS},
	 {.quota = 30, .peers = 3, .ring = 2, .ns = 2 * MS}}, .gets = {{30, 1.5, 1}, {30, 1.5, 1}}},
	{"four processes of 50", {{.quota = 50, .peers = 3, .ring = 8, .ns = 2 * MS},
	 {.quota = 50, .peers = 3, .ring = 8, .ns = 2 * MS}}, .gets = {{50, 1.5, 1}, {50, 1.5, 1}}},
	{"four processes, short kernels", {{.quota = 30, .peers = 3, .ring = 4, .ns = 200000},
	 {.quota = 30, .peers = 3, .ring = 4, .ns = 200000}}, .gets = {{30, 1.5, 1}, {30, 1.5, 1}}},

	/* The first slice is alone at first and at last: it pays for no turns then, and the quota
	 * holds throughout. */
	{"60 alone", {{.quota = 60, .ns = MS},
	 {.quota = 30, .ns = MS, .from_ns = 2 * NS_PER_S, .until_ns = 3 * NS_PER_S}},
	 .gets = {{60, 2, 2}}, .from_ns = NS_PER_S, .until_ns = 2 * NS_PER_S, .pays_nothing = true},
	{"60 alone at first and at last", {{.quota = 60, .ns = MS},
	 {.quota = 30, .ns = MS, .from_ns = 2 * NS_PER_S, .until_ns = 3 * NS_PER_S}},
	 .gets = {{60, 2, 2}}, .from_ns = NS_PER_S, .until_ns = 5 * NS_PER_S},
	{"60 alone again", {{.quota = 60, .ns = MS},
	 {.quota = 30, .ns = MS, .from_ns = 2 * NS_PER_S, .until_ns = 3 * NS_PER_S}},
	 .gets = {{60, 2, 2}}, .from_ns = 4500 * MS, .until_ns = 6 * NS_PER_S, .pays_nothing = true},

	/* A host that does something else pays nothing for that time, and costs the other slice
	 * little. */
	{"60 beside 30 with pauses", {{.quota = 60, .ns = MS},
	 {.quota = 30, .ns = MS, .each_ns = 130 * MS, .pause_ns = 70 * MS}},
	 .gets = {{60, 1.5, 1}, {30, 1, 1}}},

	/* What nobody else wants. */
	{"30-100 alone", {{.quota = 30, .most = 100}, NOBODY}, .gets = {{100, 1, 1}},
	 .kernels = EACH_LENGTH},
	{"30-60 alone", {{.quota = 30, .most = 60}, NOBODY}, .gets = {{60, 1, 1}}, .kernels = EACH_LENGTH},
	/* Without turns, nothing shows what others want. */
	{"30-100 without turns", {{.quota = 30, .most = 100, .is_blind = true, .ns = MS}, NOBODY},
	 .gets = {{30, 1, 1}}},
	/* Beside one that always wants the device, a slice gets what it is assured, and what the
	 * other may not take. Not of 50 us, where a device that is busy all the time loses some with
	 * each turn. */
	{"30-100 beside 70", {{.quota = 30, .most = 100}, {.quota = 70}},
	 .gets = {{30, 3, 3}, {70, 3, 2}}, .kernels = NOT_THE_SHORTEST},
	{"30-100 beside 40", {{.quota = 30, .most = 100}, {.quota = 40}},
	 .gets = {{60, 3, 3}, {40, 3, 2}}, .kernels = NOT_THE_SHORTEST},
	{"30-100 beside no quota", {{.quota = 30, .most = 100}, {.quota = 0}},
	 .gets = {{30, 3, 3}, {70, 3, 2}}, .kernels = NOT_THE_SHORTEST},
	{"30-100 beside 70-100", {{.quota = 30, .most = 100}, {.quota = 70, .most = 100}},
	 .gets = {{30, 3, 3}, {70, 3, 2}}, .kernels = NOT_THE_SHORTEST},
	{"30-100 twice", {{.quota = 30, .most = 100}, {.quota = 30, .most = 100}},
	 .gets = {{50, 3, 3}, {50, 3, 2}}, .kernels = NOT_THE_SHORTEST},
	/* The most holds beside others, too. */
	{"30-60 beside 20", {{.quota = 30, .most = 60, .ns = MS}, {.quota = 20, .ns = MS}},
	 .gets = {{60, 2, 3}, {20, 1, 1}}},
	/* Another slice that comes gets its share from then on, and what it gives up is taken
	 * again. */
	{"30-100 beside one that came", {{.quota = 30, .most = 100, .ns = MS},
	 {.quota = 70, .ns = MS, .from_ns = 2 * NS_PER_S, .until_ns = 3 * NS_PER_S}},
	 .gets = {{30, 2, 4}, {70, 5, 1}}, .from_ns = 2200 * MS, .until_ns = 3 * NS_PER_S},
	{"30-100 after one that went", {{.quota = 30, .most = 100, .ns = MS},
	 {.quota = 70, .ns = MS, .from_ns = NS_PER_S, .until_ns = 2 * NS_PER_S}},
	 .gets = {{100, 2, 4}}, .from_ns = 2500 * MS, .until_ns = 4 * NS_PER_S},
	/* Limits hold for late hosts, too: a slice that rests at its limit lends nothing. */
	{"30 beside 60, hosts that are late", {LATE(30, 20), LATE(60, 20)},
	 .gets = {{30, 1, 1}, {60, 1, 1}}},
	{"30 beside 60, hosts that are seldom late", {LATE(30, 60), LATE(60, 60)},
	 .gets = {{30, 1, 1}, {60, 1, 1}}},
	/* clang-format on */
};

static void play_row(struct row row, uint64_t kernel_ns)
{
	double share[2];

	for (unsigned i = 0; i < 2 && kernel_ns; i++)
		row.tenants[i].ns = kernel_ns;
	if (!row.until_ns) {
		row.from_ns = NS_PER_S;
		row.until_ns = 4 * NS_PER_S;
	}
	play(&row, share);
	for (unsigned i = 0; i < 2; i++)
		if (row.gets[i].share > 0)
			assert_share(i ? "the second" : "the first", share[i], row.gets[i].share,
				     row.gets[i].less, row.gets[i].more);
	if (row.pays_nothing)
		assert_int_equal(results[0].paid_ns, 0);
}

UNIT_ROWS(rows)
{
	if (row->kernels == AS_GIVEN)
		play_row(*row, 0);
	if (row->kernels == EACH_LENGTH)
		play_row(*row, lengths[0]);
	for (unsigned i = 1; i < 3 && row->kernels != AS_GIVEN; i++)
		play_row(*row, lengths[i]);
}

/* Late hosts leave the device idle at times, and marks take about 1 % of its time. The slices
 * divide the rest by weight. */
static const struct {
	const char *name;
	unsigned quotas[2], late_one_in;
	double both; /* get together */
} late_hosts[] = {
	{"30-100 and 70-100, hosts that are late", {30, 70}, 20, 95},
	{"30-100 and 70-100, hosts that are seldom late", {30, 70}, 60, 98},
	{"10-100 and 90-100, hosts that are late", {10, 90}, 20, 95},
	{"10-100 and 90-100, hosts that are seldom late", {10, 90}, 60, 98},
	{"30-100 twice, hosts that are late", {30, 30}, 20, 95},
	{"30-100 twice, hosts that are seldom late", {30, 30}, 60, 98},
};

UNIT_ROWS(late_hosts)
{
	struct row both = {.from_ns = NS_PER_S, .until_ns = 4 * NS_PER_S};
	double share[2], sum;

	for (unsigned i = 0; i < 2; i++) {
		both.tenants[i] = (struct tenant)LATE(row->quotas[i], row->late_one_in);
		both.tenants[i].most = 100;
	}
	play(&both, share);
	sum = share[0] + share[1];
	assert_share("both", sum, row->both, 1, 1);
	assert_share("one, of what both get", 100 * share[0] / sum,
		     100.0 * row->quotas[0] / (row->quotas[0] + row->quotas[1]), 2, 2);
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
	CHECK(child > 0 && waitpid(child, NULL, 0) == child);
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
	CHECK(launch(&kernel) == 0);
	turn = cores_meter_at(0)->turn;
	file = turn->file.file;
	seat = turn->file.seat;
	slice = turn->file.slice;
	CHECK((file->seat[seat].owner & VGPU_TURNS_HOLDER) == slice + 1);
	CHECK((file->header.turn & VGPU_TURNS_HOLDER) == slice + 1);
	exit_as_child();
	CHECK((file->seat[seat].owner & VGPU_TURNS_HOLDER) == slice + 1);
	pace_begin_exit();
	CHECK((file->seat[seat].owner & VGPU_TURNS_HOLDER) == 0);
	CHECK((file->header.turn & VGPU_TURNS_HOLDER) == 0);
	CHECK((file->header.present >> slice & 1) == 0);
	CHECK(!cores_meter_at(0)->turn);
	pace_begin_exit();
	CHECK(launch(&kernel) == 0);
	many_end();
}

/* A process that exits gives its turn and its seat up; a launch after that goes all the same. */
UNIT_TEST(test_exit)
{
	many_play(1, leave, NULL);
	munmap(shared, sizeof(*shared));
	place_empty();
}

/* -- doubts ------------------------------------------------------------------------------------ */

static void doubt(void *arg)
{
	const struct tenant tenant = {.quota = 30, .most = 100};
	const struct kernel kernel = {.function = 1, .ns = MS};
	struct meter *meter = cores_meter_at(0);
	struct turn *turn;

	(void)arg;
	many_begin();
	join(&tenant);
	CHECK(launch(&kernel) == 0);
	CHECK(cores_limit(meter) == 0);
	turn = (struct turn *)(uintptr_t)meter->turn;
	turn->doubt_until = time_ns + NS_PER_S;
	CHECK(cores_limit(meter) == 30);
	pass(NS_PER_S);
	CHECK(cores_limit(meter) == 0);
	cores_note_gang(meter, true);
	CHECK(cores_limit(meter) == 30);
	cores_note_gang(meter, false);
	turn->is_lost = true;
	CHECK(cores_limit(meter) == 30);
	many_end();
}

/* While it doubts that it gets its turns, launches go by a gang, or the file is lost, turns do not
 * show what others want. */
UNIT_TEST(test_elastic_doubts)
{
	many_play(1, doubt, NULL);
	munmap(shared, sizeof(*shared));
	place_empty();
}
