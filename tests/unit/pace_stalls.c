/*
 * Streams that wait for something while the device is free: for an event behind a copy in another
 * stream, for a host function, for a value in memory. What a stream waits for is not charged.
 */
#include "pace_fake.h"

#define AHEAD_MOST 8

struct pipeline {
	uint64_t kernel_ns, stall_ns;
	unsigned ahead; /* steps that the host is ahead of the device */
	bool waits;     /* the host waits for an event of each step */
	unsigned quota;
};

static void play(const struct pipeline *pipeline)
{
	const struct kernel kernel = {.function = 1, .ns = pipeline->kernel_ns};
	uint64_t done_ns[AHEAD_MOST] = {0};
	struct run run;
	double wants = 100.0 * (double)kernel.ns / (double)(kernel.ns + pipeline->stall_ns);
	double least = wants < pipeline->quota ? wants : pipeline->quota, share;

	joined(pipeline->quota);
	run_begin(&run, 5, 4);
	for (unsigned step = 0; goes_on(&run); step++) {
		uint64_t *earlier_ns = &done_ns[step % pipeline->ahead];

		if (pipeline->waits) {
			pace_will_wait(&context_a, false);
			wait_until(*earlier_ns);
		} else if (*earlier_ns > time_ns) {
			pass(*earlier_ns - time_ns);
		}
		stall(0, pipeline->stall_ns);
		assert_int_equal(launch(&kernel), 0);
		*earlier_ns = fake.streams[0][0].done_ns;
	}
	share = share_since(&run.then);
	harness_note("kernel %lu us, stall %lu us, %u ahead%s: %.2f of %.1f wanted, quota %u; "
		     "charged %.3f",
		     (unsigned long)kernel.ns / 1000, (unsigned long)pipeline->stall_ns / 1000,
		     pipeline->ahead, pipeline->waits ? ", waits" : "", share, wants,
		     pipeline->quota, charged_since(&run.then));
	if (!getenv("KEEP"))
		assert_share("with stalls", share, least, least / 10, 2);
	left();
}

UNIT_TEST(test_pipelines)
{
	static const struct pipeline pipelines[] = {
		{500000, 500000, 0, false, 60}, {100000, 300000, 0, false, 30},
		{2 * MS, 2 * MS, 0, false, 60}, {500000, 500000, 0, false, 30},
		{20000, 60000, 0, false, 30},
	};
	static const unsigned aheads[] = {1, 2, AHEAD_MOST};

	for (size_t i = 0; i < 2 * 3 * sizeof(pipelines) / sizeof(*pipelines); i++) {
		struct pipeline pipeline = pipelines[i / 6];

		pipeline.ahead = aheads[i % 6 / 2];
		pipeline.waits = i % 2;
		play(&pipeline);
	}
}
