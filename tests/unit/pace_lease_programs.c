/* Programs most of whose launches go without asking: what they get, and what they are charged. */
#include <limits.h>

#include "pace_lease_fixture.h"

/* Whatever is mixed with whatever, and whether the device is always busy or not. */
UNIT_TEST(test_shares)
{
	static const unsigned quotas[] = {10, 30, 50, 80};

	for (size_t q = 0; q < sizeof(quotas) / sizeof(*quotas); q++)
		for (unsigned kinds = 1; kinds <= 8; kinds *= 2) {
			struct kernel kernels[8];
			double share;

			for (unsigned i = 0; i < kinds; i++)
				kernels[i] = (struct kernel){.function = 1 + i,
							     .ns = 1500 + (uint64_t)i * i * 400};
			joined(quotas[q]);
			share_of(kernels, kinds, NS_PER_S);
			fake.leased = 0;
			share = share_of(kernels, kinds, 2 * NS_PER_S);
			harness_note("%u kinds: %.2f of %u, %lu leased", kinds, share, quotas[q],
				     (unsigned long)fake.leased);
			assert_true(fake.leased > 0);
			assert_share("short kernels", share, quotas[q], 3, 2);
			left();
		}
}

/* One that leaves the device idle by itself, and wants more than its quota nevertheless. */
UNIT_TEST(test_wants_more)
{
	const struct kernel kernel = {.function = 1, .ns = 5000};
	struct sums then;

	joined(80);
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
}

/* Bursts, and pauses in which nobody waits for anything: they are not charged, wherever in a burst
 * it is that the thread asks. */
UNIT_TEST(test_pauses)
{
	static const uint64_t lengths[] = {2000, 5000, 12000};
	static const unsigned bursts[] = {1, 4, 10, 20, 100}, wants[] = {30, 45, 80};

	for (size_t i = 0; i < 3 * 5 * 3; i++) {
		const struct kernel kernel = {.function = 1, .ns = lengths[i % 3]};
		unsigned burst = bursts[i / 3 % 5], want = wants[i / 15];
		uint64_t each_ns = kernel.ns * burst * 100 / want, due_ns;
		struct sums then = {.at_ns = 0};
		double charged;

		joined(want < 50 ? 50 : 90);
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
		harness_note("%u of %lu ns, wants %u: %.2f, charged %.3f", burst,
			     (unsigned long)kernel.ns, want, share_since(&then), charged);
		assert_share("has pauses", share_since(&then), want, 0.5, 0.5);
		assert_share("charged for pauses", 100 * charged, 100, 4, 4);
		left();
	}
}

UNIT_TEST(test_streams_in_turns)
{
	const struct kernel others[] = {short_one, {.function = 1, .ns = SHORT_NS, .stream = 1}};
	unsigned turn = 0;

	joined_and_known(99);
	while (turn < 100) /* until an asking one was of the other stream */
		launch_each(others, 2, &turn);
	fake.leased = 0;
	while (turn < 1000)
		launch_each(others, 2, &turn);
	assert_int_equal(fake.leased, 0);
}

static unsigned samples_of(uint64_t function)
{
	const struct cost_of what = {.function = function, .shape = 1, .blocks = 1};

	return cost_find(&what)->samples;
}

/* Of all kinds that take turns, each is measured by itself now and then: also where each step is
 * waited for, and beside longer ones. */
UNIT_TEST(test_all_are_sampled)
{
	for (unsigned how = 0; how < 3; how++) {
		struct kernel kernels[40];
		unsigned kinds = how == 0 ? 40 : how == 1 ? 14 : 4, least = UINT_MAX, most = 0;

		for (unsigned i = 0; i < kinds; i++)
			kernels[i] = (struct kernel){.function = 1 + i,
						     .ns = how == 2 && !i ? 50000 : SHORT_NS};
		joined(99);
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
		harness_note("samples: %u to %u", least, most);
		assert_true(least > most / 2);
		if (how == 0) /* what is not sampled now is put off for all */
			assert_true(fake.leased > fake.submitted / 2);
		left();
	}
}

/* So what they cost is learned anew, where windows tell little. */
UNIT_TEST(test_grown_beside_others)
{
	struct kernel kernels[4] = {{.function = 1, .ns = 50000}};
	struct sums then;
	unsigned turn = 0;

	joined(60);
	fake.neighbour_works = true;
	for (unsigned ten = 1; ten <= 10; ten += 9) {
		for (unsigned i = 1; i < 4; i++)
			kernels[i] = (struct kernel){.function = 1 + i, .ns = ten * SHORT_NS};
		then = sums_now();
		while (time_ns < then.at_ns + 3 * NS_PER_S)
			launch_each(kernels, 4, &turn);
		harness_note("beside others: %.2f of 60", share_since(&then));
		assert_share("grown", share_since(&then), 60, 6, 6);
	}
}

/* A hundred times as long all at once: no more go before that is seen than if each had asked. */
UNIT_TEST(test_hundredfold)
{
	struct kernel kernel = {.function = 1, .ns = 600};

	joined(50);
	for (unsigned i = 0; i < 100000; i++)
		launch(&kernel);
	kernel.ns *= 100;
	for (unsigned i = 0; i < 10000; i++) {
		launch(&kernel);
		assert_true(fake.done_ns[0] < time_ns + 80 * MS);
	}
}

/* As all costs are, which are too high for what is shorter than its sample's events. */
UNIT_TEST(test_trimmed)
{
	const struct kernel tiny = {.function = 1, .ns = 600};
	int64_t charged, corrected;

	joined(50);
	share_of(&tiny, 1, NS_PER_S);
	charged = bucket_of(0)->charged;
	corrected = bucket_of(0)->corrected;
	fake.leased = 0;
	share_of(&tiny, 1, NS_PER_S);
	charged = bucket_of(0)->charged - charged;
	corrected = bucket_of(0)->corrected - corrected;
	assert_true(fake.leased > 1000);
	assert_true(corrected > -charged / 10 && corrected < charged / 10);
}
