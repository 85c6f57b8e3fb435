/* The pacer: which share of a device is delivered, whatever is launched. */
#include "costs.h"
#include "pace_fake.h"

static const unsigned quotas[] = {10, 30, 50, 80};

#define QUOTAS (sizeof(quotas) / sizeof(*quotas))

/* What is delivered of each quota, in five seconds after the first. */
static void delivers(const char *what, const struct kernel *kernels, unsigned count, double less,
		     double more)
{
	for (size_t q = 0; q < QUOTAS; q++) {
		double share;

		joined(quotas[q]);
		share_of(kernels, count, NS_PER_S);
		share = share_of(kernels, count, 5 * NS_PER_S);
		harness_note("%s: %.2f of %u", what, share, quotas[q]);
		assert_share(what, share, quotas[q], less, more);
		left();
	}
}

UNIT_TEST(test_lengths)
{
	static const uint64_t lengths[] = {5000, 50000, MS, 20 * MS, 200 * MS};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		const struct kernel kernel = {.function = 1, .ns = lengths[i]};

		delivers("one length", &kernel, 1, 3, 2);
	}
}

/* From the first launch on, when nothing is known yet. */
UNIT_TEST(test_at_first)
{
	static const uint64_t lengths[] = {50000, MS, 20 * MS};

	for (size_t q = 0; q < QUOTAS; q++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
			const struct kernel kernel = {.function = 1, .ns = lengths[i]};

			joined(quotas[q]);
			assert_share("at first", share_of(&kernel, 1, NS_PER_S), quotas[q], 5, 3);
			left();
		}
}

UNIT_TEST(test_many_kernels)
{
	struct kernel kernels[40];

	for (unsigned i = 0; i < 40; i++)
		kernels[i] = (struct kernel){.function = 1 + i, .ns = 2000 + i * i * 700};
	delivers("many kernels", kernels, 40, 4, 2);
}

/* Under one key: nothing tells them apart beforehand. None takes exactly as long each time, as on a
 * GPU: what recurs to the nanosecond may meet windows at the same place for seconds. */
UNIT_TEST(test_mixed_lengths)
{
	static const uint64_t lengths[] = {10000, 12000, 2 * MS, 300000, 15000, 9000, 9 * MS};
	static struct kernel kernels[7 * 41];
	uint64_t seed = 3;

	for (unsigned i = 0; i < 7 * 41; i++) {
		seed = chance_after(seed);
		kernels[i] = (struct kernel){
			.function = 1, .ns = lengths[i % 7] * (990 + (seed >> 33) % 20) / 1000};
	}
	delivers("mixed", kernels, 7 * 41, 4, 1);
}

UNIT_TEST(test_random_lengths)
{
	static struct kernel kernels[977];
	uint64_t seed = 7;

	for (unsigned i = 0; i < 977; i++) {
		seed = chance_after(seed);
		kernels[i] = (struct kernel){.function = 1 + (seed >> 60) % 3,
					     .ns = 5000 +
						   (seed >> 33) % (1u << (8 + (seed >> 50) % 14))};
	}
	delivers("random", kernels, 977, 1, 1);
}

/* Ten times as long as it was, and back, several times. */
UNIT_TEST(test_tenfold)
{
	static const uint64_t shortest[] = {50000, MS};

	for (size_t s = 0; s < 2; s++)
		for (size_t q = 0; q < QUOTAS; q++) {
			struct sums then;

			joined(quotas[q]);
			share_of(&(struct kernel){.function = 1, .ns = shortest[s]}, 1, NS_PER_S);
			then = sums_now();
			for (unsigned i = 0; i < 10; i++) {
				struct kernel kernel = {.function = 1,
							.ns = i % 2 ? shortest[s]
								    : 10 * shortest[s]};

				share_of(&kernel, 1, NS_PER_S / 2);
				assert_true(fake.done_ns[0] < time_ns + NS_PER_S / 5);
			}
			harness_note("tenfold: %.2f of %u", share_since(&then), quotas[q]);
			assert_share("tenfold", share_since(&then), quotas[q], 2, 1);
			left();
		}
}

/* -- several streams -------------------------------------------------------------------------- */

static void in_turns(double less)
{
	static const struct kernel kernels[] = {
		{.function = 1, .ns = 200000},
		{.function = 1, .ns = 200000, .stream = 1},
		{.function = 2, .ns = 3 * MS, .stream = 2},
		{.function = 3, .ns = 50000, .stream = 3},
	};

	delivers("two streams", kernels, 2, 1, 1);
	delivers("four streams", kernels, 4, less, 1);
}

UNIT_TEST(test_streams_in_turns)
{
	in_turns(1);
}

/* Each kernel has some of the device, which is busy with any of them. */
static void beside(unsigned streams, uint64_t ns, double off)
{
	struct kernel kernels[STREAMS];

	for (unsigned i = 0; i < streams; i++)
		kernels[i] = (struct kernel){.function = 1, .ns = ns, .stream = i};
	for (size_t q = 0; q < QUOTAS; q++) {
		double share;

		joined(quotas[q]);
		fake.concurrent = true;
		share_of(kernels, streams, NS_PER_S);
		share = share_of(kernels, streams, 5 * NS_PER_S);
		harness_note("%u beside, %llu: %.2f of %u", streams, (unsigned long long)ns, share,
			     quotas[q]);
		assert_share("beside each other", share, quotas[q], quotas[q] * off,
			     quotas[q] * off);
		left();
	}
}

UNIT_TEST(test_streams_beside)
{
	beside(2, 500000, 0.01);
	beside(4, 500000, 0.01);
	beside(4, 5 * MS, 0.01);
}

/* Where only one stream can be measured at a time, no window may ever be full, and one ends with
 * the work of its stream while others' may go on. */
UNIT_TEST(test_streams_without_fences)
{
	refuse_fences = true;
	in_turns(15);
	beside(2, 500000, 0.1);
	beside(4, 500000, 0.1);
	beside(4, 5 * MS, 0.1);
	refuse_fences = false;
}

/* -- the host is what takes time -------------------------------------------------------------- */

/* A kernel, a wait for it, work of the host's: what part of the device it takes is not limited as
 * long as that is less than the quota. */
static void host_bound(uint64_t kernel_ns, uint64_t host_ns, bool waits, uint64_t seconds)
{
	const struct kernel kernel = {.function = 1, .ns = kernel_ns};
	uint64_t began_ns = time_ns, count = 0, each_ns;

	for (; time_ns - began_ns < seconds * NS_PER_S; count++) {
		assert_int_equal(launch(&kernel), 0);
		if (waits)
			synchronise(0);
		pass(host_ns);
	}
	each_ns = (time_ns - began_ns) / count;
	harness_note("host bound: %llu", (unsigned long long)each_ns);
	assert_true(each_ns < (host_ns + (waits ? kernel_ns : 0)) * 106 / 100 + 3 * CALL_NS);
}

UNIT_TEST(test_host_bound)
{
	static const uint64_t lengths[] = {50000, MS, 5 * MS};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		joined(50);
		host_bound(lengths[i], 4 * lengths[i], true, 3); /* 20 % */
		left();
		joined(50);
		host_bound(lengths[i], 5 * lengths[i], false, 3);
		left();
	}
}

/* -- others on the device --------------------------------------------------------------------- */

/* What they take of it is not the slice's: it has its share of what they leave, nearly. */
UNIT_TEST(test_neighbours)
{
	static const uint64_t lengths[] = {20000, 100000, 200000, 400000};

	for (size_t i = 0; i < 2 * sizeof(lengths) / sizeof(*lengths); i++) {
		const struct kernel kernel = {.function = 1, .ns = lengths[i / 2]};
		struct sums then;
		double share, wrong;

		call_ns = i % 2 ? 12000 : CALL_NS;
		joined(30);
		fake.neighbour_works = true;
		share_of(&kernel, 1, NS_PER_S);
		then = sums_now();
		share = share_of(&kernel, 1, 5 * NS_PER_S);
		wrong = charged_since(&then);
		harness_note("neighbours: %.2f of 30, charged %.2f", share, wrong);
		assert_share("neighbours", share, 30, 8, 3);
		assert_true(wrong < 1.3);
		call_ns = CALL_NS;
		left();
	}
}

/* What waits for them is not so much that it would go on for long when the quota changes. */
UNIT_TEST(test_queue_beside_neighbours)
{
	static const uint64_t lengths[] = {20000, 50000, 200000};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		uint64_t began_ns, most_ns = 0;

		joined(99);
		fake.neighbour_works = true;
		began_ns = time_ns;
		for (unsigned n = 0; time_ns - began_ns < 4 * NS_PER_S; n++) {
			assert_int_equal(launch(&(struct kernel){.function = 1 + n % 3,
								 .ns = lengths[i] * (1 + n % 3)}),
					 0);
			if (fake.done_ns[0] > time_ns + most_ns)
				most_ns = fake.done_ns[0] - time_ns;
		}
		harness_note("queue beside neighbours: %lu us", (unsigned long)most_ns / 1000);
		assert_in_range(most_ns, 0, 150 * MS);
		left();
	}
}

/* One function that is short or long: its cost is the lower, beside others, and what keeps it from
 * having all of the device is that it has had its fair part of a long window at least. */
UNIT_TEST(test_unlike_beside_others)
{
	static const struct kernel kernels[] = {{.function = 1, .ns = 50000},
						{.function = 1, .ns = 5 * MS}};
	double share;

	joined(10);
	fake.neighbour_works = true;
	share_of(kernels, 2, NS_PER_S);
	share = share_of(kernels, 2, 5 * NS_PER_S);
	harness_note("unlike, beside others: %.2f of 10", share);
	assert_true(share < 50);
}

/* Now and then an idle device reaches an event late, as on a machine that does much else. That is
 * no neighbour, so windows go on to correct what rounds of unlike lengths under one name cost. */
UNIT_TEST(test_late_events)
{
	static const unsigned limits[] = {30, 80};

	for (unsigned i = 0; i < 2; i++) {
		uint64_t began_ns, given_ns = 0, late_ns;
		double share;

		joined(limits[i]);
		began_ns = late_ns = time_ns;
		while (time_ns - began_ns < 6 * NS_PER_S) {
			struct kernel kernel = {.function = 1, .ns = 20000};

			if (time_ns - began_ns < NS_PER_S)
				given_ns = fake.given_ns[0];
			if (time_ns - late_ns >= NS_PER_S / 10) {
				fake.others_until_ns = time_ns + 90000;
				late_ns = time_ns;
			}
			for (unsigned n = 0; n < 21; n++) {
				kernel.ns = n == 20 ? 3800000 : 20000;
				assert_int_equal(launch(&kernel), 0);
			}
			synchronise_stream(0);
		}
		share = (double)(fake.given_ns[0] - given_ns) / (5 * (double)NS_PER_S / 100);
		harness_note("late events: %.2f of %u", share, limits[i]);
		assert_share("late events", share, limits[i], 1, 2);
		left();
	}
}

/* One launch that takes next to nothing of what it was thought to: the others' costs stay, and no
 * more of them are on their way than before. */
UNIT_TEST(test_one_far_off)
{
	struct kernel odd = {.function = 9, .ns = 500 * MS};
	const struct kernel usual = {.function = 1, .ns = 200000};

	joined(30);
	assert_int_equal(launch(&odd), 0);
	share_of(&usual, 1, 3 * NS_PER_S);
	odd.ns = 10000;
	assert_int_equal(launch(&odd), 0);
	for (unsigned i = 0; i < 500; i++) {
		assert_int_equal(launch(&usual), 0);
		assert_true(fake.done_ns[0] < time_ns + 15 * MS);
	}
}

/* However many kinds of kernels there are: each call takes a thousandth of a millisecond, about. Of
 * kernels that fill a window without a rest, the last digit of their cost says how many do. */
UNIT_TEST(test_few_calls)
{
	static const unsigned limits[] = {30, 99};

	for (unsigned i = 0; i < 6; i++) {
		unsigned kinds = 1 << (2 * (i / 2));
		struct kernel kernels[16];
		uint64_t began_ns;
		double calls;

		for (unsigned j = 0; j < kinds; j++)
			kernels[j] = (struct kernel){.function = 1 + j, .ns = 210000};
		joined(limits[i % 2]);
		share_of(kernels, kinds, NS_PER_S);
		began_ns = time_ns;
		fake.calls = 0;
		share_of(kernels, kinds, NS_PER_S);
		calls = (double)fake.calls / ((double)(time_ns - began_ns) / MS);
		harness_note("%u kinds at %u: %.2f calls a ms", kinds, limits[i % 2], calls);
		assert_true(calls < (limits[i % 2] == 30 ? 3.1 : 9.6));
		left();
	}
}

/* A program that leaves some of the GPU idle, and wants less than its quota: it could not tell. */
UNIT_TEST(test_few_calls_relaxed)
{
	static const uint64_t lengths[] = {2000, 20000, 200000};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		struct kernel kernels[40];
		uint64_t began_ns, busy_ns;
		double calls;

		for (unsigned j = 0; j < 40; j++)
			kernels[j] = (struct kernel){.function = 1 + j, .ns = lengths[i]};
		joined(99);
		began_ns = time_ns;
		busy_ns = 0;
		for (unsigned turn = 0; time_ns - began_ns < 2 * NS_PER_S; turn++) {
			if (turn % 40 == 0 && !busy_ns && time_ns - began_ns > NS_PER_S) {
				busy_ns = fake.busy_ns[0];
				fake.calls = 0;
			}
			assert_int_equal(launch(&kernels[turn % 40]), 0);
			pass(lengths[i] + lengths[i] / 10 - CALL_NS);
		}
		calls = (double)fake.calls / 1000;
		assert_true(calls < (i == 0 ? 13 : 4));
		harness_note("in relaxed mode, %llu ns: %.2f calls a ms, busy %.2f %%",
			     (unsigned long long)lengths[i], calls,
			     (double)(fake.busy_ns[0] - busy_ns) / 1e7);
		left();
	}
}

/* One that uses little of it: there is nothing to measure but each kind of kernel now and then. */
UNIT_TEST(test_fewer_calls_where_idle)
{
	struct kernel kernels[40];
	uint64_t began_ns;
	double calls;

	for (unsigned i = 0; i < 40; i++)
		kernels[i] = (struct kernel){.function = 1 + i, .ns = 2000 + i * 200};
	joined(50);
	began_ns = time_ns;
	for (unsigned turn = 0; time_ns - began_ns < 2 * NS_PER_S; turn++) {
		if (time_ns - began_ns < NS_PER_S)
			fake.calls = 0;
		assert_int_equal(launch(&kernels[turn % 40]), 0);
		if (turn % 50)
			pass(20000);
		else
			synchronise(0);
	}
	calls = (double)fake.calls / 1000;
	harness_note("in relaxed mode, mostly idle: %.2f calls a ms", calls);
	assert_true(calls < 2.9);
}

/* And then takes ten times as long for everything: within a second it is held to its quota. */
UNIT_TEST(test_relaxed_ends)
{
	static const uint64_t lengths[] = {2000, 20000, 200000};

	for (size_t q = 0; q < QUOTAS; q++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
			struct kernel kernel = {.function = 1, .ns = lengths[i]};
			uint64_t began_ns = time_ns;
			struct sums then;

			joined(quotas[q]);
			while (time_ns - began_ns < NS_PER_S) {
				assert_int_equal(launch(&kernel), 0);
				pass(kernel.ns * 1000 / (10 * quotas[q]) * 12 / 10 - CALL_NS);
			}
			then = sums_now();
			kernel.ns *= 10;
			while (time_ns - then.at_ns < NS_PER_S)
				assert_int_equal(launch(&kernel), 0);
			harness_note("relaxed mode ends, %llu ns: %.2f of %u",
				     (unsigned long long)lengths[i], share_since(&then), quotas[q]);
			assert_share("relaxed mode ends", share_since(&then), quotas[q], 3, 3);
			left();
		}
}
