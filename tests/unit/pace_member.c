/* A process whose two devices are a gang: what it gets, and what it is charged. */
#include "bucket.h"
#include "pace_fake.h"

static struct vgpu_region_gang *words;

/* One process with a device each of the gang, at that quota. */
static void begin(unsigned pct)
{
	joined(pct);
	pace_set_gang(PACE_GANG_FOUND);
	words = &region.file->own.gang;
	pace_join_gang(0);
	pace_join_gang(1);
}

/* For how long any device was at work, as the devices know. */
static uint64_t union_ns, union_until_ns;

static void launch_on(int device, uint64_t ns)
{
	struct kernel kernel = kernel_on(device, ns);
	uint64_t from_ns, until_ns;

	assert_int_equal(launch(&kernel), 0);
	until_ns = fake.done_ns[device];
	from_ns = until_ns - ns > union_until_ns ? until_ns - ns : union_until_ns;
	if (until_ns <= from_ns)
		return;
	union_ns += until_ns - from_ns;
	union_until_ns = until_ns;
}

UNIT_TEST(test_members)
{
	begin(50);
	assert_int_equal(words->group.members, 2);
	assert_int_equal(words->member[0].device, 0);
	assert_int_equal(words->member[1].device, 1);
	pace_join_gang(0);
	pace_join_gang(7);
	pace_join_gang(-1);
	assert_int_equal(words->group.members, 2);
}

UNIT_TEST(test_policy_says_no)
{
	joined(50);
	pace_set_gang(PACE_GANG_NO);
	pace_join_gang(0);
	launch_on(0, 10 * NS_PER_US);
	assert_int_equal(words->group.members, 0);
	left();
	pace_set_gang(PACE_GANG_FOUND);
}

UNIT_TEST(test_policy_says_yes)
{
	joined(50);
	pace_set_gang(PACE_GANG_YES);
	launch_on(0, 10 * NS_PER_US);
	launch_on(1, 10 * NS_PER_US);
	assert_int_equal(words->group.members, 2);
	left();
	pace_set_gang(PACE_GANG_FOUND);
}

/* Copies, and what stalls a stream, ask the driver nothing: windows need them, and a gang has none.
 * So it is for a thread that launched before there was a gang, too. */
UNIT_TEST(test_stalls_ask_nothing)
{
	const struct pace_work work = {.context = &context_a, .stream = &fake.streams[0][0]};
	uint64_t asked = 0;

	joined(50);
	pace_set_gang(PACE_GANG_FOUND);
	words = &region.file->own.gang;
	for (unsigned i = 0; i < 1000; i++)
		launch_on(0, 20 * NS_PER_US);
	pace_join_gang(0);
	pace_join_gang(1);
	launch_on(1, 20 * NS_PER_US);
	for (unsigned i = 0; i < 1000; i++) {
		uint64_t before;

		launch_on(0, 20 * NS_PER_US);
		before = fake.calls;
		pace_will_stall(&work);
		pace_will_copy(&work, 1 << 20);
		asked += fake.calls - before;
	}
	assert_int_equal(asked, 0);
}

/* The driver is asked some times in a millisecond while the device is busy, however short launches
 * are and however often the program asks whether they are over. */
UNIT_TEST(test_seldom_asks)
{
	uint64_t calls, marks, launches = 2000;

	begin(90);
	launch_on(1, 20 * NS_PER_US);
	for (unsigned i = 0; i < 200; i++)
		launch_on(0, 20 * NS_PER_US);
	calls = fake.calls;
	marks = fake.fences;
	for (unsigned i = 0; i < launches; i++) {
		launch_on(0, 20 * NS_PER_US);
		pace_will_look(&context_a, false);
		pace_found_busy();
		pass(18 * NS_PER_US);
	}
	calls = fake.calls - calls;
	marks = fake.fences - marks;
	print_message("%.2f calls of the driver for a launch, %.2f marks\n",
		      (double)calls / (double)launches, (double)marks / (double)launches);
	assert_true(calls < launches * 50 / 100);
	assert_true(marks < launches * 20 / 100);
}

/* Nor is a program slowed that waits for each launch, or whose device is idle between launches: a
 * few calls for a launch say that it is over, and the length of only a few periods is asked for. */
UNIT_TEST(test_seldom_measures)
{
	uint64_t calls, elapsed, launches = 2000;

	begin(90);
	launch_on(1, 20 * NS_PER_US);
	for (unsigned i = 0; i < 200; i++)
		launch_on(0, 20 * NS_PER_US);
	calls = fake.calls;
	elapsed = fake.elapsed;
	for (unsigned i = 0; i < launches; i++) {
		launch_on(0, 20 * NS_PER_US);
		if (i % 2) {
			pace_will_wait(&context_a, true);
			wait_until(fake.done_ns[0]);
		} else {
			pass(80 * NS_PER_US);
		}
	}
	calls = fake.calls - calls;
	elapsed = fake.elapsed - elapsed;
	print_message("%.2f calls of the driver for a launch, %.2f for a length\n",
		      (double)calls / (double)launches, (double)elapsed / (double)launches);
	assert_true(calls < launches * 4);
	assert_true(elapsed < launches * 20 / 100);
}

/* What is paced by a device's own costs: a gang of one member. */
UNIT_TEST(test_one_member_is_no_gang)
{
	struct kernel kernel = kernel_on(0, 100 * NS_PER_US);

	joined(50);
	words = &region.file->own.gang;
	pace_join_gang(0);
	assert_share("a member alone", share_of(&kernel, 1, NS_PER_S), 50, 1, 1);
	assert_int_equal(words->group.used_ns, 0);
}

static void join_second(void)
{
	pace_join_gang(1);
}

/* A launch that waits for the device's own bucket as the gang begins: its peers may wait for it, so
 * it goes by the gang's rules from then on. */
UNIT_TEST(test_gang_begins_during_a_wait)
{
	struct kernel kernel = kernel_on(0, 100 * NS_PER_US);
	uint64_t began_ns;

	joined(10);
	pace_join_gang(0);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(launch(&kernel), 0);
	bucket_of(0)->charged += bucket_level(bucket_of(0)) + (int64_t)(10 * MS);
	began_ns = time_ns;
	at_time(time_ns + 10 * MS, join_second);
	assert_int_equal(launch(&kernel), 0);
	assert_in_range(time_ns - began_ns, 10 * MS, 35 * MS);
}

static const unsigned quotas[] = {10, 30, 50, 80};

UNIT_TEST(test_always_busy)
{
	for (unsigned i = 0; i < 4; i++) {
		uint64_t began_ns;

		begin(quotas[i]);
		began_ns = time_ns;
		while (time_ns - began_ns < 10 * NS_PER_S) {
			launch_on(0, 300 * NS_PER_US);
			launch_on(1, 300 * NS_PER_US);
		}
		assert_share("the gang",
			     100.0 * (double)words->group.used_ns / (double)(time_ns - began_ns),
			     quotas[i], 2, 2);
		left();
	}
}

/* Hosts that pause between launches: what a device did not do is not charged. */
static void run_pausing(uint64_t kernel_ns, uint64_t pause_ns, bool waits)
{
	uint64_t began_ns;

	begin(99);
	launch_on(0, kernel_ns);
	launch_on(1, kernel_ns);
	pace_will_wait(&context_a, true);
	wait_until(fake.done_ns[0] > fake.done_ns[1] ? fake.done_ns[0] : fake.done_ns[1]);
	began_ns = time_ns;
	union_ns = words->group.used_ns = 0;
	union_until_ns = time_ns;
	while (time_ns - began_ns < 2 * NS_PER_S) {
		launch_on(0, kernel_ns);
		launch_on(1, kernel_ns);
		if (waits) {
			pace_will_wait(&context_a, true);
			wait_until(fake.done_ns[1]);
			pace_will_wait(&context_a, true);
			wait_until(fake.done_ns[0]);
		}
		pass(pause_ns);
	}
}

UNIT_TEST(test_pauses)
{
	static const struct {
		uint64_t kernel_ns, pause_ns;
		bool waits;
		double most; /* charged, of what was used */
	} rows[] = {
		{1000 * NS_PER_US, 1000 * NS_PER_US, true, 1.02},
		{50 * NS_PER_US, 100 * NS_PER_US, true, 1.05},
		{10 * MS, 10 * MS, true, 1.01},
		{1000 * NS_PER_US, 1000 * NS_PER_US, false, 1.02},
		{100 * NS_PER_US, 300 * NS_PER_US, false, 1.1},
		{20 * NS_PER_US, 100 * NS_PER_US, false, 1.5},
		{10 * NS_PER_US, 1000 * NS_PER_US, false, 1.5},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		double part;

		run_pausing(rows[i].kernel_ns, rows[i].pause_ns, rows[i].waits);
		part = (double)words->group.used_ns / (double)union_ns;
		print_message("%u: charged %.3f of what was used\n", i, part);
		assert_true(part > 0.98 && part < rows[i].most);
		left();
	}
}

/* -- what has no mark ------------------------------------------------------------------------- */

/* For two seconds, a short kernel and so many others of long_ns, at once; then the host does
 * something else until pause_ns after the device is through, and waits for nothing. */
static double charged_of_bursts(unsigned many, uint64_t long_ns, uint64_t pause_ns)
{
	uint64_t began_ns;
	double part;

	begin(99);
	launch_on(1, 1 * NS_PER_US);
	launch_on(0, 1 * NS_PER_US);
	pass(10 * MS);
	began_ns = time_ns;
	union_ns = words->group.used_ns = 0;
	union_until_ns = time_ns;
	while (time_ns - began_ns < 2 * NS_PER_S) {
		launch_on(0, 1 * NS_PER_US);
		for (unsigned i = 0; i < many; i++)
			launch_on(0, long_ns);
		pass(fake.done_ns[0] > time_ns ? fake.done_ns[0] - time_ns + pause_ns : pause_ns);
	}
	launch_on(0, 1 * NS_PER_US);
	part = (double)words->group.used_ns / (double)union_ns;
	print_message("1 us and %u of %lu us, pauses of %lu us: charged %.3f of what was used\n",
		      many, (unsigned long)(long_ns / 1000), (unsigned long)(pause_ns / 1000),
		      part);
	left();
	return part;
}

/* A kernel behind the last mark is not charged as if it took as long as the ones before it. */
UNIT_TEST(test_long_behind_short)
{
	static const uint64_t long_ns[] = {100 * NS_PER_US, 400 * NS_PER_US, 900 * NS_PER_US,
					   2 * MS, 100 * MS};

	for (unsigned i = 0; i < sizeof(long_ns) / sizeof(*long_ns); i++)
		assert_true(charged_of_bursts(1, long_ns[i], 20 * NS_PER_US) > 0.95);
}

/* Nor is a host that pauses charged for its pauses, but for the first one. */
UNIT_TEST(test_bursts)
{
	assert_true(charged_of_bursts(50, 20 * NS_PER_US, 2 * MS) < 1.1);
	assert_true(charged_of_bursts(500, 20 * NS_PER_US, 10 * MS) < 1.1);
}

/* A mark takes the host and the device as long as a short kernel does. So where the time that has
 * no mark is short, a few marks measure it: otherwise training with a slow host loses a tenth of
 * its speed (H200). */
UNIT_TEST(test_short_tails_take_few_marks)
{
	uint64_t marks, launches = 0;

	begin(99);
	launch_on(1, 1 * NS_PER_US);
	launch_on(0, 20 * NS_PER_US);
	pass(10 * MS);
	marks = fake.fences;
	for (unsigned period = 0; period < 500; period++) {
		for (unsigned i = 0; i < 100; i++, launches++) {
			launch_on(0, 40 * NS_PER_US);
			pass(20 * NS_PER_US);
		}
		pass(fake.done_ns[0] - time_ns + 150 * NS_PER_US);
	}
	marks = fake.fences - marks;
	print_message("%.2f marks for a launch\n", (double)marks / (double)launches);
	assert_true((double)marks / (double)launches < 0.4);
	left();
}

/* A capture, in which the driver refuses marks that follow all streams, is over. Launches then take
 * as few marks as before. */
UNIT_TEST(test_few_marks_after_a_capture)
{
	uint64_t marks, launches = 20000;

	begin(99);
	launch_on(1, 1 * NS_PER_US);
	fake.no_fences = true;
	for (unsigned i = 0; i < 1000; i++)
		launch_on(0, 50 * NS_PER_US);
	fake.no_fences = false;
	pass(NS_PER_S);
	marks = fake.fences;
	for (unsigned i = 0; i < launches; i++)
		launch_on(0, 50 * NS_PER_US);
	marks = fake.fences - marks;
	print_message("%.2f marks for a launch after a capture\n",
		      (double)marks / (double)launches);
	assert_true(marks < launches / 5);
	left();
}

/* A program with eight launches in flight, which waits for the oldest before each launch. Each wait
 * is for a part of its work. A wait for all of it is marked again. */
UNIT_TEST(test_waits_for_a_part_take_few_marks)
{
	uint64_t marks, launches = 20000, ended_ns;

	begin(99);
	launch_on(1, 1 * NS_PER_US);
	for (unsigned i = 0; i < 8; i++)
		launch_on(0, 50 * NS_PER_US);
	marks = fake.fences;
	for (unsigned i = 0; i < launches; i++) {
		uint64_t oldest_ns = fake.done_ns[0] - 350 * NS_PER_US;

		pace_will_wait(&context_a, false);
		wait_until(oldest_ns > time_ns ? oldest_ns : time_ns);
		launch_on(0, 50 * NS_PER_US);
	}
	marks = fake.fences - marks;
	print_message("%.2f marks for a launch\n", (double)marks / (double)launches);
	assert_true((double)marks / (double)launches < 0.35);
	pace_will_wait(&context_a, false);
	pace_will_wait(&context_a, false);
	ended_ns = fake.done_ns[0];
	wait_until(ended_ns);
	pass(NS_PER_S);
	launch_on(0, 1 * NS_PER_US);
	assert_in_range(words->member[0].ended, ended_ns - 100 * NS_PER_US,
			ended_ns + 100 * NS_PER_US);
	left();
}

/* A server whose requests wait for a part of their work first, and then for the rest. The second
 * wait is not known to be for all of it, and its host pauses afterwards. The device reaches a mark
 * seen_ns late. Returns the time charged, of the time used. */
static double charged_of_server(uint64_t gap_ns, uint64_t seen_ns)
{
	uint64_t until_ns;
	double part;

	begin(99);
	launch_on(1, 1 * NS_PER_US);
	launch_on(0, 1 * NS_PER_US);
	pass(10 * MS);
	fake.seen_ns = seen_ns;
	union_ns = words->group.used_ns = 0;
	union_until_ns = time_ns;
	until_ns = time_ns + 5 * NS_PER_S;
	while (time_ns < until_ns) {
		launch_on(0, 30 * NS_PER_US);
		launch_on(0, 30 * NS_PER_US);
		pace_will_wait(&context_a, false);
		wait_until(fake.done_ns[0] - 30 * NS_PER_US);
		launch_on(0, 30 * NS_PER_US);
		pace_will_wait(&context_a, false);
		wait_until(fake.done_ns[0]);
		pass(gap_ns);
	}
	part = (double)words->group.used_ns / (double)union_ns;
	print_message("pauses of %lu us: charged %.3f of what was used\n",
		      (unsigned long)(gap_ns / 1000), part);
	left();
	return part;
}

UNIT_TEST(test_server_that_waits_for_parts)
{
	static const uint64_t gaps_ns[] = {300 * NS_PER_US, 800 * NS_PER_US, 3 * MS, 100 * MS};

	for (unsigned i = 0; i < 2 * sizeof(gaps_ns) / sizeof(*gaps_ns); i++) {
		double part = charged_of_server(gaps_ns[i / 2], i % 2 * 5 * NS_PER_US);

		assert_true(part > 0.98 && part < 1.1);
	}
}

/* A program that hides each long kernel behind a short one, and waits by a poll of its memory. At
 * first, its periods of work are short, and mostly pause. */
UNIT_TEST(test_long_kernels_behind_decoys)
{
	uint64_t began_ns, busy_ns;

	begin(30);
	launch_on(1, 1 * NS_PER_US);
	for (unsigned i = 0; i < 40; i++) {
		launch_on(0, 5 * NS_PER_US);
		launch_on(0, 5 * NS_PER_US);
		pass(fake.done_ns[0] - time_ns + 600 * NS_PER_US);
	}
	began_ns = time_ns;
	busy_ns = fake.busy_ns[0];
	while (time_ns - began_ns < 5 * NS_PER_S) {
		launch_on(0, 1 * NS_PER_US);
		launch_on(0, 1900 * NS_PER_US);
		pass(fake.done_ns[0] > time_ns ? fake.done_ns[0] - time_ns + 20 * NS_PER_US : 0);
	}
	assert_share("the device",
		     100.0 * (double)(fake.busy_ns[0] - busy_ns) / (double)(time_ns - began_ns), 30,
		     1, 1.5);
	left();
}

/* A process that is stopped as it launches: what it launched last may have taken long, but it pays
 * for no more than TAIL_MOST_NS. */
UNIT_TEST(test_stopped_as_it_launches)
{
	begin(99);
	launch_on(1, 1 * NS_PER_US);
	launch_on(0, 1 * NS_PER_US);
	launch_on(0, 1 * NS_PER_US);
	pass(1000 * NS_PER_S);
	launch_on(0, 1 * NS_PER_US);
	assert_in_range(words->group.used_ns, 5 * NS_PER_S, 11 * NS_PER_S);
}
