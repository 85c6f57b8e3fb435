/*
 * When a device is taken to be busy: with gaps between kernels that samples do not show, and with a
 * kernel that runs on and on.
 */
#include "pace_fake.h"

/* Of a device that is never idle, all is charged, though samples show only part of it. */
UNIT_TEST(test_gaps)
{
	static const uint64_t lengths[] = {8000, 50000};
	static const unsigned quotas_of_gaps[] = {80, 99};

	call_ns = 2500;
	for (size_t i = 0; i < 4; i++) {
		const struct kernel kernel = {.function = 1, .ns = lengths[i / 2]};
		unsigned quota = quotas_of_gaps[i % 2];
		uint64_t done_ns[32] = {0};
		struct run run;
		double share;

		joined(quota);
		fake.gap_ns = 1000;
		run_begin(&run, 4, 3);
		for (unsigned n = 0; goes_on(&run); n++) {
			uint64_t *done = &done_ns[n % 32];

			if (n % 16 == 0 && *done > time_ns) /* so many are in flight, or half */
				wait_until(*done);
			assert_int_equal(launch(&kernel), 0);
			*done = fake.streams[0][0].done_ns;
		}
		share = share_since(&run.then);
		harness_note("gaps, %lu ns: %.2f of %u", (unsigned long)kernel.ns, share, quota);
		assert_share("gaps", share, quota, 0.5, 0.5);
		left();
	}
}

/* Copies from the host are not the quota's, and take none of it: they go beside kernels, from a
 * stream of their own. */
UNIT_TEST(test_copies_beside)
{
	static const unsigned quotas_of_copies[] = {30, 50, 80};
	static const uint64_t copies_ns[] = {400000, MS, 5 * MS};
	const struct kernel kernel = {.function = 1, .ns = 200000};

	call_ns = 2500;
	for (size_t i = 0; i < 9; i++) {
		unsigned quota = quotas_of_copies[i % 3];
		uint64_t done_ns[8] = {0}, copy_ns = copies_ns[i / 3];
		struct run run;

		joined(quota);
		run_begin(&run, 4, 3);
		for (unsigned n = 0; goes_on(&run); n++) {
			if (n % 40 == 0) /* a step, and what the next but one needs */
				fake.copied_ns = time_ns + copy_ns;
			wait_until(done_ns[n % 8]);
			assert_int_equal(launch(&kernel), 0);
			done_ns[n % 8] = fake.streams[0][0].done_ns;
		}
		harness_note("copies of %lu us beside, at %u: %.2f, charged %.3f",
			     (unsigned long)copy_ns / 1000, quota, share_since(&run.then),
			     charged_since(&run.then));
		assert_share("copies beside", share_since(&run.then), quota, 1, 1);
		left();
	}
}

/* What is between two waits is measured as a whole: lengths that are unlike, under one name, and
 * few at a time, are charged as what they are together. */
UNIT_TEST(test_unlike_between_waits)
{
	static const uint64_t lengths[] = {5000,    20000, 100000,  1500000, 3000,  60000,
					   2400000, 8000,  1100000, 30000,   700000};
	static const unsigned quotas_of_waits[] = {10, 30, 80};

	for (size_t i = 0; i < 3; i++) {
		struct run run;

		joined(quotas_of_waits[i]);
		run_begin(&run, 6, 5);
		for (unsigned n = 0; goes_on(&run); n++) {
			const struct kernel kernel = {.function = 1, .ns = lengths[n % 11]};

			assert_int_equal(launch(&kernel), 0);
			if (n % 5 == 4)
				synchronise_stream(0);
		}
		assert_share("unlike between waits", share_since(&run.then), quotas_of_waits[i], 1,
			     1);
		left();
	}
}

/* Kernels that ran beside each other took less than their samples; alone, they do not, and where
 * the device is taken to be idle for that, no window tells. */
UNIT_TEST(test_no_longer_beside)
{
	static const struct kernel kernels[] = {
		{.function = 1, .ns = 200000},
		{.function = 1, .ns = 200000, .stream = 1},
		{.function = 1, .ns = 200000, .stream = 2},
		{.function = 1, .ns = 200000, .stream = 3},
	};
	struct sums then;

	joined(80);
	fake.concurrent = true;
	share_of(kernels, 4, NS_PER_S);
	for (unsigned n = 0; n < 10000; n++) {
		if (n == 5000)
			then = sums_now();
		assert_int_equal(launch(&kernels[n / 5 % 2]), 0);
		synchronise(0);
		pass(20000);
	}
	assert_share("alone again, charged", 100 * charged_since(&then), 100, 5, 5);
}

/* Nor where the host sometimes is back from a wait only after the device was through with all: when
 * that was, nobody knows, and by what samples show it was too early. */
UNIT_TEST(test_gaps_and_late_wakes)
{
	static const unsigned quotas_of_wakes[] = {10, 30, 50, 80};
	static const unsigned in_flight[] = {8, 16};
	const struct kernel kernel = {.function = 1, .ns = 24000};
	uint64_t late = 1;

	call_ns = 2500;
	for (size_t i = 0; i < 8; i++) {
		unsigned quota = quotas_of_wakes[i % 4], ring = in_flight[i / 4];
		uint64_t done_ns[16] = {0};
		struct run run;

		joined(quota);
		fake.gap_ns = 2000;
		run_begin(&run, 4, 3);
		for (unsigned n = 0; goes_on(&run); n++) {
			if (n % (ring / 2) == 0 && n >= ring) {
				wait_until(done_ns[(n - ring / 2 - 1) % ring]);
				late = chance_after(late);
				pass((late >> 33) * ring %
				     (ring * 16000)); /* the other half: 13000 */
			}
			assert_int_equal(launch(&kernel), 0);
			done_ns[n % ring] = fake.streams[0][0].done_ns;
		}
		harness_note("gaps and late wakes, %u in flight at %u: %.2f, charged %.3f", ring,
			     quota, share_since(&run.then), charged_since(&run.then));
		assert_share("charged for gaps and late wakes", 100 * charged_since(&run.then), 100,
			     2, 1);
		left();
	}
}

/* An idle device gets to an event when that is recorded: the time until then is not in a window. */
UNIT_TEST(test_slow_records)
{
	const struct kernel kernel = {.function = 1, .ns = 24000};
	struct run run;

	call_ns = 2500;
	joined(50);
	fake.record_ns = 8000;
	run_begin(&run, 2, 1);
	for (unsigned n = 0; goes_on(&run); n++) {
		assert_int_equal(launch(&kernel), 0);
		if (n % 16 == 0) {
			synchronise(0);
			pass(100000);
		}
	}
	assert_share("charged where records are slow", 100 * charged_since(&run.then), 100, 0.5,
		     0.5);
}

/* Also where launches come no faster than the device works on them, and it always has some
 * milliseconds of work before it: a model's steps, of which four are on their way. */
UNIT_TEST(test_gaps_are_behind)
{
	static const uint64_t lengths[] = {60000, 30000, 6000, 5000, 45000, 4000,
					   6000,  70000, 5000, 8000, 12000};
	static const uint64_t host_ns[] = {19400, 19700, 20000};

	call_ns = 3300;
	for (size_t i = 0; i < 3; i++) {
		uint64_t done_ns[4] = {0};
		struct run run;
		double share;

		joined(99);
		fake.gap_ns = 1000;
		run_begin(&run, 5, 3);
		for (unsigned step = 0; goes_on(&run); step++) {
			wait_until(done_ns[step % 4]);
			for (unsigned n = 0; n < 44; n++) {
				pass(host_ns[i]);
				assert_int_equal(launch(&(struct kernel){.function = 1 + n % 11,
									 .ns = lengths[n % 11]}),
						 0);
			}
			done_ns[step % 4] = fake.streams[0][0].done_ns;
		}
		share = share_since(&run.then);
		harness_note("gaps behind, %lu: %.2f of 99", (unsigned long)host_ns[i], share);
		assert_share("gaps behind", share, 99, 0.5, 0.5);
		left();
	}
}

/* Nor is something late by what its samples show: nobody waits for it. */
UNIT_TEST(test_gaps_are_not_late)
{
	const struct kernel kernel = {.function = 1, .ns = 8000};

	call_ns = 2500;
	joined(99);
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
}

/* A kernel that runs on in another stream says nothing of what is behind it. */
UNIT_TEST(test_running_on_beside)
{
	const struct kernel on_and_on = {.function = 9, .ns = 100 * NS_PER_S, .stream = 1};
	const struct kernel kernel = {.function = 1, .ns = 2000};
	struct fake_stream *stream = &fake.streams[0][0];
	uint64_t began_ns, given_ns;
	double share;

	call_ns = 3000;
	joined(30);
	fake.concurrent = true;
	assert_int_equal(launch(&on_and_on), 0);
	for (unsigned second = 0; second < 3; second++) {
		began_ns = time_ns;
		given_ns = fake.given_ns[0];
		while (time_ns - began_ns < NS_PER_S) {
			for (unsigned n = 0; n < 8; n++)
				assert_int_equal(launch(&kernel), 0);
			wait_until(stream->done_ns);
		}
		share = 100.0 * (double)(fake.given_ns[0] - given_ns) /
			(double)(time_ns - began_ns);
	}
	harness_note("running on beside: %.2f of 30", share);
	assert_share("running on beside", share, 30, 3, 3);
}
