/* Launches that go without asking: which may, what they are charged, and what ends a lease. */
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>

#include "bucket.h"
#include "lease.h"
#include "pace_fake.h"

#define SHORT_NS ((uint64_t)2000)

static const struct kernel short_one = {.function = 1, .ns = SHORT_NS};
static const struct cost_of of_short = {.function = 1, .shape = 1, .blocks = 1};

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

static void test_most_are_leased(void **state)
{
	struct sums then;

	joined_and_known(state, 99);
	then = sums_now();
	for (unsigned i = 0; i < 20000; i++)
		launch(&short_one);
	assert_in_range(fake.leased, 20000 * 92 / 100, 20000 * 16 / 17 + 1);
	assert_share("charged", 100 * charged_since(&then), 100, 2, 2);
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

/* What comes now and then asks; a thousand times a second, where the bucket is nearly full. */
static void test_rare(void **state)
{
	joined_and_known(state, 99);
	assert_in_range(leased_at(40000, 1000, BUCKET_FULL_NS / 4), 0, 2);
	assert_true(leased_at(40000, 1000, BUCKET_FULL_NS * 3 / 4) > 900);
	assert_in_range(leased_at(200000, 1000, BUCKET_FULL_NS * 3 / 4), 900,
			985); /* 10 ms at a time */
	assert_in_range(leased_at(400000, 1000, BUCKET_FULL_NS * 3 / 4), 0, 2);
	left();
}

/* At leisure, leases are longer, and only pauses end them, not the clock's turn: also in a program
 * that waits for its work again and again. */
static void test_leisure(void **state)
{
	joined_and_known(state, 99);
	for (unsigned i = 0; i < 1000; i++) {
		for (unsigned n = 0; n < 50; n++) {
			launch(&short_one);
			pass(n % 10 ? 2000 : 20000);
		}
		synchronise(0);
		if (i == 99)
			fake.leased = 0;
	}
	if (getenv("VERBOSE"))
		fprintf(stderr, "at leisure: %lu leased of 45000\n", (unsigned long)fake.leased);
	assert_true(fake.leased > 45000 * 95 / 100);
	left();
}

/* How many launches of that length go with one lease of a thread at leisure. Of them no more than a
 * part is not paid for at any time. empty_at: behind so many the bucket is emptied. */
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
	if (getenv("VERBOSE"))
		fprintf(stderr, "leased in a row, of %lu ns: %u\n", (unsigned long)ns, count);
	return count;
}

/* Then a lease goes on, too, three times, each time that what was launched is paid for; not where
 * the bucket is emptied meanwhile. */
static void test_goes_on(void **state)
{
	joined_and_known(state, 99);
	assert_in_range(leased_in_a_row(SHORT_NS, 0), 128, 128);
	assert_in_range(leased_in_a_row(SHORT_NS, UINT_MAX), 3 * 128, 3 * 128);
	assert_in_range(leased_in_a_row(30000, UINT_MAX), 3 * 10, 3 * 17);
	left();
}

/* One that leaves the device idle by itself, and wants more than its quota nevertheless. */
static void test_wants_more(void **state)
{
	const struct kernel kernel = {.function = 1, .ns = 5000};
	struct sums then;

	joined(state, 80);
	for (unsigned part = 0; part < 2; part++) {
		then = sums_now();
		for (uint64_t due_ns = time_ns; time_ns < then.at_ns + NS_PER_S;) {
			launch(&kernel);
			due_ns += kernel.ns * 100 / 90;
			if (due_ns > time_ns)
				pass(due_ns - time_ns);
			else if (time_ns - due_ns > MS)
				due_ns = time_ns;
		}
	}
	assert_share("wants more", share_since(&then), 80, 2, 2);
	left();
}

/* Bursts, and pauses in which nobody waits for anything: they are not charged, wherever in a burst
 * it is that the thread asks. */
static void test_pauses(void **state)
{
	static const uint64_t lengths[] = {2000, 5000, 12000};
	static const unsigned bursts[] = {1, 4, 10, 20, 100}, wants[] = {30, 45, 80};

	for (size_t i = 0; i < 3 * 5 * 3; i++) {
		const struct kernel kernel = {.function = 1, .ns = lengths[i % 3]};
		unsigned burst = bursts[i / 3 % 5], want = wants[i / 15];
		uint64_t each_ns = kernel.ns * burst * 100 / want, due_ns;
		struct sums then = {.at_ns = 0};
		double charged;

		joined(state, want < 50 ? 50 : 90);
		due_ns = time_ns;
		for (uint64_t end_ns = time_ns + NS_PER_S; time_ns < end_ns;) {
			for (unsigned n = 0; n < burst; n++)
				launch(&kernel);
			due_ns += each_ns;
			if (due_ns > time_ns)
				pass(due_ns - time_ns);
			if (!then.at_ns && end_ns - time_ns < NS_PER_S / 2)
				then = sums_now();
		}
		charged = charged_since(&then);
		if (getenv("VERBOSE"))
			fprintf(stderr, "%u of %lu ns, wants %u: %.2f, charged %.3f\n", burst,
				(unsigned long)kernel.ns, want, share_since(&then), charged);
		assert_share("has pauses", share_since(&then), want, 0.5, 0.5);
		assert_share("charged for pauses", 100 * charged, 100, 4, 4);
		left();
	}
}

static void *launch_some(void *count)
{
	for (uintptr_t i = 0; i < (uintptr_t)count; i++)
		launch(&short_one);
	return NULL;
}

/* Threads that end: what they have not returned is hardly anything. */
static void test_threads_end(void **state)
{
	static const uintptr_t counts[] = {15, 40, 200, 1000};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		struct sums then;
		uint64_t end_ns;

		joined_and_known(state, 50);
		then = sums_now();
		for (end_ns = time_ns + NS_PER_S; time_ns < end_ns;) {
			pthread_t thread;

			assert_int_equal(
				pthread_create(&thread, NULL, launch_some, (void *)counts[i]), 0);
			assert_int_equal(pthread_join(thread, NULL), 0);
			synchronise(0);
		}
		if (getenv("VERBOSE"))
			fprintf(stderr, "threads of %lu launches: %.2f of 50, charged %.3f\n",
				(unsigned long)counts[i], share_since(&then), charged_since(&then));
		assert_share("threads that end", share_since(&then), 50, 3, 3);
		left();
	}
}

static void *launch_some_at_leisure(void *count)
{
	for (uintptr_t i = 0; i < (uintptr_t)count; i++) {
		launch(&short_one);
		pass(SHORT_NS * 100 / 80 - CALL_NS);
	}
	return NULL;
}

/* Nor is it where a program wants more than its quota, and would be thought to want less. */
static void test_threads_end_at_leisure(void **state)
{
	static const uintptr_t counts[] = {280, 400, 600, 1000, 3000};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		struct sums then;
		uint64_t end_ns;

		joined_and_known(state, 70);
		pass(10 * MS); /* the bucket is full */
		then = sums_now();
		for (end_ns = time_ns + NS_PER_S; time_ns < end_ns;) {
			pthread_t thread;

			assert_int_equal(pthread_create(&thread, NULL, launch_some_at_leisure,
							(void *)counts[i]),
					 0);
			assert_int_equal(pthread_join(thread, NULL), 0);
		}
		if (getenv("VERBOSE"))
			fprintf(stderr,
				"threads of %lu launches at leisure: %.2f of 70, charged %.3f\n",
				(unsigned long)counts[i], share_since(&then), charged_since(&then));
		assert_share("threads that end at leisure", share_since(&then), 70, 4, 4);
		left();
	}
}

/* Which of two threads goes next, so that they go one after the other. */
static sem_t turns[2];
static uint64_t turns_end_ns;

#define TURN_NS (SHORT_NS * 2 * 100 / 65)

static void *launch_in_turns(void *arg)
{
	unsigned self = (unsigned)(uintptr_t)arg;
	static uint64_t due_ns;
	bool goes_on = true;

	while (goes_on) {
		sem_wait(&turns[self]);
		goes_on = time_ns < turns_end_ns;
		if (goes_on)
			launch(&short_one);
		if (goes_on && self) {
			due_ns = due_ns + 10 * TURN_NS < time_ns ? time_ns : due_ns + TURN_NS;
			if (due_ns > time_ns)
				pass(due_ns - time_ns);
		}
		sem_post(&turns[!self]);
	}
	return NULL;
}

static void in_turns_for(uint64_t ns)
{
	pthread_t threads[2];

	turns_end_ns = time_ns + ns;
	sem_init(&turns[0], 0, 1);
	sem_init(&turns[1], 0, 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, launch_in_turns, (void *)(uintptr_t)i),
			0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Neither knows from its own launches when the device is idle. */
static void test_threads_in_turns(void **state)
{
	struct sums then;

	joined_and_known(state, 75);
	in_turns_for(NS_PER_S / 10);
	then = sums_now();
	in_turns_for(NS_PER_S / 5);
	if (getenv("VERBOSE"))
		fprintf(stderr, "threads in turns: %.2f of 65, charged %.3f\n", share_since(&then),
			charged_since(&then));
	assert_share("threads in turns", share_since(&then), 65, 1, 1);
	assert_share("charged", 100 * charged_since(&then), 100, 10, 5);
	left();
}

static void test_streams_in_turns(void **state)
{
	const struct kernel others[] = {short_one, {.function = 1, .ns = SHORT_NS, .stream = 1}};
	unsigned turn = 0;

	joined_and_known(state, 99);
	while (turn < 100) /* until an asking one was of the other stream */
		launch_each(others, 2, &turn);
	fake.leased = 0;
	while (turn < 1000)
		launch_each(others, 2, &turn);
	assert_int_equal(fake.leased, 0);
	left();
}

static unsigned samples_of(uint64_t function)
{
	const struct cost_of what = {.function = function, .shape = 1, .blocks = 1};

	return cost_find(&what)->samples;
}

/* Of all kinds that take turns, each is measured by itself now and then: also where each step is
 * waited for, and beside longer ones. */
static void test_all_are_sampled(void **state)
{
	for (unsigned how = 0; how < 3; how++) {
		struct kernel kernels[40];
		unsigned kinds = how == 0 ? 40 : how == 1 ? 14 : 4, least = UINT_MAX, most = 0;

		for (unsigned i = 0; i < kinds; i++)
			kernels[i] = (struct kernel){.function = 1 + i,
						     .ns = how == 2 && !i ? 50000 : SHORT_NS};
		joined(state, 99);
		while (time_ns < then_ns && samples_of(1) < 50) {
			for (unsigned i = 0; i < kinds; i++)
				launch(&kernels[i]);
			if (how == 1) {
				synchronise(0);
				pass(20000);
			}
		}
		for (unsigned i = 0; i < kinds; i++) {
			unsigned samples = samples_of(1 + i);

			least = samples < least ? samples : least;
			most = samples > most ? samples : most;
		}
		if (getenv("VERBOSE"))
			fprintf(stderr, "samples: %u to %u\n", least, most);
		assert_true(least > most / 2);
		if (how == 0) /* what is not sampled now is put off for all */
			assert_true(fake.leased > fake.submitted / 2);
		left();
	}
}

/* So what they cost is learned anew, where windows tell little. */
static void test_grown_beside_others(void **state)
{
	struct kernel kernels[4] = {{.function = 1, .ns = 50000}};
	struct sums then;
	unsigned turn = 0;

	joined(state, 60);
	fake.neighbours = true;
	for (unsigned ten = 1; ten <= 10; ten += 9) {
		for (unsigned i = 1; i < 4; i++)
			kernels[i] = (struct kernel){.function = 1 + i, .ns = ten * SHORT_NS};
		then = sums_now();
		while (time_ns < then.at_ns + 3 * NS_PER_S)
			launch_each(kernels, 4, &turn);
		if (getenv("VERBOSE"))
			fprintf(stderr, "beside others: %.2f of 60\n", share_since(&then));
		assert_share("grown", share_since(&then), 60, 6, 6);
	}
	left();
}

/* A hundred times as long all at once: no more go before that is seen than if each had asked. */
static void test_hundredfold(void **state)
{
	struct kernel kernel = {.function = 1, .ns = 600};

	joined(state, 50);
	for (unsigned i = 0; i < 100000; i++)
		launch(&kernel);
	kernel.ns *= 100;
	for (unsigned i = 0; i < 10000; i++) {
		launch(&kernel);
		assert_true(fake.done_ns[0] < time_ns + 80 * MS);
	}
	left();
}

static void test_for_whom(void **state)
{
	const struct cost_of unknown = {.function = 9, .shape = 1, .blocks = 1};
	const struct cost_of guessed = {.function = 1, .shape = 2, .blocks = 1};
	const struct kernel long_one = {.function = 2, .ns = 600000};
	const struct cost_of of_long = {.function = 2, .shape = 1, .blocks = 1};
	const struct pace_work own_default = {
		.stream = &fake.streams[0][0], .per_thread = true, .what = of_short};

	joined_and_known(state, 99);
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
	left();
}

/* The longest kernel that goes with the lease of a thread that has launched so often, ns. */
static uint64_t longest_of(unsigned launches, int64_t level_ns)
{
	static const uint64_t lengths[] = {480000, 240000, 100000};
	uint64_t before;

	lease_forget();
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
static void test_seniority(void **state)
{
	joined_and_known(state, 99);
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
	assert_false(pace_has_lease());

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

/* As all costs are, which are too high for what is shorter than its sample's events. */
static void test_trimmed(void **state)
{
	const struct kernel tiny = {.function = 1, .ns = 600};
	int64_t charged, corrected;

	joined(state, 50);
	share_of(&tiny, 1, NS_PER_S);
	charged = bucket_of(0)->charged;
	corrected = bucket_of(0)->corrected;
	fake.leased = 0;
	share_of(&tiny, 1, NS_PER_S);
	charged = bucket_of(0)->charged - charged;
	corrected = bucket_of(0)->corrected - corrected;
	assert_true(fake.leased > 1000);
	assert_true(corrected > -charged / 10 && corrected < charged / 10);
	left();
}

/* While something that was waited for in vain is not over, each launch counts. */
static void test_stuck(void **state)
{
	const struct kernel endless = {.function = 5, .ns = 100 * NS_PER_S, .stream = 1};

	joined_and_known(state, 99);
	fake.beside = true;
	launch(&endless);
	for (unsigned i = 0; i < 40; i++)
		launch(&short_one);
	pass(NS_PER_S); /* streams have taken turns, too, which would be reason enough */
	fake.leased = 0;
	for (unsigned i = 0; i < 100; i++)
		launch(&short_one);
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
		while (!is_leased(&of_short))
			launch(&short_one);
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

/* A forked child has none, and returns none. */
static void test_forgotten(void **state)
{
	joined_and_known(state, 99);
	until_leased();
	pace_forget();
	assert_false(pace_has_lease());
	lease_return();
	left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_most_are_leased),
		TEST(test_shares),
		TEST(test_rare),
		TEST(test_leisure),
		TEST(test_goes_on),
		TEST(test_wants_more),
		TEST(test_pauses),
		TEST(test_threads_end),
		TEST(test_threads_end_at_leisure),
		TEST(test_threads_in_turns),
		TEST(test_streams_in_turns),
		TEST(test_grown_beside_others),
		TEST(test_all_are_sampled),
		TEST(test_hundredfold),
		TEST(test_for_whom),
		TEST(test_seniority),
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
