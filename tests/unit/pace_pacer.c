/* The pacer: which share of a device is delivered, whatever is launched. */
#include "costs.h"
#include "pace_fake.h"

static const unsigned quotas[] = {10, 30, 50, 80};

#define QUOTAS (sizeof(quotas) / sizeof(*quotas))

/* What is delivered of each quota, in five seconds after the first. */
static void delivers(void **state, const char *what, const struct kernel *kernels, unsigned count,
		     double less, double more)
{
	for (size_t q = 0; q < QUOTAS; q++) {
		double share;

		joined(state, quotas[q]);
		share_of(kernels, count, NS_PER_S);
		share = share_of(kernels, count, 5 * NS_PER_S);
		if (getenv("VERBOSE"))
			fprintf(stderr, "%s: %.2f of %u\n", what, share, quotas[q]);
		assert_share(what, share, quotas[q], less, more);
		left();
	}
}

static void test_lengths(void **state)
{
	static const uint64_t lengths[] = {5000, 50000, MS, 20 * MS, 200 * MS};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		const struct kernel kernel = {.function = 1, .ns = lengths[i]};

		delivers(state, "one length", &kernel, 1, 3, 2);
	}
}

/* From the first launch on, when nothing is known yet. */
static void test_at_first(void **state)
{
	static const uint64_t lengths[] = {50000, MS, 20 * MS};

	for (size_t q = 0; q < QUOTAS; q++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
			const struct kernel kernel = {.function = 1, .ns = lengths[i]};

			joined(state, quotas[q]);
			assert_share("at first", share_of(&kernel, 1, NS_PER_S), quotas[q], 5, 3);
			left();
		}
}

static void test_many_kernels(void **state)
{
	struct kernel kernels[40];

	for (unsigned i = 0; i < 40; i++)
		kernels[i] = (struct kernel){.function = 1 + i, .ns = 2000 + i * i * 700};
	delivers(state, "many kernels", kernels, 40, 4, 2);
}

/* Under one key: nothing tells them apart beforehand. */
static void test_mixed_lengths(void **state)
{
	static const struct kernel kernels[] = {
		{.function = 1, .ns = 10000},  {.function = 1, .ns = 12000},
		{.function = 1, .ns = 2 * MS}, {.function = 1, .ns = 300000},
		{.function = 1, .ns = 15000},  {.function = 1, .ns = 9000},
		{.function = 1, .ns = 9 * MS},
	};

	delivers(state, "mixed", kernels, 7, 4, 1);
}

static void test_random_lengths(void **state)
{
	static struct kernel kernels[977];
	uint64_t seed = 7;

	for (unsigned i = 0; i < 977; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		kernels[i] = (struct kernel){.function = 1 + (seed >> 60) % 3,
					     .ns = 5000 +
						   (seed >> 33) % (1u << (8 + (seed >> 50) % 14))};
	}
	delivers(state, "random", kernels, 977, 1, 1);
}

/* Ten times as long as it was, and back, several times. */
static void test_tenfold(void **state)
{
	static const uint64_t shortest[] = {50000, MS};

	for (size_t s = 0; s < 2; s++)
		for (size_t q = 0; q < QUOTAS; q++) {
			uint64_t began_ns, busy_ns;
			double share;

			joined(state, quotas[q]);
			share_of(&(struct kernel){.function = 1, .ns = shortest[s]}, 1, NS_PER_S);
			began_ns = time_ns;
			busy_ns = fake.busy_ns[0];
			for (unsigned i = 0; i < 10; i++) {
				struct kernel kernel = {.function = 1,
							.ns = i % 2 ? shortest[s]
								    : 10 * shortest[s]};

				share_of(&kernel, 1, NS_PER_S / 2);
				assert_true(fake.done_ns[0] < time_ns + NS_PER_S / 5);
			}
			share = 100.0 * (double)(fake.busy_ns[0] - busy_ns) /
				(double)(time_ns - began_ns);
			if (getenv("VERBOSE"))
				fprintf(stderr, "tenfold: %.2f of %u\n", share, quotas[q]);
			assert_share("tenfold", share, quotas[q], 2, 1);
			left();
		}
}

/* -- several streams -------------------------------------------------------------------------- */

static void in_turns(void **state, double less)
{
	static const struct kernel kernels[] = {
		{.function = 1, .ns = 200000},
		{.function = 1, .ns = 200000, .stream = 1},
		{.function = 2, .ns = 3 * MS, .stream = 2},
		{.function = 3, .ns = 50000, .stream = 3},
	};

	delivers(state, "two streams", kernels, 2, 1, 1);
	delivers(state, "four streams", kernels, 4, less, 1);
}

static void test_streams_in_turns(void **state)
{
	in_turns(state, 1);
}

/* Each kernel has some of the device, which is busy with any of them. */
static void beside(void **state, unsigned streams, uint64_t ns, double off)
{
	struct kernel kernels[STREAMS];

	for (unsigned i = 0; i < streams; i++)
		kernels[i] = (struct kernel){.function = 1, .ns = ns, .stream = i};
	for (size_t q = 0; q < QUOTAS; q++) {
		double share;

		joined(state, quotas[q]);
		fake.beside = true;
		share_of(kernels, streams, NS_PER_S);
		share = share_of(kernels, streams, 5 * NS_PER_S);
		if (getenv("VERBOSE"))
			fprintf(stderr, "%u beside, %llu: %.2f of %u\n", streams,
				(unsigned long long)ns, share, quotas[q]);
		assert_share("beside each other", share, quotas[q], quotas[q] * off,
			     quotas[q] * off);
		left();
	}
}

static void test_streams_beside(void **state)
{
	beside(state, 2, 500000, 0.01);
	beside(state, 4, 500000, 0.01);
	beside(state, 4, 5 * MS, 0.01);
}

/* Where only one stream can be measured at a time, no window may ever be full, and one ends with
 * the work of its stream while others' may go on. */
static void test_streams_without_fences(void **state)
{
	refuse_fences = true;
	in_turns(state, 15);
	beside(state, 2, 500000, 0.1);
	beside(state, 4, 500000, 0.1);
	beside(state, 4, 5 * MS, 0.1);
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
	if (getenv("VERBOSE"))
		fprintf(stderr, "host bound: %llu\n", (unsigned long long)each_ns);
	assert_true(each_ns < (host_ns + (waits ? kernel_ns : 0)) * 106 / 100 + 3 * CALL_NS);
}

static void test_host_bound(void **state)
{
	static const uint64_t lengths[] = {50000, MS, 5 * MS};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		joined(state, 50);
		host_bound(lengths[i], 4 * lengths[i], true, 3); /* 20 % */
		left();
		joined(state, 50);
		host_bound(lengths[i], 5 * lengths[i], false, 3);
		left();
	}
}

/* An idle device waits for each launch for longer than it works on it: that is not charged. */
static void test_short_on_idle(void **state)
{
	static const uint64_t lengths[] = {600, 1500, 2500, 6000, 20000};
	static const uint64_t calls[] = {1000, 3000, 8000};
	static const unsigned bursts[] = {1, 8, 100};

	for (size_t i = 0; i < 2 * 5 * 3 * 3; i++) {
		struct kernel kernel = {.function = 1, .ns = lengths[i % 5]};
		unsigned burst = bursts[i / 15 % 3];
		struct cost_of what = {.function = 1, .shape = 1, .blocks = 1};
		uint64_t began_ns, busy_ns;
		int64_t charged;
		double part;

		call_ns = calls[i / 5 % 3];
		kernel_events_ns = i < 45 ? KERNEL_EVENTS_NS : 1400; /* GPUs differ */
		joined(state, 99);
		busy_ns = 0;
		charged = 0;
		for (began_ns = time_ns; time_ns - began_ns < NS_PER_S;) {
			for (unsigned n = 0; n < burst; n++)
				assert_int_equal(launch(&kernel), 0);
			synchronise(0);
			pass(burst * (kernel.ns / 2));
			if (busy_ns || time_ns - began_ns < NS_PER_S / 4)
				continue;
			busy_ns = fake.busy_ns[0];
			charged = bucket_of(0)->charged + bucket_of(0)->corrected;
		}
		charged = bucket_of(0)->charged + bucket_of(0)->corrected - charged;
		part = 100.0 * (double)charged / (double)(fake.busy_ns[0] - busy_ns);
		if (getenv("VERBOSE"))
			fprintf(stderr, "%u of %lu ns, %lu a call: cost %lu, charged %.1f %%\n",
				burst, (unsigned long)kernel.ns, (unsigned long)call_ns,
				(unsigned long)cost_find(&what)->ns, part);
		assert_share("charged of what is short", part, 100, 4, 4);
		call_ns = CALL_NS;
		kernel_events_ns = KERNEL_EVENTS_NS;
		left();
	}
}

/* Of a device that is never idle, all is charged, though samples show only part of it. */
static void test_gaps(void **state)
{
	static const uint64_t lengths[] = {8000, 50000};
	static const unsigned quotas_of_gaps[] = {80, 99};

	call_ns = 2500;
	for (size_t i = 0; i < 4; i++) {
		const struct kernel kernel = {.function = 1, .ns = lengths[i / 2]};
		unsigned quota = quotas_of_gaps[i % 2];
		uint64_t done_ns[32] = {0}, began_ns, busy_ns = 0;
		double share;

		joined(state, quota);
		fake.gap_ns = 1000;
		began_ns = time_ns;
		for (unsigned n = 0; time_ns - began_ns < 4 * NS_PER_S; n++) {
			uint64_t *done = &done_ns[n % 32];

			if (n % 16 == 0 && *done > time_ns) { /* so many are in flight, or half */
				pass(*done - time_ns);
				pace_waited();
			}
			assert_int_equal(launch(&kernel), 0);
			*done = fake.streams[0][0].done_ns;
			if (!busy_ns && time_ns - began_ns > NS_PER_S) {
				began_ns = time_ns;
				busy_ns = fake.busy_ns[0];
			}
		}
		share = 100.0 * (double)(fake.busy_ns[0] - busy_ns) / (double)(time_ns - began_ns);
		if (getenv("VERBOSE"))
			fprintf(stderr, "gaps, %lu ns: %.2f of %u\n", (unsigned long)kernel.ns,
				share, quota);
		assert_share("gaps", share, quota, 0.5, 0.5);
		left();
	}
	call_ns = CALL_NS;
}

/* Also where launches come no faster than the device works on them, and it always has some
 * milliseconds of work before it: a model's steps, of which four are on their way. */
static void test_gaps_are_behind(void **state)
{
	static const uint64_t lengths[] = {60000, 30000, 6000, 5000, 45000, 4000,
					   6000,  70000, 5000, 8000, 12000};
	static const uint64_t host_ns[] = {19400, 19700, 20000};

	call_ns = 3300;
	for (size_t i = 0; i < 3; i++) {
		uint64_t done_ns[4] = {0}, began_ns, busy_ns = 0;
		double share;

		joined(state, 99);
		fake.gap_ns = 1000;
		began_ns = time_ns;
		for (unsigned step = 0; time_ns - began_ns < 5 * NS_PER_S; step++) {
			if (done_ns[step % 4] > time_ns)
				pass(done_ns[step % 4] - time_ns);
			pace_waited();
			for (unsigned n = 0; n < 44; n++) {
				pass(host_ns[i]);
				assert_int_equal(launch(&(struct kernel){.function = 1 + n % 11,
									 .ns = lengths[n % 11]}),
						 0);
			}
			done_ns[step % 4] = fake.streams[0][0].done_ns;
			if (!busy_ns && time_ns - began_ns > NS_PER_S) {
				began_ns = time_ns;
				busy_ns = fake.busy_ns[0];
			}
		}
		share = 100.0 * (double)(fake.busy_ns[0] - busy_ns) / (double)(time_ns - began_ns);
		if (getenv("VERBOSE"))
			fprintf(stderr, "gaps behind, %lu: %.2f of 99\n", (unsigned long)host_ns[i],
				share);
		assert_share("gaps behind", share, 99, 0.5, 0.5);
		left();
	}
	call_ns = CALL_NS;
}

/* A kernel that runs on in another stream says nothing of what is behind it. */
static void test_running_on_beside(void **state)
{
	const struct kernel on_and_on = {.function = 9, .ns = 100 * NS_PER_S, .stream = 1};
	const struct kernel kernel = {.function = 1, .ns = 2000};
	struct fake_stream *stream = &fake.streams[0][0];
	uint64_t began_ns, given_ns;
	double share;

	call_ns = 3000;
	joined(state, 30);
	fake.beside = true;
	assert_int_equal(launch(&on_and_on), 0);
	for (unsigned second = 0; second < 3; second++) {
		began_ns = time_ns;
		given_ns = fake.given_ns[0];
		while (time_ns - began_ns < NS_PER_S) {
			for (unsigned n = 0; n < 8; n++)
				assert_int_equal(launch(&kernel), 0);
			pass(stream->done_ns > time_ns ? stream->done_ns - time_ns : 0);
			pace_waited();
		}
		share = 100.0 * (double)(fake.given_ns[0] - given_ns) /
			(double)(time_ns - began_ns);
	}
	if (getenv("VERBOSE"))
		fprintf(stderr, "running on beside: %.2f of 30\n", share);
	assert_share("running on beside", share, 30, 3, 3);
	call_ns = CALL_NS;
	left();
}

/* Nor is something late by what its samples show: nobody waits for it. */
static void test_gaps_are_not_late(void **state)
{
	const struct kernel kernel = {.function = 1, .ns = 8000};

	call_ns = 2500;
	joined(state, 99);
	fake.gap_ns = 4000;
	for (unsigned round = 0; round < 100; round++) {
		uint64_t began_ns = time_ns;

		for (unsigned n = 0; n < 600; n++)
			assert_int_equal(launch(&kernel), 0);
		pass(began_ns + 6500000 - time_ns); /* by samples they would be over since 5 ms */
		assert_true(fake.done_ns[0] > time_ns + 100000);
		if (round > 50)
			assert_in_range(launch_timed(&kernel), 0, 50000);
		synchronise(0);
		pass(3 * MS);
	}
	call_ns = CALL_NS;
	left();
}

/* As with CUDA_LAUNCH_BLOCKING=1: the driver's call is as long as the kernel. */
static void test_blocking(void **state)
{
	static const uint64_t lengths[] = {8000, 20000, 200000, 2 * MS};

	call_ns = 3000;
	for (size_t q = 0; q < QUOTAS; q++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
			const struct kernel kernel = {.function = 1, .ns = lengths[i]};
			double share,
				most = 100.0 * (double)kernel.ns / (double)(kernel.ns + call_ns);

			joined(state, quotas[q]);
			fake.blocks = true;
			share_of(&kernel, 1, NS_PER_S);
			share = share_of(&kernel, 1, 2 * NS_PER_S);
			if (getenv("VERBOSE"))
				fprintf(stderr, "blocks, %lu ns: %.2f of %u\n",
					(unsigned long)kernel.ns, share, quotas[q]);
			assert_share("blocks", share, quotas[q] < most ? quotas[q] : most,
				     3 + quotas[q] / 10.0, 2);
			left();
		}
	call_ns = CALL_NS;
}

/* As a graph may be handed over: much of a long call is the device's time, too. */
static void test_handed_over_early(void **state)
{
	const struct kernel kernel = {.function = 1, .ns = 50000};
	uint64_t began_ns, busy_ns;
	double share;

	call_ns = 25000;
	joined(state, 30);
	fake.early = true;
	began_ns = time_ns;
	busy_ns = fake.busy_ns[0];
	while (time_ns - began_ns < 2 * NS_PER_S) {
		assert_int_equal(launch(&kernel), 0);
		synchronise(0);
	}
	share = 100.0 * (double)(fake.busy_ns[0] - busy_ns) / (double)(time_ns - began_ns);
	if (getenv("VERBOSE"))
		fprintf(stderr, "handed over early: %.2f of 30\n", share);
	assert_share("handed over early", share, 30, 5, 3);
	call_ns = CALL_NS;
	left();
}

/* A small graph is there soon, while its launch goes on. */
static void test_graph(void **state)
{
	const struct kernel graph = {.function = 1, .ns = 10000, .graph = true};
	const struct cost_of what = {.function = 1, .shape = 1, .blocks = 1, .graph = true};

	call_ns = 6000;
	joined(state, 99);
	fake.early = true;
	for (unsigned i = 0; i < 50000; i++) {
		assert_int_equal(launch(&graph), 0);
		synchronise(0);
	}
	assert_in_range(cost_find(&what)->ns, 9000, 11000);
	call_ns = CALL_NS;
	left();
}

/* What takes longer than it did, but not longer than its launch, is noticed. */
static void test_grown_on_idle(void **state)
{
	struct kernel kernel = {.function = 1, .ns = 1500};
	double share;

	call_ns = 4500;
	joined(state, 40);
	share_of(&kernel, 1, NS_PER_S);
	kernel.ns = 4000;
	share_of(&kernel, 1, 2 * NS_PER_S);
	share = share_of(&kernel, 1, 2 * NS_PER_S);
	if (getenv("VERBOSE"))
		fprintf(stderr, "grown on an idle device: %.2f of 40\n", share);
	assert_share("grown on an idle device", share, 40, 3, 3);
	call_ns = CALL_NS;
	left();
}

/* What a kernel's first launch takes to load it is the host's time, be the device idle or nearly.
 */
static void test_loaded_at_first(void **state)
{
	const struct kernel known = {.function = 1, .ns = 20000};
	const struct cost_of new_one = {.function = 2, .shape = 1, .blocks = 1};

	for (unsigned busy = 0; busy < 2; busy++) {
		joined(state, 99);
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

/* -- others on the device --------------------------------------------------------------------- */

/* What they take of it is not the slice's: it has its share of what they leave, nearly. */
static void test_neighbours(void **state)
{
	static const uint64_t lengths[] = {20000, 100000, 200000, 400000};

	for (size_t i = 0; i < 2 * sizeof(lengths) / sizeof(*lengths); i++) {
		const struct kernel kernel = {.function = 1, .ns = lengths[i / 2]};
		struct vgpu_region_bucket before;
		double share, wrong;

		call_ns = i % 2 ? 12000 : CALL_NS;
		joined(state, 30);
		fake.neighbours = fake.neighbour_works = true;
		share_of(&kernel, 1, NS_PER_S);
		before = *bucket_of(0);
		fake.given_ns[0] = 0;
		share = share_of(&kernel, 1, 5 * NS_PER_S);
		wrong = (double)(bucket_of(0)->charged + bucket_of(0)->corrected - before.charged -
				 before.corrected) /
			(double)fake.given_ns[0];
		if (getenv("VERBOSE"))
			fprintf(stderr, "neighbours: %.2f of 30, charged %.2f\n", share, wrong);
		assert_share("neighbours", share, 30, 8, 3);
		assert_true(wrong < 1.3);
		call_ns = CALL_NS;
		left();
	}
}

/* What waits for them is not so much that it would go on for long when the quota changes. */
static void test_queue_beside_neighbours(void **state)
{
	static const uint64_t lengths[] = {20000, 50000, 200000};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		uint64_t began_ns, most_ns = 0;

		joined(state, 99);
		fake.neighbours = fake.neighbour_works = true;
		began_ns = time_ns;
		for (unsigned n = 0; time_ns - began_ns < 4 * NS_PER_S; n++) {
			assert_int_equal(launch(&(struct kernel){.function = 1 + n % 3,
								 .ns = lengths[i] * (1 + n % 3)}),
					 0);
			if (fake.done_ns[0] > time_ns + most_ns)
				most_ns = fake.done_ns[0] - time_ns;
		}
		if (getenv("VERBOSE"))
			fprintf(stderr, "queue beside neighbours: %lu us\n",
				(unsigned long)most_ns / 1000);
		assert_in_range(most_ns, 0, 150 * MS);
		left();
	}
}

/* Where they are only said to be there, all is as ever, but for what is not known to be ours. */
static void test_idle_neighbours(void **state)
{
	static const uint64_t lengths[] = {50000, MS, 20 * MS};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		const struct kernel kernel = {.function = 1, .ns = lengths[i]};

		joined(state, 30);
		fake.neighbours = true;
		share_of(&kernel, 1, NS_PER_S);
		assert_share("idle neighbours", share_of(&kernel, 1, 5 * NS_PER_S), 30, 6, 3);
		left();
	}
}

/* Nor for what is short, though the driver knows only after the launch that the device was idle. */
static void test_short_beside_idle_neighbours(void **state)
{
	const struct kernel kernel = {.function = 1, .ns = 3000};
	const struct cost_of what = {.function = 1, .shape = 1, .blocks = 1};

	call_ns = 3000;
	joined(state, 99);
	fake.neighbours = true;
	fake.seen_ns = 4500;
	for (unsigned i = 0; i < 50000; i++) {
		assert_int_equal(launch(&kernel), 0);
		synchronise(0);
		pass(2000);
	}
	assert_in_range(cost_find(&what)->ns, 2500, 3500);
	call_ns = CALL_NS;
	left();
}

/* One function that is short or long: its cost is the lower, beside others, and what keeps it from
 * having all of the device is that it has had its fair part of a long window at least. */
static void test_unlike_beside_others(void **state)
{
	static const struct kernel kernels[] = {{.function = 1, .ns = 50000},
						{.function = 1, .ns = 5 * MS}};
	double share;

	joined(state, 10);
	fake.neighbours = true;
	share_of(kernels, 2, NS_PER_S);
	share = share_of(kernels, 2, 5 * NS_PER_S);
	if (getenv("VERBOSE"))
		fprintf(stderr, "unlike, beside others: %.2f of 10\n", share);
	assert_true(share < 50);
	left();
}

/* One launch that takes next to nothing of what it was thought to: the others' costs stay, and no
 * more of them are on their way than before. */
static void test_one_far_off(void **state)
{
	struct kernel odd = {.function = 9, .ns = 500 * MS};
	const struct kernel usual = {.function = 1, .ns = 200000};

	joined(state, 30);
	assert_int_equal(launch(&odd), 0);
	share_of(&usual, 1, 3 * NS_PER_S);
	odd.ns = 10000;
	assert_int_equal(launch(&odd), 0);
	for (unsigned i = 0; i < 500; i++) {
		assert_int_equal(launch(&usual), 0);
		assert_true(fake.done_ns[0] < time_ns + 15 * MS);
	}
	left();
}

/* However many kinds of kernels there are: each call takes a thousandth of a millisecond, about. */
static void test_few_calls(void **state)
{
	static const unsigned limits[] = {30, 99};

	for (unsigned i = 0; i < 6; i++) {
		unsigned kinds = 1 << (2 * (i / 2));
		struct kernel kernels[16];
		uint64_t began_ns;
		double calls;

		for (unsigned j = 0; j < kinds; j++)
			kernels[j] = (struct kernel){.function = 1 + j, .ns = 200000};
		joined(state, limits[i % 2]);
		share_of(kernels, kinds, NS_PER_S);
		began_ns = time_ns;
		fake.calls = 0;
		share_of(kernels, kinds, NS_PER_S);
		calls = (double)fake.calls / ((double)(time_ns - began_ns) / MS);
		if (getenv("VERBOSE"))
			fprintf(stderr, "%u kinds at %u: %.2f calls a ms\n", kinds, limits[i % 2],
				calls);
		assert_true(calls < (limits[i % 2] == 30 ? 3.1 : 9.6));
		left();
	}
}

/* A program that leaves some of the GPU idle, and wants less than its quota: it could not tell. */
static void test_few_calls_at_leisure(void **state)
{
	static const uint64_t lengths[] = {2000, 20000, 200000};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		struct kernel kernels[40];
		uint64_t began_ns, busy_ns;
		double calls;

		for (unsigned j = 0; j < 40; j++)
			kernels[j] = (struct kernel){.function = 1 + j, .ns = lengths[i]};
		joined(state, 99);
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
		if (getenv("VERBOSE"))
			fprintf(stderr, "at leisure, %llu ns: %.2f calls a ms, busy %.2f %%\n",
				(unsigned long long)lengths[i], calls,
				(double)(fake.busy_ns[0] - busy_ns) / 1e7);
		left();
	}
}

/* One that uses little of it: there is nothing to measure but each kind of kernel now and then. */
static void test_fewer_calls_where_idle(void **state)
{
	struct kernel kernels[40];
	uint64_t began_ns;
	double calls;

	for (unsigned i = 0; i < 40; i++)
		kernels[i] = (struct kernel){.function = 1 + i, .ns = 2000 + i * 200};
	joined(state, 50);
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
	if (getenv("VERBOSE"))
		fprintf(stderr, "at leisure, mostly idle: %.2f calls a ms\n", calls);
	assert_true(calls < 2.9);
	left();
}

/* And then takes ten times as long for everything: within a second it is held to its quota. */
static void test_leisure_ends(void **state)
{
	static const uint64_t lengths[] = {2000, 20000, 200000};

	for (size_t q = 0; q < QUOTAS; q++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
			struct kernel kernel = {.function = 1, .ns = lengths[i]};
			uint64_t began_ns = time_ns, busy_ns;
			double share;

			joined(state, quotas[q]);
			while (time_ns - began_ns < NS_PER_S) {
				assert_int_equal(launch(&kernel), 0);
				pass(kernel.ns * 1000 / (10 * quotas[q]) * 12 / 10 - CALL_NS);
			}
			began_ns = time_ns;
			busy_ns = fake.busy_ns[0];
			kernel.ns *= 10;
			while (time_ns - began_ns < NS_PER_S)
				assert_int_equal(launch(&kernel), 0);
			share = 100.0 * (double)(fake.busy_ns[0] - busy_ns) /
				(double)(time_ns - began_ns);
			if (getenv("VERBOSE"))
				fprintf(stderr, "leisure ends, %llu ns: %.2f of %u\n",
					(unsigned long long)lengths[i], share, quotas[q]);
			assert_share("leisure ends", share, quotas[q], 3, 3);
			left();
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_lengths),
		TEST(test_at_first),
		TEST(test_many_kernels),
		TEST(test_mixed_lengths),
		TEST(test_random_lengths),
		TEST(test_tenfold),
		TEST(test_streams_in_turns),
		TEST(test_streams_beside),
		TEST(test_streams_without_fences),
		TEST(test_host_bound),
		TEST(test_short_on_idle),
		TEST(test_gaps),
		TEST(test_gaps_are_behind),
		TEST(test_gaps_are_not_late),
		TEST(test_running_on_beside),
		TEST(test_blocking),
		TEST(test_handed_over_early),
		TEST(test_graph),
		TEST(test_grown_on_idle),
		TEST(test_loaded_at_first),
		TEST(test_neighbours),
		TEST(test_queue_beside_neighbours),
		TEST(test_idle_neighbours),
		TEST(test_short_beside_idle_neighbours),
		TEST(test_unlike_beside_others),
		TEST(test_one_far_off),
		TEST(test_few_calls),
		TEST(test_few_calls_at_leisure),
		TEST(test_fewer_calls_where_idle),
		TEST(test_leisure_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
