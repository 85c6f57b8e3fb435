/* Odd programs whose two devices are a gang: none gets out of its quota, or loses by it. */
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

static void wait_for_both(void)
{
	for (int device = 0; device < DEVICES; device++) {
		pace_will_wait(&context_a, true);
		wait_until(fake.done_ns[device]);
	}
}

/* For which part of so long the first device is busy, in percent, if there is enough to do. */
static double busy_for(uint64_t for_ns)
{
	struct sums then = sums_now();

	while (time_ns - then.at_ns < for_ns) {
		launch_for_ns(0, 1 * MS);
		launch_for_ns(1, 1 * MS);
	}
	return share_since(&then);
}

/* A host that pauses for long, and does not wait before: the time of which nobody knew that the
 * device was idle is taken back, and is no credit. */
UNIT_TEST(test_pauses_are_no_credit)
{
	static const uint64_t pauses_ms[] = {900, 1500, 2050, 5000};

	for (unsigned i = 0; i < sizeof(pauses_ms) / sizeof(*pauses_ms); i++) {
		begin(10);
		for (unsigned k = 0; k < 10; k++) {
			launch_for_ns(0, 100 * MS);
			launch_for_ns(1, 100 * MS);
			pass(pauses_ms[i] * MS);
		}
		assert_int_equal(bucket_of(0)->charged / (int64_t)MS, 900);
		assert_int_equal(bucket_of(1)->charged / (int64_t)MS, 900);
		/* credit of 20 ms at first and some debt at the end are half a point of it */
		assert_share("behind pauses", busy_for(10 * NS_PER_S), 10, 1, 1);
		left();
	}
}

/* A host that launches one kernel and waits for it. For which part of the time the device is busy,
 * in percent, between launches. */
static double busy_with_waits(unsigned pct, uint64_t kernel_ns)
{
	uint64_t began_ns, busy_ns;

	begin(pct);
	began_ns = time_ns;
	for (unsigned i = 0; i < 10; i++) {
		launch_for_ns(0, kernel_ns);
		launch_for_ns(1, kernel_ns);
		wait_for_both();
	}
	busy_ns = fake.busy_ns[0];
	launch_for_ns(0, 1 * MS);
	left();
	return 100.0 * (double)busy_ns / (double)(time_ns - began_ns);
}

/* A kernel that a host waits for is charged, however long nobody looks: in full as long as that is
 * less than the most debt, and what the bucket gets meanwhile. */
UNIT_TEST(test_long_waits)
{
	assert_share("300 ms", busy_with_waits(10, 300 * MS), 10, 1, 1);
	assert_share("300 ms", busy_with_waits(50, 300 * MS), 50, 1, 1);
	assert_share("900 ms", busy_with_waits(50, 900 * MS), 50, 1, 1);
	assert_share("900 ms", busy_with_waits(80, 900 * MS), 80, 1, 1);
	assert_share("2 s", busy_with_waits(80, 2000 * MS), 80, 1, 1);
	assert_true(busy_with_waits(10, 2500 * MS) < 40);
	assert_true(busy_with_waits(10, 5000 * MS) < 60);
}

/* A thread that looks while another gives the driver a launch does not take the device for idle. */
UNIT_TEST(test_looks_between)
{
	struct fake_stream *stream = &fake.streams[0][0];
	struct pace_work work = {.context = &context_a,
				 .stream = stream,
				 .what = {.function = 9, .shape = 1, .blocks = 1}};
	struct pace_pass pass_through;

	begin(50);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pace_enter(&pass_through, &work), 0);
		pace_will_wait(&context_a, true);
		pace_waited(); /* the other thread */
		submit(0, stream, 200 * MS);
		pace_leave(&pass_through, &work, true);
		assert_int_equal(words->member[0].in_flight, 1);
		synchronise_stream(0);
		assert_int_equal(words->member[0].in_flight, 0);
	}
	assert_true(words->group.used_ns > 399 * MS && words->group.used_ns < 401 * MS);
}

/* A launch that the driver refuses leaves nothing in flight. */
UNIT_TEST(test_refused)
{
	struct pace_work work = {.context = &context_a,
				 .stream = &fake.streams[0][0],
				 .what = {.function = 9, .shape = 1, .blocks = 1}};
	struct pace_pass pass_through;

	begin(50);
	assert_int_equal(pace_enter(&pass_through, &work), 0);
	pace_leave(&pass_through, &work, false);
	pace_will_wait(&context_a, true);
	pace_waited();
	assert_int_equal(words->member[0].in_flight, 0);
	assert_true(words->group.used_ns < 1 * MS);
}

static void launch_beside(void)
{
	struct kernel kernel = {.function = 8, .ns = 1 * MS, .stream = 1};

	assert_int_equal(launch(&kernel), 0);
}

/* The driver may keep a thread that records the begin of a period until another has launched: the
 * queue of its stream is full, and what is in it waits for that launch. Here, the other thread's
 * launch is made within the driver's call. */
UNIT_TEST(test_kept_at_begin)
{
	begin(50);
	fake.record_ns = 1 * MS;
	at_time(time_ns + MS / 2, launch_beside);
	launch_for_ns(0, 1 * MS);
	assert_true(then_ns == UINT64_MAX);
	fake.record_ns = 0;
	synchronise_stream(0);
	synchronise_stream(1);
	assert_int_equal(words->member[0].in_flight, 0);
}

/* What the gang has charged is in no window of the time before or behind it. */
UNIT_TEST(test_no_gang_any_more)
{
	struct kernel kernel = {.function = 7, .ns = 300 * NS_PER_US};

	joined(50);
	pace_set_gang(PACE_GANG_FOUND);
	words = &region.file->own.gang;
	pace_join_gang(0);
	for (unsigned i = 0; i < 3; i++) {
		pace_set_gang(PACE_GANG_FOUND);
		assert_share("one member", share_of(&kernel, 1, NS_PER_S), 50, 5, 1);
		pace_join_gang(1);
		assert_share("two members", busy_for(5 * NS_PER_S), 50, 2, 2);
		pace_set_gang(PACE_GANG_NO);
		assert_share("none", share_of(&kernel, 1, NS_PER_S), 50, 5, 1);
	}
	left();
	pace_set_gang(PACE_GANG_FOUND);
}

/* A gang that has no entry left is not asked with each launch, so an entry that becomes free is
 * seen later. One line says that the gang is full. */
static void find_full(void)
{
	uint32_t owner;

	begin(50);
	owner = words->member[0].owner;
	left();
	joined(50);
	words = &region.file->own.gang;
	words->group.members = VGPU_GANG_MEMBERS_MAX;
	for (unsigned i = 0; i < VGPU_GANG_MEMBERS_MAX; i++) {
		words->member[i].owner = owner;
		words->member[i].device = 1;
	}
	launch_for_ns(0, 1 * MS);
	pass(NS_PER_S);
	launch_for_ns(0, 1 * MS);
	assert_int_equal(fake.lines, 1);
	assert_non_null(strstr(fake.line, "no entry left for this program among the 28"));
	assert_non_null(strstr(fake.line, "run fewer programs in the slice"));
	words->member[5].owner = 0;
	launch_for_ns(0, 1 * MS);
	assert_int_equal(words->member[5].owner, 0);
	pass(NS_PER_S);
	launch_for_ns(0, 1 * MS);
	assert_int_equal(words->member[5].owner, owner);
	assert_int_equal(words->member[5].device, 0);
	left();
}

/* Each process says its line, also one that is forked from a process that has said it. */
UNIT_TEST(test_full)
{
	for (unsigned processes = 0; processes < 2; processes++)
		find_full();
}

/* A device that leaves its gang, as the policy says, pays for what it has in flight, although
 * nobody looked for so long that it counts as idle: until now, or until that ended. */
UNIT_TEST(test_leaves_with_work_in_flight)
{
	static const uint64_t kernels_ms[] = {500, 2000, 9000};

	for (unsigned i = 0; i < sizeof(kernels_ms) / sizeof(*kernels_ms); i++) {
		uint64_t used_ns, ms = kernels_ms[i] < 3000 ? kernels_ms[i] : 3000;

		begin(50);
		launch_for_ns(1, 1 * NS_PER_US);
		launch_for_ns(0, kernels_ms[i] * MS);
		pass(3 * NS_PER_S);
		pace_set_gang(PACE_GANG_NO);
		launch_for_ns(1, 1 * NS_PER_US);
		used_ns = words->group.used_ns;
		print_message("%lu ms: %lu ms are paid for\n", (unsigned long)ms,
			      (unsigned long)(used_ns / MS));
		assert_in_range(used_ns, (ms - 1) * MS, (ms + 1) * MS);
		left();
	}
	pace_set_gang(PACE_GANG_FOUND);
}

static void lift_quotas(void)
{
	hami->sm_limit[0] = hami->sm_limit[1] = 0;
}

/* A launch that waits as the quotas are lifted goes: no other launch will ask. */
UNIT_TEST(test_lifted)
{
	uint64_t began_ns;

	begin(1);
	launch_for_ns(1, 1 * MS);
	launch_for_ns(0, 100 * MS);
	wait_for_both();
	began_ns = time_ns;
	at_time(time_ns + 50 * MS, lift_quotas);
	words->member[1].ready = time_ns + 100 * NS_PER_S;
	launch_for_ns(0, 1 * MS);
	assert_in_range(time_ns - began_ns, 50 * MS, 80 * MS);
}
