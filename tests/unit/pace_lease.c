/* Launches that go without asking: which may, what they are charged, and what ends a lease. */
#include "bucket.h"
#include "pace_fake.h"

#define SHORT_NS ((uint64_t)2000)

static const struct kernel short_one = {.function = 1, .ns = SHORT_NS};
static const struct cost_of of_short = {.function = 1, .shape = 1, .blocks = 1};

/* What a bucket has been charged, and what the device was given, agree: but for one launch's lease.
 */
static void assert_charged(uint64_t from_given_ns, int64_t from_charged, double off)
{
	double given = (double)(fake.given_ns[0] - from_given_ns),
	       charged = (double)(bucket_of(0)->charged + bucket_of(0)->corrected - from_charged);

	if (charged < given * (1 - off) - 40000 || charged > given * (1 + off) + 40000)
		fail_msg("charged %.0f ns of %.0f", charged, given);
}

/* As a process that has launched it for a while. */
static void joined_and_known(void **state, unsigned cores_pct)
{
	joined(state, cores_pct);
	for (unsigned i = 0; i < 20000; i++)
		launch(&short_one);
	fake.leased = 0;
}

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

static bool is_leased(const struct cost_of *what)
{
	return !pace_is_open() && pace_lease(&context_a, what);
}

static void test_most_are_leased(void **state)
{
	uint64_t given_ns;
	int64_t charged;

	joined_and_known(state, 99);
	given_ns = fake.given_ns[0];
	charged = bucket_of(0)->charged + bucket_of(0)->corrected;
	for (unsigned i = 0; i < 20000; i++)
		launch(&short_one);
	assert_in_range(fake.leased, 20000 * 8 / 10, 20000 * 19 / 20);
	assert_charged(given_ns, charged, 0.02);
	left();
}

/* Whatever is mixed with whatever, and whether the device is always busy or not. */
static void test_shares(void **state)
{
	static const unsigned quotas[] = {10, 30, 50, 80};

	for (size_t q = 0; q < sizeof(quotas) / sizeof(*quotas); q++)
		for (unsigned kinds = 1; kinds <= 8; kinds *= 2) {
			struct kernel kernels[8];
			double share;

			for (unsigned i = 0; i < kinds; i++)
				kernels[i] = (struct kernel){.function = 1 + i,
							     .ns = 1500 + (uint64_t)i * i * 400};
			joined(state, quotas[q]);
			share_of(kernels, kinds, NS_PER_S);
			fake.leased = 0;
			share = share_of(kernels, kinds, 2 * NS_PER_S);
			if (getenv("VERBOSE"))
				fprintf(stderr, "%u kinds: %.2f of %u, %lu leased\n", kinds, share,
					quotas[q], (unsigned long)fake.leased);
			assert_true(fake.leased > 0);
			assert_share("short kernels", share, quotas[q], 3, 2);
			left();
		}
}

/* Of all kinds that take turns, each is measured by itself now and then. */
static void test_all_are_sampled(void **state)
{
	struct kernel kernels[9];
	unsigned turn = 0;

	for (unsigned i = 0; i < 9; i++)
		kernels[i] = (struct kernel){.function = 1 + i, .ns = SHORT_NS};
	joined(state, 99);
	for (unsigned i = 0; i < 9 * 20000; i++)
		launch_each(kernels, 9, &turn);
	for (unsigned i = 0; i < 9; i++) {
		const struct cost_of what = {.function = 1 + i, .shape = 1, .blocks = 1};

		assert_true(cost_find(&what)->samples > 8);
	}
	left();
}

static void test_for_whom(void **state)
{
	const struct cost_of unknown = {.function = 9, .shape = 1, .blocks = 1};
	const struct cost_of guessed = {.function = 1, .shape = 2, .blocks = 1};
	const struct kernel long_one = {.function = 2, .ns = 50000};
	const struct cost_of of_long = {.function = 2, .shape = 1, .blocks = 1};

	joined_and_known(state, 99);
	for (unsigned i = 0; i < 2000; i++)
		launch(&long_one);
	until_leased();
	assert_false(is_leased(&unknown));
	assert_int_equal(cost_ns(cost_find(&guessed)), cost_ns(cost_find(&of_short)));
	assert_false(is_leased(&guessed));
	assert_false(is_leased(&of_long));
	assert_false(!pace_is_open() && pace_lease(&context_b, &of_short));
	assert_true(is_leased(&of_short));
	assert_true(!pace_is_open() && pace_lease(NULL, &of_short));
	left();
}

/* The monitor's words hold at the next launch. */
static void test_words(void **state)
{
	joined_and_known(state, 99);
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
	left();
}

/* Who has waited for work asks. */
static void test_waited(void **state)
{
	joined_and_known(state, 99);
	until_leased();
	pace_waited();
	assert_false(is_leased(&of_short));
	left();
}

/* Where the bucket is shut, everybody asks; and is charged what was leased. */
static void test_shut(void **state)
{
	const struct kernel long_one = {.function = 2, .ns = MS};
	int64_t charged;

	joined_and_known(state, 99);
	for (unsigned i = 0; i < 20; i++)
		launch(&long_one);
	pass(100 * MS);
	launch(&long_one);
	bucket_of(0)->charged += bucket_level(bucket_of(0)) - BUCKET_SHUT_NS - (int64_t)MS / 2;
	launch(&long_one);
	assert_false(is_leased(&of_short));

	until_leased();
	charged = bucket_of(0)->charged;
	assert_true(is_leased(&of_short));
	assert_true(bucket_of(0)->charged == charged);
	bucket_of(0)->charged += 100 * (int64_t)MS;
	assert_true(launch_timed(&long_one) > 50 * MS);
	assert_true(bucket_of(0)->charged >=
		    charged + 100 * (int64_t)MS + (int64_t)SHORT_NS * 3 / 2);
	left();
}

/* As all costs are, where kernels run beside each other. */
static void test_trimmed(void **state)
{
	const struct kernel beside[] = {{.function = 1, .ns = 10000},
					{.function = 1, .ns = 10000, .stream = 1}};
	int64_t charged, corrected;

	joined(state, 50);
	fake.beside = true;
	share_of(beside, 2, NS_PER_S);
	charged = bucket_of(0)->charged;
	corrected = bucket_of(0)->corrected;
	fake.leased = 0;
	share_of(beside, 2, NS_PER_S);
	charged = bucket_of(0)->charged - charged;
	corrected = bucket_of(0)->corrected - corrected;
	assert_true(fake.leased > 1000);
	assert_true(corrected > -charged / 10 && corrected < charged / 10);
	left();
}

/* While something that was waited for in vain is not over, each launch counts. */
static void test_stuck(void **state)
{
	const struct kernel endless = {.function = 5, .ns = 100 * NS_PER_S};
	const struct kernel aside = {.function = 1, .ns = SHORT_NS, .stream = 1};

	joined_and_known(state, 99);
	fake.beside = true;
	launch(&endless);
	for (unsigned i = 0; i < 40; i++)
		launch(&aside);
	fake.leased = 0;
	for (unsigned i = 0; i < 100; i++)
		launch(&aside);
	assert_int_equal(fake.leased, 0);
	left();
}

/* A thread that paused has kept nobody busy meanwhile, and one whose clock was set back neither. */
static void test_old(void **state)
{
	static const int64_t steps[] = {0, -3600 * (int64_t)NS_PER_S};

	for (size_t i = 0; i < 2; i++) {
		joined_and_known(state, 50);
		until_leased();
		assert_true(is_leased(&of_short));
		pass(5 * NS_PER_S);
		wall_ahead_ns += steps[i];
		launch(&(struct kernel){.function = 2, .ns = MS});
		assert_share("after a pause",
			     share_of(&(struct kernel){.function = 2, .ns = MS}, 1, NS_PER_S), 50,
			     2, 2);
		wall_ahead_ns -= steps[i];
		left();
	}
}

/* A forked child has none. */
static void test_forgotten(void **state)
{
	joined_and_known(state, 99);
	until_leased();
	pace_forget();
	pace_left = 10;
	assert_false(is_leased(&of_short));
	left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_most_are_leased),
		TEST(test_shares),
		TEST(test_all_are_sampled),
		TEST(test_for_whom),
		TEST(test_words),
		TEST(test_waited),
		TEST(test_shut),
		TEST(test_trimmed),
		TEST(test_stuck),
		TEST(test_old),
		TEST(test_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
