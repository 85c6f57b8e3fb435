/*
 * Programs that want less than their quota, and want it in bursts: what they do is over about as
 * soon as without a quota. And programs that want all there is: no second of theirs is far from the
 * quota, be it the first after a long pause.
 *
 * BURST=NS gives the bucket so much credit at most, in place of the default; then the figures are
 * not judged. VGPU_TEST_VERBOSE=1 prints them.
 */
#include "bucket.h"
#include "pace_fake.h"

static bool is_judged(void)
{
	return !getenv("BURST");
}

static void begin(unsigned quota)
{
	const char *burst = getenv("BURST");

	joined(quota);
	fake.record_ns = 700;
	for (int device = 0; burst && device < DEVICES; device++)
		region.file->own.device[device].burst_ns = strtoull(burst, NULL, 10);
}

/* So many kernels, one after the other, and a wait for them. */
static void work(uint64_t kernel_ns, uint64_t kernels)
{
	const struct kernel kernel = {.function = 1, .ns = kernel_ns};

	for (uint64_t i = 0; i < kernels; i++)
		assert_int_equal(launch(&kernel), 0);
	synchronise_stream(0);
}

/* -- a server --------------------------------------------------------------------------------- */

#define KERNEL_NS     50000
#define KERNELS       20 /* of a request */
#define REQUESTS_MOST 10000
#define STEP_NS       10000
#define SERVED_NS     (20 * NS_PER_S)

struct latencies {
	double p50, p99, p999; /* ms */
};

/* Time until the next request, which is as likely to come in each step. */
static uint64_t next_ns(uint64_t mean_ns)
{
	uint64_t ns = STEP_NS;

	while (below(mean_ns) >= STEP_NS)
		ns += STEP_NS;
	return ns;
}

static int compare(const void *a, const void *b)
{
	uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;

	return one < other ? -1 : one > other;
}

static double in_ms(uint64_t ns)
{
	return (double)ns / (double)NS_PER_MS;
}

/* Requests are answered in the order in which they come, and keep the device busy for load_pct of
 * the time. quota 0: none. */
static struct latencies serve(unsigned load_pct, unsigned quota)
{
	static uint64_t took_ns[REQUESTS_MOST];
	uint64_t at_ns, from_ns;
	unsigned count = 0;

	begin(quota);
	random_state = 1;
	at_ns = time_ns;
	from_ns = time_ns + NS_PER_S;
	while (time_ns < from_ns + SERVED_NS) {
		at_ns += next_ns((uint64_t)KERNELS * KERNEL_NS * 100 / load_pct);
		if (at_ns > time_ns)
			pass(at_ns - time_ns);
		work(KERNEL_NS, KERNELS);
		if (time_ns > from_ns && count < REQUESTS_MOST)
			took_ns[count++] = time_ns - at_ns;
	}
	left();
	qsort(took_ns, count, sizeof(*took_ns), compare);
	return (struct latencies){in_ms(took_ns[count / 2]), in_ms(took_ns[count * 99 / 100]),
				  in_ms(took_ns[count * 999 / 1000])};
}

UNIT_TEST(test_server)
{
	static const struct {
		unsigned load_pct, quota;
	} rows[] = {{15, 30}, {15, 50}, {40, 50}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct latencies bare = serve(rows[i].load_pct, 0);
		struct latencies got = serve(rows[i].load_pct, rows[i].quota);

		harness_note("server, load %u %%, quota %u: p50 %.2f, p99 %.2f, p99.9 %.2f ms; "
			     "without one %.2f, %.2f, %.2f",
			     rows[i].load_pct, rows[i].quota, got.p50, got.p99, got.p999, bare.p50,
			     bare.p99, bare.p999);
		assert_true(!is_judged() || got.p50 <= 1.1 * bare.p50);
		assert_true(!is_judged() || got.p99 <= 1.5 * bare.p99);
	}
}

/* -- work, and a sleep ------------------------------------------------------------------------ */

#define WORKED_NS (5 * NS_PER_S)

/* How much work is done in all, per second. The sleep is a fifth longer or shorter at random. */
static double work_and_sleep(uint64_t work_ns, uint64_t sleep_ns, unsigned quota)
{
	uint64_t from_ns, busy_ns, took_ns;

	begin(quota);
	random_state = 1;
	from_ns = time_ns + NS_PER_S;
	for (busy_ns = 0; time_ns < from_ns + WORKED_NS;) {
		work(KERNEL_NS, work_ns / KERNEL_NS);
		pass(sleep_ns * (80 + below(41)) / 100);
		if (time_ns < from_ns)
			busy_ns = fake.busy_ns[0];
	}
	took_ns = time_ns - from_ns;
	busy_ns = fake.busy_ns[0] - busy_ns;
	left();
	return (double)busy_ns / (double)took_ns;
}

UNIT_TEST(test_work_and_sleep)
{
	static const uint64_t work_ms[] = {1, 5, 10, 20};
	static const unsigned quotas[] = {30, 50, 80};

	for (unsigned i = 0; i < 4; i++)
		for (unsigned j = 0; j < 3; j++) {
			uint64_t work_ns = work_ms[i] * MS;
			uint64_t sleep_ns = work_ns * 100 / (quotas[j] - 1) - work_ns;
			double bare = work_and_sleep(work_ns, sleep_ns, 0);
			double got = work_and_sleep(work_ns, sleep_ns, quotas[j]);

			harness_note("work of %u ms, quota %u: wants %.1f %%, gets %.3f of it",
				     (unsigned)work_ms[i], quotas[j], 100 * bare, got / bare);
			assert_true(!is_judged() || got >= 0.98 * bare);
		}
}

/* -- full load -------------------------------------------------------------------------------- */

#define SECONDS  3
#define AHEAD_NS (100 * MS) /* the driver's queue is full */
#define PAUSE    (3 * NS_PER_S)

struct load {
	uint64_t ns, other_ns; /* launches take the one and the other in turns */
	bool waits;            /* for each of them */
	bool streams;          /* those with the other length run in a stream of their own */
};

static void launch_next(const struct load *load, unsigned *turn)
{
	bool other = (*turn)++ % 2;
	const struct kernel kernel = {.function = 1 + other,
				      .ns = other ? load->other_ns : load->ns,
				      .stream = load->streams && other};

	assert_int_equal(launch(&kernel), 0);
	if (load->waits)
		synchronise_stream(kernel.stream);
	else if (fake.done_ns[0] > time_ns + AHEAD_NS)
		pass(fake.done_ns[0] - time_ns - AHEAD_NS);
}

/* What the device has done by now. */
static uint64_t done_ns(void)
{
	return fake.busy_ns[0] - (fake.done_ns[0] > time_ns ? fake.done_ns[0] - time_ns : 0);
}

/* Its share in a second: percent. */
static double load_for_a_second(const struct load *load, unsigned *turn)
{
	uint64_t from_ns = time_ns, before_ns = done_ns();

	while (time_ns < from_ns + NS_PER_S)
		launch_next(load, turn);
	return 100.0 * (double)(done_ns() - before_ns) / (double)(time_ns - from_ns);
}

static void judge(const struct load *load, unsigned quota, bool paused, unsigned second,
		  double share)
{
	harness_note("full load of %.3f and %.3f ms%s%s, quota %u%s, second %u: %.2f",
		     in_ms(load->ns), in_ms(load->other_ns), load->waits ? ", waits" : "",
		     load->streams ? ", two streams" : "", quota, paused ? ", after a pause" : "",
		     second + 1, share);
	if (is_judged())
		assert_share("full load", share, quota, 3, 3);
}

/* From its first launch, whose cost is not known yet, or from when it is and the bucket is full. */
static void load_fully(const struct load *load, unsigned quota, bool paused)
{
	unsigned turn = 0;

	begin(quota);
	if (paused) {
		load_for_a_second(load, &turn);
		synchronise_stream(0);
		synchronise(0);
		pass(PAUSE);
	}
	for (unsigned second = 0; second < SECONDS; second++)
		judge(load, quota, paused, second, load_for_a_second(load, &turn));
	left();
}

UNIT_TEST(test_full_load)
{
	static const unsigned quotas[] = {10, 30, 80};
	static const struct load loads[] = {
		{.ns = 5000, .other_ns = 5000},
		{.ns = 200000, .other_ns = 200000},
		{.ns = 10 * MS, .other_ns = 10 * MS},
		{.ns = 50000, .other_ns = 5 * MS},
		{.ns = 50000, .other_ns = 50000, .waits = true},
		{.ns = 2 * MS, .other_ns = 2 * MS, .waits = true},
		{.ns = 30000, .other_ns = 3 * MS, .waits = true},
		{.ns = 100000, .other_ns = 100000, .streams = true},
		{.ns = 100000, .other_ns = MS, .streams = true},
	};

	for (size_t i = 0; i < sizeof(loads) / sizeof(*loads); i++)
		for (unsigned j = 0; j < 3; j++) {
			load_fully(&loads[i], quotas[j], false);
			load_fully(&loads[i], quotas[j], true);
		}
}
