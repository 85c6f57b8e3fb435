/* Launches that go without asking: which may, and what ends a lease. */
#include <limits.h>

#include "bucket.h"
#include "lease.h"
#include "pace_lease_fixture.h"

static const struct cost_of of_short = {.function = 1, .shape = 1, .blocks = 1};

/* Until the next launch would go with the lease. */
static void until_leased(void)
{
	uint64_t before = fake.leased;

	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(launch(&short_one), 0);
		if (fake.leased - before == 2) /* not the last of one */
			return;
		if (fake.leased == before)
			continue;
	}
	fail_msg("there is none");
}

static bool is_leased_of(void *context, unsigned stream, const struct cost_of *what)
{
	const struct pace_work work = {
		.context = context, .stream = &fake.streams[0][stream], .what = *what};

	return !pace_is_open() && is_leased_for(&work);
}

static bool is_leased(const struct cost_of *what)
{
	return is_leased_of(&context_a, 0, what);
}

UNIT_TEST(test_most_are_leased)
{
	struct sums then;

	joined_and_known(99);
	then = sums_now();
	for (unsigned i = 0; i < 20000; i++)
		launch(&short_one);
	assert_in_range(fake.leased, 20000 * 92 / 100, 20000 * 16 / 17 + 1);
	assert_share("charged", 100 * charged_since(&then), 100, 2, 2);
}

/* Of so many launches that are so far apart. level_ns: what is in the bucket. */
static unsigned leased_at(uint64_t apart_ns, unsigned launches, int64_t level_ns)
{
	fake.leased = 0;
	for (unsigned i = 0; i < launches; i++) {
		bucket_of(0)->charged += bucket_level(bucket_of(0)) - level_ns;
		launch(&short_one);
		pass(apart_ns);
	}
	return (unsigned)fake.leased;
}

/* What comes now and then asks; a thousand times a second, where measuring is relaxed. */
UNIT_TEST(test_rare)
{
	joined_and_known(99);
	assert_in_range(leased_at(40000, 1000, METER_CREDIT_NS / 2), 0, 2);
	assert_true(leased_at(40000, 1000, METER_CREDIT_NS * 3 / 2) > 900);
	assert_in_range(leased_at(200000, 1000, METER_CREDIT_NS * 3 / 2), 900,
			985); /* 10 ms at a time */
	assert_in_range(leased_at(400000, 1000, METER_CREDIT_NS * 3 / 2), 0, 2);
}

/* In relaxed mode, leases are longer, and only pauses end them, not the clock's turn: also in a
 * program that waits for its work again and again. */
UNIT_TEST(test_relaxed)
{
	joined_and_known(99);
	for (unsigned i = 0; i < 1000; i++) {
		for (unsigned n = 0; n < 50; n++) {
			launch(&short_one);
			pass(n % 10 ? 2000 : 20000);
		}
		synchronise(0);
		if (i == 99)
			fake.leased = 0;
	}
	harness_note("in relaxed mode: %lu leased of 45000", (unsigned long)fake.leased);
	assert_true(fake.leased > 45000 * 95 / 100);
}

/* How many launches of that length go with one lease of a thread in relaxed mode. Of them no more
 * than a part is not paid for at any time. empty_at: behind so many the bucket is emptied. */
static unsigned leased_in_a_row(uint64_t ns, unsigned empty_at)
{
	const struct kernel kernel = {.function = ns, .ns = ns};
	const struct cost_of what = {.function = ns, .shape = 1, .blocks = 1};
	int64_t charged;
	unsigned count;

	for (unsigned n = 0; n < 3000; n++) {
		launch(&kernel);
		pass(2 * ns);
	}
	synchronise(0);
	launch(&kernel);
	charged = bucket_of(0)->charged;
	for (count = 0; is_leased(&what); count++) {
		int64_t unpaid_ns = (int64_t)(count * ns) - (bucket_of(0)->charged - charged);

		assert_true(unpaid_ns <= 500000 + (int64_t)ns); /* costs are a little off */
		assert_true(unpaid_ns / (int64_t)ns <= 128);
		if (count == empty_at) {
			charged += bucket_level(bucket_of(0));
			bucket_of(0)->charged += bucket_level(bucket_of(0));
		}
		pass(2 * ns);
	}
	harness_note("leased in a row, of %lu ns: %u", (unsigned long)ns, count);
	return count;
}

/* Then a lease goes on, too, three times, each time that what was launched is paid for; not where
 * the bucket is emptied meanwhile. */
UNIT_TEST(test_goes_on)
{
	joined_and_known(99);
	assert_in_range(leased_in_a_row(SHORT_NS, 0), 128, 128);
	assert_in_range(leased_in_a_row(SHORT_NS, UINT_MAX), 3 * 128, 3 * 128);
	assert_in_range(leased_in_a_row(30000, UINT_MAX), 3 * 10, 3 * 17);
}

UNIT_TEST(test_for_whom)
{
	const struct cost_of unknown = {.function = 9, .shape = 1, .blocks = 1};
	const struct cost_of guessed = {.function = 1, .shape = 2, .blocks = 1};
	const struct kernel long_one = {.function = 2, .ns = 600000};
	const struct cost_of of_long = {.function = 2, .shape = 1, .blocks = 1};
	const struct pace_work own_default = {
		.stream = &fake.streams[0][0], .per_thread = true, .what = of_short};

	joined_and_known(99);
	for (unsigned i = 0; i < 2000; i++)
		launch(&long_one);
	until_leased();
	assert_false(is_leased(&unknown));
	assert_int_equal(cost_ns(cost_find(&guessed)), cost_ns(cost_find(&of_short)));
	assert_false(is_leased(&guessed));
	assert_false(is_leased(&of_long));
	assert_false(is_leased_of(&context_b, 0, &of_short));
	assert_false(is_leased_of(&context_a, 1, &of_short));
	assert_true(is_leased(&of_short));
	assert_true(is_leased_of(NULL, 0, &of_short));
	assert_false(!pace_is_open() && is_leased_for(&own_default));
	launch(&(struct kernel){.function = 8, .ns = 1000}); /* which nobody has seen */
	assert_false(pace_has_lease());
}

/* The longest kernel that goes with the lease of a thread that has launched so often, ns. */
static uint64_t longest_of(unsigned launches, int64_t level_ns)
{
	static const uint64_t lengths[] = {480000, 240000, 100000};
	uint64_t before;

	lease_forked();
	leased_at(0, launches, BUCKET_FULL_NS);
	do {
		before = fake.leased;
		bucket_of(0)->charged += bucket_level(bucket_of(0)) - level_ns;
		assert_int_equal(launch(&short_one), 0);
	} while (fake.leased != before);
	for (unsigned i = 0; i < 3; i++)
		if (is_leased(&(struct cost_of){.function = 2 + i, .shape = 1, .blocks = 1}))
			return lengths[i];
	return 0;
}

/* The longer a thread has launched, the more may go at a time, up to a part of what the bucket has.
 */
UNIT_TEST(test_seniority)
{
	joined_and_known(99);
	for (unsigned i = 0; i < 30; i++) {
		launch(&(struct kernel){.function = 2, .ns = 480000});
		launch(&(struct kernel){.function = 3, .ns = 240000});
		launch(&(struct kernel){.function = 4, .ns = 100000});
	}
	synchronise(0);
	assert_int_equal(longest_of(300, BUCKET_FULL_NS), 100000);
	assert_int_equal(longest_of(600, BUCKET_FULL_NS), 240000);
	assert_int_equal(longest_of(2100, BUCKET_FULL_NS), 480000);
	assert_int_equal(longest_of(2100, 0), 240000);
	assert_int_equal(longest_of(2100, BUCKET_SHUT_NS * 3 / 4), 0);
}

/* The monitor's words hold at the next launch. */
UNIT_TEST(test_words)
{
	joined_and_known(99);
	until_leased();
	hami->recent_kernel = -1;
	assert_false(is_leased(&of_short));
	hami->recent_kernel = 1; /* counted down: who asks makes it 2 again */
	assert_false(is_leased(&of_short));
	assert_int_equal(launch(&short_one), 0);
	assert_int_equal(hami->recent_kernel, 2);

	until_leased();
	hami->slots[region.slot].status = VGPU_SLOT_SUSPENDED;
	assert_false(is_leased(&of_short));
	hami->slots[region.slot].status = VGPU_SLOT_RUNNING;
	assert_true(is_leased(&of_short));
}

/* Who has waited for work asks. */
UNIT_TEST(test_waited)
{
	joined_and_known(99);
	until_leased();
	pace_waited();
	assert_false(is_leased(&of_short));
}

/* Where the bucket is shut, everybody asks; and is charged what was leased. */
UNIT_TEST(test_shut)
{
	const struct kernel long_one = {.function = 2, .ns = MS};
	int64_t charged;

	joined_and_known(99);
	for (unsigned i = 0; i < 20; i++)
		launch(&long_one);
	pass(100 * MS);
	launch(&long_one);
	bucket_of(0)->charged += bucket_level(bucket_of(0)) - BUCKET_SHUT_NS - (int64_t)MS / 2;
	launch(&long_one);
	assert_false(pace_has_lease());

	until_leased();
	charged = bucket_of(0)->charged;
	assert_true(is_leased(&of_short));
	assert_true(bucket_of(0)->charged == charged);
	bucket_of(0)->charged += 100 * (int64_t)MS;
	assert_true(launch_timed(&long_one) > 50 * MS);
	assert_true(bucket_of(0)->charged >=
		    charged + 100 * (int64_t)MS + (int64_t)SHORT_NS * 3 / 2);
}

/* While something that was waited for in vain is not over, each launch counts. */
UNIT_TEST(test_stuck)
{
	const struct kernel endless = {.function = 5, .ns = 100 * NS_PER_S, .stream = 1};

	joined_and_known(99);
	fake.concurrent = true;
	launch(&endless);
	for (unsigned i = 0; i < 40; i++)
		launch(&short_one);
	pass(NS_PER_S); /* streams have taken turns, too, which would be reason enough */
	fake.leased = 0;
	for (unsigned i = 0; i < 100; i++)
		launch(&short_one);
	assert_int_equal(fake.leased, 0);
}

/* A thread that paused has kept nobody busy meanwhile. */
UNIT_TEST(test_old)
{
	static const struct kernel other = {.function = 2, .ns = MS};

	joined_and_known(50);
	until_leased();
	while (!is_leased(&of_short))
		launch(&short_one);
	pass(5 * NS_PER_S);
	launch(&other);
	assert_share("after a pause", share_of(&other, 1, NS_PER_S), 50, 2, 2);
}

/* A forked child has none, and returns none. */
UNIT_TEST(test_forgotten)
{
	joined_and_known(99);
	until_leased();
	pace_forked();
	assert_false(pace_has_lease());
	lease_return();
}
