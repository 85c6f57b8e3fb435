/* Samples: what a launch is learned to cost, on an idle device and a busy one, whatever its call
 * does.
 */
#include "costs.h"
#include "pace_fake.h"

/* An idle device waits for each launch for longer than it works on it: that is not charged. */
UNIT_TEST(test_short_on_idle)
{
	static const uint64_t lengths[] = {600, 1500, 2500, 6000, 20000};
	static const uint64_t calls[] = {1000, 3000, 8000};
	static const unsigned bursts[] = {1, 8, 100};

	for (size_t i = 0; i < 2 * 5 * 3 * 3; i++) {
		struct kernel kernel = {.function = 1, .ns = lengths[i % 5]};
		unsigned burst = bursts[i / 15 % 3];
		struct cost_of what = {.function = 1, .shape = 1, .blocks = 1};
		struct sums then = {.at_ns = 0};
		uint64_t end_ns;
		double part;

		call_ns = calls[i / 5 % 3];
		kernel_events_ns = i < 45 ? KERNEL_EVENTS_NS : 1400; /* GPUs differ */
		joined(99);
		for (end_ns = time_ns + NS_PER_S; time_ns < end_ns;) {
			for (unsigned n = 0; n < burst; n++)
				assert_int_equal(launch(&kernel), 0);
			synchronise(0);
			pass(burst * (kernel.ns / 2));
			if (!then.at_ns && end_ns - time_ns < NS_PER_S * 3 / 4)
				then = sums_now();
		}
		part = 100.0 * charged_since(&then);
		harness_note("%u of %lu ns, %lu a call: cost %lu, charged %.1f %%", burst,
			     (unsigned long)kernel.ns, (unsigned long)call_ns,
			     (unsigned long)cost_find(&what)->ns, part);
		assert_share("charged of what is short", part, 100, 4, 4);
		call_ns = CALL_NS;
		kernel_events_ns = KERNEL_EVENTS_NS;
		left();
	}
}

/* As with CUDA_LAUNCH_BLOCKING=1: the driver's call is as long as the kernel. */
UNIT_TEST(test_blocking)
{
	static const uint64_t lengths[] = {8000, 20000, 200000, 2 * MS};
	static const unsigned quotas[] = {10, 30, 50, 80};

	call_ns = 3000;
	for (size_t q = 0; q < sizeof(quotas) / sizeof(*quotas); q++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
			const struct kernel kernel = {.function = 1, .ns = lengths[i]};
			double share,
				most = 100.0 * (double)kernel.ns / (double)(kernel.ns + call_ns);

			joined(quotas[q]);
			fake.blocks = true;
			share_of(&kernel, 1, NS_PER_S);
			share = share_of(&kernel, 1, 2 * NS_PER_S);
			harness_note("blocks, %lu ns: %.2f of %u", (unsigned long)kernel.ns, share,
				     quotas[q]);
			assert_share("blocks", share, quotas[q] < most ? quotas[q] : most,
				     3 + quotas[q] / 10.0, 2);
			left();
		}
}

/* And so is the cost that is learned, when the kernel takes longer than it did. */
UNIT_TEST(test_grown_and_blocking)
{
	struct kernel kernel = {.function = 1, .ns = 20000};
	const struct cost_of what = {.function = 1, .shape = 1, .blocks = 1};

	joined(50);
	fake.blocks = true;
	share_of(&kernel, 1, NS_PER_S);
	kernel.ns = 100000;
	share_of(&kernel, 1, NS_PER_S);
	assert_in_range(cost_ns(cost_find(&what)), 90000, 110000);
}

/* A driver that was not called for a while is slow: the device waits for such a launch as it does
 * for others. With a low quota most samples are of these. */
UNIT_TEST(test_slow_after_pauses)
{
	const struct kernel kernel = {.function = 1, .ns = 20000};
	const struct cost_of what = {.function = 1, .shape = 1, .blocks = 1};
	static const unsigned quotas[] = {10, 50};

	call_ns = 2500;
	for (unsigned i = 0; i < 2; i++) {
		uint64_t end_ns, least_ns = UINT64_MAX, most_ns = 0, ns;

		joined(quotas[i]);
		fake.slow_ns = 15000;
		end_ns = time_ns + 4 * NS_PER_S;
		for (unsigned n = 0; time_ns < end_ns; n++) {
			assert_int_equal(launch(&kernel), 0);
			if (n % 16 == 0 && fake.done_ns[0] > time_ns + 16 * kernel.ns)
				pass(fake.done_ns[0] - time_ns - 16 * kernel.ns);
			ns = cost_ns(cost_find(&what));
			if (n > 100 && ns < least_ns)
				least_ns = ns;
			if (n > 100 && ns > most_ns)
				most_ns = ns;
		}
		harness_note("slow after pauses, %u: cost %lu to %lu", quotas[i],
			     (unsigned long)least_ns, (unsigned long)most_ns);
		assert_in_range(least_ns, 19000, 21000);
		assert_in_range(most_ns, 19000, 21000);
		left();
	}
}

/* Or its thread was not let run for a while, behind the launch: that is none of the device's
 * waiting.
 */
UNIT_TEST(test_slow_behind_launches)
{
	const struct kernel kernel = {.function = 1, .ns = 50000};
	const struct cost_of what = {.function = 1, .shape = 1, .blocks = 1};

	joined(99);
	for (unsigned i = 0; i < 2000; i++) {
		fake.early = i >= 1000;
		call_ns = fake.early ? 25000 : 2500;
		assert_int_equal(launch(&kernel), 0);
		synchronise(0);
		pass(1000000);
	}
	assert_in_range(cost_ns(cost_find(&what)), 48000, 52000);
}

/* As a graph may be handed over: much of a long call is the device's time, too. */
UNIT_TEST(test_handed_over_early)
{
	const struct kernel kernel = {.function = 1, .ns = 50000, .graph = true};
	struct sums then;
	double share;

	call_ns = 25000;
	joined(30);
	fake.early = true;
	then = sums_now();
	while (time_ns - then.at_ns < 2 * NS_PER_S) {
		assert_int_equal(launch(&kernel), 0);
		synchronise(0);
	}
	share = share_since(&then);
	harness_note("handed over early: %.2f of 30", share);
	assert_share("handed over early", share, 30, 5, 3);
}

/* A small graph is there soon, while its launch goes on. */
UNIT_TEST(test_graph)
{
	const struct kernel graph = {.function = 1, .ns = 10000, .graph = true};
	const struct cost_of what = {.function = 1, .shape = 1, .blocks = 1, .graph = true};

	call_ns = 6000;
	joined(99);
	fake.early = true;
	for (unsigned i = 0; i < 50000; i++) {
		assert_int_equal(launch(&graph), 0);
		synchronise(0);
	}
	assert_in_range(cost_find(&what)->ns, 9000, 11000);
}

/* What takes longer than it did, but not longer than its launch, is noticed. */
UNIT_TEST(test_grown_on_idle)
{
	struct kernel kernel = {.function = 1, .ns = 1500};
	double share;

	call_ns = 4500;
	joined(40);
	share_of(&kernel, 1, NS_PER_S);
	kernel.ns = 4000;
	share_of(&kernel, 1, 2 * NS_PER_S);
	share = share_of(&kernel, 1, 2 * NS_PER_S);
	harness_note("grown on an idle device: %.2f of 40", share);
	assert_share("grown on an idle device", share, 40, 3, 3);
}

/* What a kernel's first launch takes to load it is the host's time, be the device idle or nearly.
 */
UNIT_TEST(test_loaded_at_first)
{
	const struct kernel known = {.function = 1, .ns = 20000};
	const struct cost_of new_one = {.function = 2, .shape = 1, .blocks = 1};

	for (unsigned busy = 0; busy < 2; busy++) {
		joined(99);
		for (unsigned i = 0; i < 1000; i++) {
			assert_int_equal(launch(&known), 0);
			synchronise(0);
		}
		if (busy)
			assert_int_equal(launch(&known), 0);
		call_ns = 50 * MS;
		assert_int_equal(launch(&(struct kernel){.function = 2, .ns = 20000}), 0);
		call_ns = CALL_NS;
		synchronise(0);
		assert_int_equal(launch(&known), 0);
		assert_in_range(cost_find(&new_one)->ns, 10000, 100000);
		left();
	}
}

/* The first behind each wait is short, and the others of that name are not. */
UNIT_TEST(test_unlike_behind_waits)
{
	static const uint64_t lengths[] = {100000, 2500000, 400000};
	static const unsigned counts[] = {40, 40, 5}, quotas[] = {10, 30, 50};

	for (size_t i = 0; i < 9; i++) {
		const struct kernel rest = {.function = 1, .ns = lengths[i / 3]};
		const struct kernel first = {.function = 1, .ns = 2000};
		struct run run;

		joined(quotas[i % 3]);
		run_begin(&run, 6, 5);
		while (goes_on(&run)) {
			assert_int_equal(launch(&first), 0);
			for (unsigned n = 0; n < counts[i / 3]; n++)
				assert_int_equal(launch(&rest), 0);
			synchronise(0);
			pass(100000);
		}
		assert_share("unlike behind waits", share_since(&run.then), quotas[i % 3], 3, 3);
		left();
	}
}

/* -- unknown ones beside each other ----------------------------------------------------------- */

/* What is charged in all when a later launch has seen that they are over, ms. */
static double charged_ms(void)
{
	static const struct kernel last = {.function = 99, .ns = 1000};

	assert_int_equal(launch(&last), 0);
	pass(MS);
	assert_int_equal(launch(&last), 0);
	return (double)(bucket_of(0)->charged + bucket_of(0)->corrected) / 1e6;
}

/* The time of short ones is paid for once, but not all that is between them. */
UNIT_TEST(test_short_beside_long)
{
	static const struct kernel kernels[] = {
		{.function = 1, .ns = 100 * MS},
		{.function = 2, .ns = 10000, .stream = 1},
		{.function = 3, .ns = 10000, .stream = 1},
	};

	joined(99);
	fake.concurrent = true;
	assert_int_equal(launch(&kernels[0]), 0);
	assert_int_equal(launch(&kernels[1]), 0);
	pass(80 * MS);
	assert_int_equal(launch(&kernels[2]), 0);
	pass(30 * MS);
	assert_share("short beside long, ms", charged_ms(), 100, 1, 1);
}

/* A kernel runs at the end of a call that loads it. */
UNIT_TEST(test_loaded_one_after_the_other)
{
	static const struct kernel kernels[] = {
		{.function = 1, .ns = 20 * MS},
		{.function = 2, .ns = 20 * MS, .stream = 1},
	};

	joined(99);
	fake.concurrent = true;
	call_ns = 10 * MS;
	assert_int_equal(launch(&kernels[0]), 0);
	call_ns = 30 * MS;
	assert_int_equal(launch(&kernels[1]), 0);
	call_ns = CALL_NS;
	pass(30 * MS);
	assert_share("one after the other, ms", charged_ms(), 40, 1, 1);
}
