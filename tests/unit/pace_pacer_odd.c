/*
 * The pacer, where things go another way than they should: drivers that measure nothing, contexts
 * that end, clocks that are set, waits that words and lost files end; and which limit holds.
 */
#include <pthread.h>

#include "meter.h"
#include "pace_fake.h"

static const struct kernel short_one = {.function = 1, .ns = MS};

/* -- a driver that measures nothing ----------------------------------------------------------- */

static void blindly(bool *refusal)
{
	const struct kernel kernels[] = {{.function = 1, .ns = 100000},
					 {.function = 2, .ns = 100000, .stream = 1}};
	double share;

	joined(30);
	*refusal = true;
	share = share_of(kernels, 2, 2 * NS_PER_S);
	assert_true(share > 1 && share < 100); /* something, and nobody waits for ever */
	*refusal = false;
	share_of(kernels, 2, NS_PER_S);
	assert_share("after refusals", share_of(kernels, 2, 3 * NS_PER_S), 30, 6, 3);
	*refusal = true; /* what was learned is worth something */
	assert_share("by what was learned", share_of(kernels, 2, 3 * NS_PER_S), 30, 15, 6);
	left();
}

UNIT_TEST(test_no_events)
{
	blindly(&fake.no_events);
}

UNIT_TEST(test_no_records)
{
	blindly(&fake.no_records);
}

UNIT_TEST(test_no_times)
{
	blindly(&fake.no_times);
}

/* It refuses the launches themselves: nothing is charged. */
UNIT_TEST(test_not_submitted)
{
	struct pace_work work = {.device = 0,
				 .context = &context_a,
				 .stream = &fake.streams[0][0],
				 .what = {.function = 1, .shape = 1, .blocks = 1}};
	struct pace_pass pass;

	joined(50);
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(pace_enter(&pass, &work), 0);
		pace_leave(&pass, &work, false);
	}
	assert_int_equal(bucket_of(0)->charged, 0);
	assert_int_equal(bucket_of(0)->corrected, 0);
	assert_share("afterwards", share_of(&short_one, 1, 2 * NS_PER_S), 50, 6, 3);
}

/* -- contexts --------------------------------------------------------------------------------- */

/* The fake fails who uses a context's events after its end. */
static void end(struct fake_context *context)
{
	pace_end_context(context);
	context->gone = true;
}

static struct fake_context no_context = {true};

UNIT_TEST(test_contexts_end)
{
	struct kernel in_a = {.function = 1, .ns = 300000}, in_b = in_a;

	in_b.context = &context_b;
	in_b.stream = 1;
	joined(50);
	for (unsigned i = 0; i < 200; i++) {
		for (unsigned n = 0; n < 1 + i % 7; n++) {
			assert_int_equal(launch(&in_a), 0);
			if (i % 3)
				assert_int_equal(launch(&in_b), 0);
		}
		end(&context_a);
		assert_int_equal(launch(&in_b), 0);
		for (unsigned n = 0; n < fake.event_count; n++) /* theirs are never seen again */
			if (fake.events[n].context == &context_a)
				fake.events[n].context = &no_context;
		context_a.gone = false; /* another one, at its address */
	}
	assert_share("afterwards", share_of(&in_b, 1, 3 * NS_PER_S), 50, 6, 3);
}

/* With a launch on its way that is unknown: nobody waits for it any more. */
UNIT_TEST(test_ends_with_unknown)
{
	const struct kernel endless = {.function = 5, .ns = 100 * NS_PER_S};
	struct kernel other = {.function = 1, .ns = 1000, .stream = 1, .context = &context_b};

	joined(50);
	fake.concurrent = true;
	launch_timed(&endless);
	end(&context_a);
	assert_true(launch_timed(&other) < 100 * MS);
}

/* Two contexts, and as much to be measured in one of them as there are spans. */
UNIT_TEST(test_many_spans)
{
	struct kernel kernels[100], in_b = {.function = 1000, .ns = MS, .context = &context_b};

	joined(50);
	for (unsigned i = 0; i < 100; i++) {
		kernels[i] = (struct kernel){.function = 1 + i, .ns = 1000};
		assert_int_equal(launch(&kernels[i]), 0);
	}
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(launch(&kernels[i % 100]), 0);
	share_of(&in_b, 1, NS_PER_S);
	assert_share("another context", share_of(&in_b, 1, 3 * NS_PER_S), 50, 6, 3);
}

/* -- waits ------------------------------------------------------------------------------------ */

static uint64_t changed_ns; /* when it was let go */

static void run_into_debt(void)
{
	static const struct kernel long_one = {.function = 8, .ns = 30 * MS};

	assert_int_equal(launch(&short_one), 0);
	assert_int_equal(launch(&long_one), 0);
	assert_int_equal(launch(&long_one), 0);
	at_time(time_ns + 150 * MS, then_do);
}

static void unsuspend(void)
{
	hami->slots[region.slot].status = VGPU_SLOT_RUNNING;
	changed_ns = time_ns;
}

static void suspend(void)
{
	hami->slots[region.slot].status = VGPU_SLOT_SUSPENDED;
	at_time(time_ns + 5 * NS_PER_S, unsuspend);
}

static void unblock(void)
{
	hami->recent_kernel = 0;
	changed_ns = time_ns;
}

static void block(void)
{
	hami->recent_kernel = -1;
	at_time(time_ns + 5 * NS_PER_S, unblock);
}

static void lift(void)
{
	hami->sm_limit[0] = 0;
	changed_ns = time_ns;
}

static void raise_limit(void)
{
	hami->sm_limit[0] = 99;
	changed_ns = time_ns;
}

static void turn_off(void)
{
	hami->utilization_switch = 0;
	changed_ns = time_ns;
}

/* While it waits for a bucket that would take seconds to fill. */
UNIT_TEST(test_words_while_waiting)
{
	static void (*const ways[])(void) = {suspend, block, lift, turn_off};

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		joined(10);
		then_do = ways[i];
		changed_ns = 0;
		run_into_debt();
		assert_int_equal(launch(&short_one), 0);
		assert_true(changed_ns && time_ns >= changed_ns && time_ns < changed_ns + 100 * MS);
		left();
	}
}

/* And while it waits for what is not known. */
UNIT_TEST(test_lifted_while_held)
{
	static const struct kernel unknown = {.function = 8, .ns = 900 * MS};

	joined(10);
	assert_int_equal(launch(&unknown), 0);
	at_time(time_ns + 50 * MS, lift);
	assert_in_range(launch_timed(&unknown), 50 * MS, 150 * MS);
}

UNIT_TEST(test_raised_while_waiting)
{
	joined(10);
	then_do = raise_limit;
	run_into_debt();
	assert_int_equal(launch(&short_one), 0);
	assert_true(time_ns < changed_ns + 500 * MS);
}

/* What went while there was none is not paid for when there is one again. */
UNIT_TEST(test_limited_again)
{
	const struct kernel kernel = {.function = 1, .ns = 200000};
	uint64_t until_ns;

	joined(50);
	for (unsigned i = 0; i < 3; i++) {
		share_of(&kernel, 1, NS_PER_S / 2);
		lift();
		for (until_ns = time_ns + NS_PER_S; time_ns < until_ns;) {
			if (fake.done_ns[0] > time_ns + 50 * MS)
				pass(10 * MS);
			assert_int_equal(launch(&kernel), 0);
		}
		hami->sm_limit[0] = 50;
		pass(20 * MS);
		until_ns = time_ns + 100 * MS;
		for (unsigned n = 0; n < 50; n++)
			assert_int_equal(launch(&kernel), 0);
		assert_true(time_ns < until_ns);
		assert_share("again", share_of(&kernel, 1, NS_PER_S), 50, 1, 1);
	}
}

static void delete_file(void)
{
	unlink(here.path);
	changed_ns = time_ns;
}

UNIT_TEST(test_lost_while_waiting)
{
	joined(10);
	then_do = delete_file;
	run_into_debt();
	assert_int_equal(launch(&short_one), -ESTALE);
	assert_true(time_ns < changed_ns + 200 * MS);
	assert_int_equal(launch(&short_one), -ESTALE);
}

/* -- which limit holds ------------------------------------------------------------------------ */

struct limit_case {
	unsigned policy, own, region;
	enum pace_rule rule;
	int on; /* utilization_switch */
	unsigned expected;
};

UNIT_TEST(test_limits)
{
	static const struct limit_case cases[] = {
		{0, 0, 40, PACE_RULE_SWITCH, 1, 40},  {0, 0, 40, PACE_RULE_SWITCH, 0, 0},
		{0, 0, 40, PACE_RULE_FORCE, 0, 40},   {0, 0, 40, PACE_RULE_DISABLE, 1, 0},
		{0, 60, 0, PACE_RULE_SWITCH, 1, 60},  {0, 60, 0, PACE_RULE_SWITCH, 0, 0},
		{0, 60, 40, PACE_RULE_SWITCH, 1, 40}, {0, 20, 40, PACE_RULE_FORCE, 1, 40},
		{30, 0, 40, PACE_RULE_SWITCH, 1, 30}, {30, 0, 20, PACE_RULE_SWITCH, 1, 20},
		{30, 0, 20, PACE_RULE_SWITCH, 0, 30}, {30, 0, 20, PACE_RULE_DISABLE, 0, 30},
		{0, 0, 100, PACE_RULE_FORCE, 1, 0},   {0, 60, 100, PACE_RULE_FORCE, 1, 0},
		{100, 0, 0, PACE_RULE_FORCE, 1, 0},   {0, 100, 0, PACE_RULE_FORCE, 1, 0},
		{0, 0, 0, PACE_RULE_FORCE, 1, 0},     {0, 0, UINT32_MAX, PACE_RULE_FORCE, 1, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct limit_case *c = &cases[i];
		const struct pace_quota quotas_of[DEVICES] = {
			{.index = 0, .policy_pct = c->policy, .env_pct = c->own}, {.index = -1}};

		joined_with(quotas_of, c->region, c->rule);
		hami->utilization_switch = c->on;
		assert_int_equal(pace_is_limited(0), c->expected != 0);
		assert_false(pace_is_limited(1));
		if (c->expected)
			assert_share("limit", share_of(&short_one, 1, 2 * NS_PER_S), c->expected, 3,
				     2);
		else
			assert_true(share_of(&short_one, 1, NS_PER_S / 10) > 200);
		left();
	}
}

static void *own_stream_of_another(void *arg)
{
	(void)arg;
	return (void *)meter_stream(&(struct pace_work){.per_thread = true});
}

/* Threads share the legacy default stream, by whatever handle, and have one each of their own. */
UNIT_TEST(test_default_streams)
{
	const void *legacy = meter_stream(&(struct pace_work){.stream = NULL});
	const void *own = meter_stream(&(struct pace_work){.per_thread = true});
	void *another;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, own_stream_of_another, NULL), 0);
	assert_int_equal(pthread_join(thread, &another), 0);
	assert_ptr_equal(legacy, meter_stream(&(struct pace_work){.stream = (void *)1}));
	assert_ptr_equal(
		legacy, meter_stream(&(struct pace_work){.stream = (void *)1, .per_thread = true}));
	assert_ptr_equal(own, meter_stream(&(struct pace_work){.stream = (void *)2}));
	assert_ptr_not_equal(own, legacy);
	assert_ptr_not_equal(own, another);
	assert_ptr_not_equal(legacy, another);
	assert_ptr_equal(meter_stream(&(struct pace_work){.stream = &thread}), &thread);
}

UNIT_TEST(test_no_such_device)
{
	joined(50);
	assert_false(pace_is_limited(-1));
	assert_false(pace_is_limited(DEVICES));
	assert_false(pace_is_limited(VGPU_DEVICES_MAX));
	assert_true(pace_is_limited(0));
	left();
	assert_false(pace_is_limited(0));
}

/* One device's quota is not the other's. */
UNIT_TEST(test_two_devices)
{
	const struct kernel first = {.function = 1, .ns = MS};
	const struct kernel second = {.function = 1, .ns = MS, .device = 1, .context = &context_b};

	joined(20);
	hami->sm_limit[1] = 70;
	assert_share("first", share_of(&first, 1, 2 * NS_PER_S), 20, 3, 2);
	assert_share("second", share_of(&second, 1, 2 * NS_PER_S), 70, 3, 2);
	hami->sm_limit[0] = 0; /* asked all the same, for the other's sake */
	assert_true(share_of(&first, 1, NS_PER_S / 10) > 200);
}
