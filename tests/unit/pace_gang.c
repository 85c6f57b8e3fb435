/* What jobs of several ranks get on the model of a gang, and what a rank that is odd does to one.
 */
#include "gang_model.h"

struct row {
	const char *name;
	struct job job;
	double least; /* of bare's steps, as a part of the quota */
};

/* What jobs of each kind get, and no device is at work for more than the quota. */
static const struct row rows[] = {
	/* clang-format off */
	{"two ranks",
	 {.ranks = 2, .kernel_ns = 1000 * US, .kernels = 1, .collective_ns = 200 * US,
	  .jitter_pct = 5, .ahead = 8, .call_ns = 5 * US}, 0.98},
	{"eight ranks, hosts that stall",
	 {.ranks = 8, .kernel_ns = 1000 * US, .kernels = 1, .collective_ns = 200 * US,
	  .jitter_pct = 30, .ahead = 8, .call_ns = 5 * US, .stall_ns = 2000 * US}, 0.97},
	{"short kernels",
	 {.ranks = 2, .kernel_ns = 50 * US, .kernels = 1, .collective_ns = 60 * US,
	  .jitter_pct = 30, .ahead = 8, .call_ns = 5 * US}, 0.97},
	{"eight ranks, short kernels, hosts that stall",
	 {.ranks = 8, .kernel_ns = 50 * US, .kernels = 1, .collective_ns = 60 * US,
	  .jitter_pct = 30, .ahead = 8, .call_ns = 5 * US, .stall_ns = 500 * US}, 0.93},
	{"many kernels to a collective",
	 {.ranks = 2, .kernel_ns = 30 * US, .kernels = 100, .collective_ns = 200 * US,
	  .jitter_pct = 30, .ahead = 4, .call_ns = 10 * US, .stall_ns = 100 * US}, 0.97},
	{"a host far ahead",
	 {.ranks = 2, .kernel_ns = 30 * US, .kernels = 30, .collective_ns = 200 * US,
	  .jitter_pct = 30, .ahead = 64, .call_ns = 5 * US}, 0.95},
	{"a host that waits for each step",
	 {.ranks = 2, .kernel_ns = 30 * US, .kernels = 100, .collective_ns = 200 * US,
	  .jitter_pct = 30, .ahead = 1, .call_ns = 10 * US, .stall_ns = 100 * US}, 0.97},
	{"hosts slower than their devices",
	 {.ranks = 2, .kernel_ns = 10 * US, .kernels = 20, .collective_ns = 50 * US,
	  .jitter_pct = 30, .ahead = 4, .call_ns = 20 * US, .stall_ns = 100 * US}, 1.1},
	{"slow hosts, four ranks",
	 {.ranks = 4, .kernel_ns = 60 * US, .kernels = 20, .collective_ns = 300 * US,
	  .jitter_pct = 30, .ahead = 4, .call_ns = 80 * US, .stall_ns = 1000 * US}, 0.98},
	{"long kernels",
	 {.ranks = 2, .kernel_ns = 10 * MS, .kernels = 3, .collective_ns = 5 * MS,
	  .jitter_pct = 30, .ahead = 4, .call_ns = 20 * US, .stall_ns = 100 * US}, 0.95},
	{"a rank with more kernels",
	 {.ranks = 2, .kernel_ns = 30 * US, .kernels = 60, .more = 6,
	  .collective_ns = 200 * US, .jitter_pct = 10, .ahead = 8, .call_ns = 10 * US,
	  .stall_ns = 100 * US}, 0.95},
	{"training with hosts that run ahead by chance",
	 {.ranks = 4, .kernel_ns = 30 * US, .kernels = 40, .collective_ns = 300 * US,
	  .jitter_pct = 30, .ahead = 16, .call_ns = 25 * US, .stall_ns = 3000 * US}, 0.95},
	{"ranks that do not wait for each other",
	 {.ranks = 2, .kernel_ns = 1 * MS, .kernels = 1, .collective_ns = 200 * US,
	  .jitter_pct = 30, .ahead = 8, .call_ns = 5 * US, .apart = true}, 0.95},
	{"four such ranks, long kernels",
	 {.ranks = 4, .kernel_ns = 10 * MS, .kernels = 1, .collective_ns = 200 * US,
	  .jitter_pct = 30, .ahead = 8, .call_ns = 5 * US, .apart = true}, 0.93},
	/* clang-format on */
};

/* The most steps, as a percentage of bare's, of a job whose devices have their quota: a job that
 * does not use all of its devices without a quota gets more of its speed than of its devices. */
static double most_of(unsigned pct)
{
	return (pct + 2.5) * 100 / bare_busy;
}

/* The same with one slice, and with a slice for each rank. */
static void assert_gets(const struct row *row, unsigned pct, bool joint)
{
	struct job job = row->job;
	double busy, got;

	job.pct = pct;
	job.joint = joint;
	got = share(job, &busy);
	print_message("quota %u%s: %.1f %% of bare, busy %.1f %%, closing %.1f %%\n", pct,
		      joint ? ", slices of their own" : "", got, busy, (double)closing_ns / 1e8);
	assert_true(got >= row->least * pct);
	assert_true(got <= most_of(pct));
	assert_true(busy <= pct + (joint ? 2.5 : 2));
}

UNIT_ROWS(rows)
{
	assert_gets(row, 30, false);
	assert_gets(row, 50, false);
	assert_gets(row, 80, false);
	assert_gets(row, 50, true);
}

/* Of slices with different quotas in one gang, the scarcest quota holds for all. */
UNIT_TEST_ALONE(test_joint_quotas)
{
	static const unsigned pcts[][2] = {{30, 60}, {60, 30}, {80, 20}};

	for (unsigned i = 0; i < sizeof(pcts) / sizeof(*pcts); i++) {
		struct job job = rows[0].job;
		unsigned least = pcts[i][0] < pcts[i][1] ? pcts[i][0] : pcts[i][1];
		double busy, got;

		job.joint = true;
		job.pct = pcts[i][0];
		job.second_pct = pcts[i][1];
		got = share(job, &busy);
		print_message("quotas %u and %u: %.1f %% of bare, busy %.1f %%\n", pcts[i][0],
			      pcts[i][1], got, busy);
		assert_true(got > 0.97 * least && got < least + 2.5 && busy < least + 2.5);
		for (unsigned k = 0; k < 2; k++) /* the rank may not have asked in a pause */
			assert_true(llabs(regions[k][0].bucket.charged -
					  (int64_t)words.group.used_ns) < (int64_t)(200 * MS));
	}
}

/* -- hosts that do something else ---------------------------------------------------------------
 */

static const struct job usual = {.ranks = 2,
				 .pct = 50,
				 .kernel_ns = 1000 * US,
				 .kernels = 1,
				 .collective_ns = 200 * US,
				 .jitter_pct = 5,
				 .ahead = 8,
				 .call_ns = 5 * US};

static int begin_usual(void **state)
{
	(void)state;
	begin(&usual);
	return 0;
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    begin_usual
#define UNIT_TEAR_DOWN NULL

/* A rank that pauses holds its peer up as it does without a quota, and the peer's spinning is
 * charged: the gang catches up with what the quota leaves. */
UNIT_TEST(test_late_rank)
{
	double part;

	for (unsigned i = 0; i < 20; i++) {
		run(&usual, 200 * MS);
		ranks[1].stopped = true;
		run(&usual, 100 * MS);
		ranks[1].stopped = false;
	}
	part = (double)words.group.used_ns / (double)(20 * 300 * MS);
	print_message("used %.1f %%, steps %u\n", part * 100, fewest_done(&usual));
	assert_true(part < 0.51);
	assert_true(fewest_done(&usual) > 800);
}

/* A rank that is stopped for long counts as idle after GANG_STALE_NS, whatever its device does; and
 * behind the stop the gang pays no more than GANG_DEBT_NS. */
UNIT_TEST(test_stopped_rank)
{
	uint32_t done;

	run(&usual, 1 * NS_PER_S);
	ranks[1].stopped = true;
	run(&usual, 10 * NS_PER_S);
	ranks[1].stopped = false;
	done = fewest_done(&usual);
	run(&usual, (uint64_t)-GANG_DEBT_NS * 2);
	run(&usual, 1 * NS_PER_S);
	print_message("%u steps, then %u\n", done, fewest_done(&usual) - done);
	assert_true(fewest_done(&usual) - done > 300);
}

/* Of a rank that is dead nothing is in flight, and its entry is another's. */
UNIT_TEST(test_dead_rank)
{
	struct job alone = usual;

	alone.apart = true; /* what the driver does of a peer's death is not of this test */
	begin(&alone);
	run(&alone, 500 * MS);
	ranks[1].stopped = dead[1] = true;
	ranks[1].head = ranks[1].tail;
	run(&alone, 1 * NS_PER_S);
	assert_int_equal(gang_members(&gangs[0]), 1);
	assert_int_equal(ranks[1].self.entry->owner, 0);
	assert_true(ranks[0].done > 500);
}

/* -- single questions ---------------------------------------------------------------------------
 */

static struct gang_sight sight_of(int64_t level_ns, bool in_flight)
{
	return (struct gang_sight){.level_ns = level_ns,
				   .ready_ns = level_ns < 0 ? (uint64_t)-level_ns : 0,
				   .in_flight = in_flight};
}

static uint64_t ask_as(unsigned rank, int64_t level_ns, bool in_flight)
{
	struct gang_sight sight = sight_of(level_ns, in_flight);

	if (in_flight)
		gang_is_busy(&gangs[rank], &ranks[rank].self, now_ns);
	else
		gang_is_idle(&gangs[rank], &ranks[rank].self, now_ns, now_ns);
	return gang_ask(&gangs[rank], &ranks[rank].self, &sight, now_ns);
}

UNIT_TEST(test_open)
{
	assert_int_equal(ask_as(0, 0, false), 0);
	assert_int_equal(ask_as(0, GANG_SHUT_NS + 1, true), 0);
	assert_false(!gang_is_open(&gangs[0]));
}

/* A member whose device is at work waits; one whose device is idle goes on after the grace; and no
 * member goes once all are idle, until the scarcest bucket has recovered. */
UNIT_TEST(test_closing)
{
	ask_as(1, 0, true);
	assert_int_not_equal(ask_as(0, GANG_SHUT_NS, true), 0);
	assert_true(!gang_is_open(&gangs[0]));
	assert_int_not_equal(ask_as(1, GANG_SHUT_NS, false), 0);
	now_ns += GANG_GRACE_NS;
	assert_int_equal(ask_as(1, GANG_SHUT_NS, false), 0);
	assert_int_not_equal(ask_as(0, GANG_SHUT_NS, true), 0);
	assert_int_equal(ask_as(0, GANG_SHUT_NS, false), -GANG_SHUT_NS);
	assert_int_equal(ask_as(1, -1000, false), -GANG_SHUT_NS);
	now_ns += (uint64_t)-GANG_SHUT_NS;
	assert_int_equal(ask_as(0, 0, false), 0);
	assert_false(!gang_is_open(&gangs[0]));
	assert_int_equal(devices[0].throttled, 1);
	assert_int_equal(devices[1].throttled, 1);
	assert_true(devices[0].throttled_ns > (uint64_t)-GANG_SHUT_NS);
}

/* A thread that serves two devices may have to launch to the one that is at work first. */
UNIT_TEST(test_patience)
{
	ask_as(1, 0, true);
	assert_int_not_equal(ask_as(0, GANG_SHUT_NS, true), 0);
	now_ns += GANG_PATIENCE_NS - 1;
	assert_int_not_equal(ask_as(0, GANG_SHUT_NS, true), 0);
	now_ns += 1;
	assert_int_equal(ask_as(0, GANG_SHUT_NS, true), 0);
	now_ns += GANG_PATIENCE_NS;
	assert_int_not_equal(ask_as(0, GANG_SHUT_NS, true), 0);
	now_ns += GANG_PATIENCE_NS;
	assert_int_equal(ask_as(0, GANG_SHUT_NS, true), 0);
}

/* The turn of an open gang is over. The gang opens again at the date of the next one, which is not
 * known before the member asks again. */
UNIT_TEST(test_turn_is_over)
{
	struct gang_sight sight = sight_of(0, false);

	sight.is_over = true;
	sight.ready_ns = GANG_TURN_POLL_NS;
	assert_int_equal(gang_ask(&gangs[0], &ranks[0].self, &sight, now_ns), GANG_POLL_NS);
	assert_false(gang_is_open(&gangs[0]));
	assert_int_not_equal(ask_as(1, 0, false), 0);
	sight = (struct gang_sight){.ready_ns = 2 * MS, .for_turn = true};
	assert_in_range(gang_ask(&gangs[0], &ranks[0].self, &sight, now_ns), 2 * MS, 2 * MS + 1);
	now_ns += 2 * MS + 1;
	assert_int_equal(ask_as(0, 0, false), 0);
	assert_true(gang_is_open(&gangs[0]));
}

/* Of another member, whether a launch of it waits for its turn: what it said as the gang opened
 * holds until the member had time to look, and what it said since, until then. */
UNIT_TEST(test_others_wait_for_turns)
{
	const struct gang *gang = &gangs[0];
	const struct gang_member *self = &ranks[0].self;

	words.group.opened_at = now_ns;
	gang_note_ready(&gangs[1], &ranks[1].self, 0, true, now_ns);
	assert_false(gang_waits_for_turn(&gangs[1], &ranks[1].self, now_ns));
	assert_true(gang_waits_for_turn(gang, self, now_ns));
	now_ns += GANG_TURN_SEEN_NS;
	assert_false(gang_waits_for_turn(gang, self, now_ns));
	gang_note_ready(&gangs[1], &ranks[1].self, MS, true, now_ns);
	assert_true(gang_waits_for_turn(gang, self, now_ns));
	assert_false(gang_waits_for_turn(gang, self, now_ns + MS + 1));
	now_ns += 2 * MS; /* it waits no more, and the gang opens again */
	words.group.opened_at = now_ns;
	assert_false(gang_waits_for_turn(gang, self, now_ns));
	gang_note_ready(&gangs[1], &ranks[1].self, MS, false, now_ns);
	assert_false(gang_waits_for_turn(gang, self, now_ns));
	gang_note_ready(&gangs[1], &ranks[1].self, MS, true, now_ns);
	dead[1] = true;
	assert_false(gang_waits_for_turn(gang, self, now_ns));
}

/* The gang's time is that in which any member has work in flight, once however many have. A device
 * pays for the time in which it has some. */
UNIT_TEST(test_time)
{
	uint64_t began_ns = now_ns;

	gang_count(&gangs[0], now_ns);
	gang_is_busy(&gangs[0], &ranks[0].self, now_ns += 1 * MS);
	gang_is_busy(&gangs[0], &ranks[1].self, now_ns += 1 * MS);
	gang_is_idle(&gangs[0], &ranks[0].self, now_ns + 1 * MS, now_ns + 2 * MS);
	gang_is_idle(&gangs[0], &ranks[1].self, now_ns + 3 * MS, now_ns + 10 * MS);
	gang_count(&gangs[0], now_ns + 20 * MS);
	assert_int_equal(words.group.used_ns, now_ns + 3 * MS - began_ns - 1 * MS);
	assert_int_equal(devices[0].bucket.charged, 2 * MS);
	assert_int_equal(devices[1].bucket.charged, 3 * MS);
}

/* A member does not look while another one counts each millisecond, for that long. */
static void count_for(uint64_t ns)
{
	uint64_t until_ns = now_ns + ns;

	gang_count(&gangs[0], now_ns);
	gang_is_busy(&gangs[0], &ranks[0].self, now_ns);
	while (now_ns < until_ns)
		gang_count(&gangs[1], now_ns += MS);
}

/* What others charged beyond the most debt was not charged, and is not given back. */
UNIT_TEST(test_no_credit_from_the_most_debt)
{
	uint64_t began_ns = now_ns;

	count_for(990 * MS);
	assert_int_equal(devices[0].bucket.charged, -GANG_DEBT_NS);
	gang_is_idle(&gangs[0], &ranks[0].self, began_ns + 450 * MS, now_ns);
	assert_int_equal(devices[0].bucket.charged, 450 * MS);
	assert_int_equal(devices[1].bucket.charged, 0);
}

/* The device began the work later than the host: it had ended before the last look, which found it
 * in flight. */
UNIT_TEST(test_ended_before_the_last_look)
{
	uint64_t began_ns = now_ns;

	count_for(10 * MS);
	gang_is_busy(&gangs[0], &ranks[0].self, now_ns);
	gang_count(&gangs[1], now_ns += 1 * MS);
	gang_is_idle(&gangs[0], &ranks[0].self, began_ns + 9 * MS, now_ns += 1 * MS);
	assert_int_equal(devices[0].bucket.charged, 9 * MS);
}

/* What the bucket is charged meanwhile for work outside the gang is not given back. */
UNIT_TEST(test_charges_of_others)
{
	uint64_t began_ns = now_ns;

	gang_count(&gangs[0], now_ns);
	gang_is_busy(&gangs[0], &ranks[0].self, now_ns);
	devices[0].bucket.charged += (int64_t)(50 * MS);
	now_ns += 100 * MS;
	gang_is_idle(&gangs[0], &ranks[0].self, began_ns + 1 * MS, now_ns);
	assert_int_equal(devices[0].bucket.charged, 51 * MS);
}

/* Two members on one device. The first one's end is seen while the second works: what the first got
 * back is not charged to the second. */
UNIT_TEST(test_two_on_a_device)
{
	struct gang_member second = {.entry = NULL};
	uint64_t began_ns = now_ns;

	gang_count(&gangs[0], now_ns);
	assert_true(gang_join(&gangs[0], &second, 3, 0));
	gang_is_busy(&gangs[0], &ranks[0].self, now_ns);
	gang_is_busy(&gangs[0], &second, began_ns + 5 * MS);
	gang_is_idle(&gangs[0], &ranks[0].self, began_ns + 3 * MS, began_ns + 8 * MS);
	gang_is_idle(&gangs[0], &second, began_ns + 12 * MS, began_ns + 12 * MS);
	assert_int_equal(devices[0].bucket.charged, 10 * MS);
}

/* A member that was not seen for GANG_STALE_NS pays what nobody has paid, and gets nothing back. */
static const struct {
	const char *name;
	bool counted;
	int64_t charged_ns;
} late[] = {{"a late member pays", false, 5 * MS},
	    {"a late member gets nothing back", true, -GANG_DEBT_NS}};

UNIT_ROWS(late)
{
	uint64_t began_ns = now_ns;

	gang_count(&gangs[0], now_ns);
	gang_is_busy(&gangs[0], &ranks[0].self, now_ns);
	now_ns += 990 * MS;
	if (row->counted)
		gang_count(&gangs[1], now_ns);
	now_ns += 210 * MS;
	gang_is_idle(&gangs[0], &ranks[0].self, began_ns + 5 * MS, now_ns);
	assert_int_equal(devices[0].bucket.charged, row->charged_ns);
	assert_int_equal(words.member[0].in_flight, 0);
}

/* A device whose entry is gone gets back no more than the time since its work ended. */
UNIT_TEST(test_entry_is_gone)
{
	count_for(100 * MS);
	words.member[0].owner = 0;
	gang_is_idle(&gangs[0], &ranks[0].self, now_ns - 10 * MS, now_ns);
	assert_int_equal(devices[0].bucket.charged, 90 * MS);
}

/* A device that joins later is charged neither for what was before, nor for what others do. */
UNIT_TEST(test_join)
{
	struct gang_member self = {.entry = NULL};

	run(&usual, 100 * MS);
	assert_true(words.group.used_ns > 0);
	assert_true(gang_join(&gangs[0], &self, 3, 2));
	run(&usual, 10 * MS);
	assert_int_equal(devices[2].bucket.charged, 0); /* it has no work in flight */
	gang_leave(&self);
	assert_int_equal(gang_members(&gangs[0]), 2);
}

/* A gang that its second last member left shut throttles nobody: it is open for the next member,
 * and the time between counts as throttled for nobody. */
UNIT_TEST(test_next_gang_is_open)
{
	assert_int_not_equal(ask_as(0, GANG_SHUT_NS, false), 0);
	assert_true(!gang_is_open(&gangs[0]));
	gang_leave(&ranks[1].self);
	now_ns += 3600 * NS_PER_S;
	assert_true(gang_join(&gangs[1], &ranks[1].self, 2, 1));
	assert_false(!gang_is_open(&gangs[0]));
	assert_int_equal(ask_as(0, 0, false), 0);
	assert_int_equal(ask_as(1, 0, false), 0);
	assert_int_equal(devices[0].throttled, 0);
	assert_int_equal(devices[0].throttled_ns, 0);
}

/* Members of several slices: each process charges its own slice's device, once however many
 * members of the slice there are, and counts for how long that was throttled. */
UNIT_TEST(test_joint_devices)
{
	struct job job = usual;
	struct gang_member second = {.entry = NULL};

	job.joint = true;
	begin(&job);
	gang_join_at(&gangs[0], &second, 2, 3, 0);
	gang_is_busy(&gangs[0], &second, now_ns);
	gang_is_busy(&gangs[0], &ranks[0].self, now_ns);
	ask_as(1, 0, true);
	gang_count(&gangs[0], now_ns += 10 * MS);
	assert_int_equal(regions[0][0].bucket.charged, 10 * MS);
	assert_int_equal(regions[0][0].bucket.joint_charged, 10 * MS);
	assert_int_equal(regions[0][0].gang_until, 0);
	assert_int_equal(turns[0][0].joint_until, now_ns);
	assert_int_equal(regions[1][0].bucket.charged, 0); /* as its process asked last */
	gang_count(&gangs[1], now_ns += 1 * MS);
	assert_int_equal(regions[1][0].bucket.charged, 11 * MS);
	assert_int_equal(regions[0][1].bucket.charged, 0);
	gang_is_idle(&gangs[0], &second, now_ns, now_ns);
	gang_is_idle(&gangs[0], &ranks[0].self, now_ns, now_ns);
	gang_count(&gangs[0], now_ns += 1 * MS);
	assert_int_equal(regions[0][0].bucket.charged, 11 * MS);

	ask_as(0, GANG_SHUT_NS, false);
	ask_as(1, 0, false);
	assert_true(!gang_is_open(&gangs[0]));
	now_ns += (uint64_t)-GANG_SHUT_NS;
	assert_int_equal(ask_as(1, 0, false), 0);
	assert_false(!gang_is_open(&gangs[0]));
	now_ns += 100 * MS;
	assert_int_equal(ask_as(0, 0, false), 0);
	assert_int_equal(ask_as(1, 0, false), 0);
	assert_int_equal(ask_as(0, 0, false), 0);
	assert_int_equal(regions[0][0].throttled, 1);
	assert_int_equal(regions[1][0].throttled, 1);
	assert_int_equal(regions[0][0].throttled_ns, -GANG_SHUT_NS);
	assert_int_equal(regions[1][0].throttled_ns, -GANG_SHUT_NS);
}

/* A slice that leaves and joins again is not charged for the time between. */
UNIT_TEST(test_joint_again)
{
	struct job job = usual;
	int64_t before_ns;

	job.joint = true;
	begin(&job);
	run(&job, 100 * MS);
	before_ns = regions[1][0].bucket.charged;
	gang_leave(&ranks[1].self);
	words.group.used_ns += 3 * NS_PER_S;
	gang_join_at(&gangs[1], &ranks[1].self, 1, 77, 0);
	gang_count(&gangs[1], now_ns);
	assert_true(regions[1][0].bucket.charged - before_ns < (int64_t)(1 * MS));
}
