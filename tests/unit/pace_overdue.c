/*
 * What is not over when it should be, or of which nobody knows when: how long launches are held for
 * it, what they pay, and kernels that wait for launches themselves.
 */
#include "bucket.h"
#include "pace_fake.h"

/* So long is the unknown waited for at first, by what is not the same: overdue.c's PATIENCE_NS; and
 * by what is: that PATIENCE_ALIKE times. What is known is, PATIENCE_KNOWN times. */
#define PATIENT_NS (4 * MS)
#define KNOWN_NS   (32 * PATIENT_NS)
#define ALIKE_NS   (64 * PATIENT_NS)

static const struct kernel short_one = {.function = 1, .ns = MS};

/* It is known, and charged, before it goes again, or a short one before anything else does. */
UNIT_TEST(test_unknown_is_waited_for)
{
	static const uint64_t lengths[] = {MS, 3 * MS, 10 * MS, 30 * MS, 200 * MS};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		const struct kernel unknown = {.function = 5, .ns = lengths[i]};
		const struct kernel *next = lengths[i] < PATIENT_NS ? &short_one : &unknown;

		joined(50);
		assert_true(launch_timed(&unknown) < MS);
		launch_timed(next);
		assert_true(fake.done_ns[0] - next->ns >= lengths[i]);
		assert_true(time_ns >= fake.done_ns[0] - next->ns - CALL_NS);
		assert_true(bucket_of(0)->charged + bucket_of(0)->corrected >=
			    (int64_t)(lengths[i] - lengths[i] / 20 - 5000));
		left();
	}
}

/* Not for ever, as it may wait for what comes later; and who knows it does not wait so. */
UNIT_TEST(test_patience)
{
	const struct kernel endless = {.function = 5, .ns = 100 * NS_PER_S};
	struct kernel others[] = {{.function = 1, .ns = 1000, .stream = 1},
				  {.function = 2, .ns = 1000, .stream = 2}};

	joined(50);
	fake.concurrent = true;
	launch_timed(&endless);
	assert_in_range(launch_timed(&others[0]), PATIENT_NS, PATIENT_NS + 2 * MS);
	assert_true(launch_timed(&others[0]) < MS); /* nobody waits for it again */
	assert_true(launch_timed(&others[1]) < MS);
	/* What was waited for is paid for later, at half of the time. */
	assert_in_range(launch_timed(&endless), 0, MS);
	assert_in_range(launch_timed(&endless), ALIKE_NS * 2, ALIKE_NS * 2 + 10 * MS);
	assert_in_range(launch_timed(&others[0]), ALIKE_NS / 2, ALIKE_NS * 4);
}

/* Each kernel is a new one, and takes longer than anybody waits: ever fewer are on their way. */
UNIT_TEST(test_patience_grows)
{
	struct sums then;

	joined(50);
	then = sums_now();
	for (unsigned i = 0; i < 40; i++) {
		const struct kernel unknown = {.function = 100 + i, .ns = 700 * MS};

		launch_timed(&unknown);
		assert_true(fake.done_ns[0] < time_ns + (i < 8 ? 5 : 3) * NS_PER_S);
	}
	assert_share("patient", share_since(&then), 50, 2, 8);
}

/* A kernel that ends when the one behind it is launched: ever less is waited for it. */
UNIT_TEST(test_patience_shrinks)
{
	struct kernel behind = {.function = 1, .ns = 1000, .stream = 1};
	uint64_t waited_ns = 0;

	joined(50);
	fake.concurrent = true;
	for (unsigned i = 0; i < 6; i++) {
		struct kernel waiting = {.function = 100 + i, .ns = 100 * NS_PER_S};

		assert_int_equal(launch(&waiting), 0);
		waited_ns = launch_timed(&behind);
		assert_in_range(waited_ns, MS, 3 * PATIENT_NS);
		released(0, 0);
		pass(NS_PER_S / 2);
	}
	assert_true(waited_ns <= PATIENT_NS / 2 + MS);
}

/* The same one again and again, as with tuners that time what comes behind it: the time that it was
 * kept waiting for that is not what it costs. */
UNIT_TEST(test_waiting_is_no_cost)
{
	struct kernel waiting = {.function = 7, .ns = 100 * NS_PER_S};
	struct kernel behind = {.function = 1, .ns = 1000, .stream = 1};

	joined(50);
	fake.concurrent = true;
	for (unsigned i = 0; i < 20; i++) {
		uint64_t waited_ns;

		assert_int_equal(launch(&waiting), 0);
		waited_ns = launch_timed(&behind);
		assert_true(waited_ns < (i ? 10 * MS : PATIENT_NS + MS));
		released(0, 0);
		pass(MS);
	}
}

/* As JAX times what it may choose from: behind a kernel that spins until all is there, or for
 * GIVES_UP_NS. What is timed ran once before. How long it spun at most, but for the first time, and
 * the few when it is seen anew; and the longest of all. */
#define GIVES_UP_NS (100 * MS)
static uint64_t tune(unsigned rounds, unsigned behind, uint64_t ns)
{
	const struct kernel spinning = {.function = 1000, .ns = GIVES_UP_NS};
	unsigned held = 0;
	uint64_t longest_ns = 0;

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t end_ns, began_ns;

		for (unsigned j = 0; j < behind; j++)
			launch_timed(&(struct kernel){.function = 1 + i * 10 + j, .ns = ns});
		synchronise(0);
		pass(MS);
		launch_timed(&spinning);
		end_ns = fake.done_ns[0];
		began_ns = end_ns - GIVES_UP_NS;
		for (unsigned j = 0; j < behind; j++)
			launch_timed(&(struct kernel){.function = 1 + i * 10 + j, .ns = ns});
		ended(0, 0, end_ns);
		if (time_ns - began_ns > longest_ns)
			longest_ns = time_ns - began_ns;
		held += time_ns - began_ns > MS;
		synchronise(0);
		pass(MS);
	}
	assert_true(held <= 1 + rounds / 32);
	return longest_ns;
}

UNIT_TEST(test_tuner)
{
	static const unsigned quotas[] = {5, 10, 30, 50, 90};
	static const uint64_t lengths[] = {10000, 200000, 3 * MS};

	for (unsigned i = 0; i < 5 * 3 * 3; i++) {
		unsigned quota = quotas[i % 5], behind = 1 + i / 15;
		uint64_t ns = lengths[i / 5 % 3], began_ns, longest_ns;
		double share;

		joined(quota);
		began_ns = time_ns;
		longest_ns = tune(100, behind, ns);
		share = 100.0 * (double)fake.busy_ns[0] / (double)(time_ns - began_ns);
		harness_note("tuner at %u, %u of %.2f ms: %.2f ms, %.1f %%", quota, behind,
			     (double)ns / 1e6, (double)longest_ns / 1e6, share);
		assert_true(longest_ns < GIVES_UP_NS);
		assert_true(share < quota + 2);
		left();
	}
}

/* A kernel that ended by chance just when one was let go that was held for it; and that is a short
 * one from then on, or not. */
UNIT_TEST(test_wrongly_taken_to_wait)
{
	static const uint64_t lengths[] = {20000, 300000, 1500000, 2500000, 5 * MS};
	static const unsigned quotas[] = {10, 50, 90};

	for (unsigned i = 0; i < 15; i++) {
		struct kernel kernel = {.function = 1, .ns = 5 * MS};
		const struct kernel behind = {.function = 2, .ns = 20000};
		unsigned quota = quotas[i % 3];
		uint64_t began_ns, longest_ns = 0;
		struct sums then;

		joined(quota);
		launch_timed(&kernel);
		assert_true(launch_timed(&behind) > MS);
		synchronise(0);
		kernel.ns = lengths[i / 3];
		for (began_ns = time_ns; time_ns - began_ns < NS_PER_S;)
			launch_timed(&kernel);
		then = sums_now();
		for (unsigned n = 0; time_ns - then.at_ns < 5 * NS_PER_S; n++) {
			launch_timed(n % 5 ? &kernel : &behind);
			if (fake.done_ns[0] > time_ns + longest_ns)
				longest_ns = fake.done_ns[0] - time_ns;
		}
		harness_note("wrongly: %.2f ms at %u: %.1f %%, at most %.1f ms",
			     (double)kernel.ns / 1e6, quota, share_since(&then),
			     (double)longest_ns / 1e6);
		assert_share("wrongly", share_since(&then), quota, 2, 2);
		assert_true(longest_ns < 20 * MS);
		left();
	}
}

/* What was given up and is over leaves nothing behind: all streams are measured at once again. */
UNIT_TEST(test_waiting_is_over)
{
	struct kernel waiting = {.function = 7, .ns = 100 * NS_PER_S};
	struct kernel behind = {.function = 2, .ns = 1000, .stream = 1};
	const struct kernel two[] = {short_one, {.function = 1, .ns = 50000, .stream = 2}};

	joined(50);
	fake.concurrent = true;
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(launch(&waiting), 0);
		launch_timed(&behind);
		released(0, 0);
		pass(MS);
	}
	share_of(two, 2, NS_PER_S);
	fake.fences = 0;
	share_of(two, 2, NS_PER_S);
	assert_true(fake.fences > 20); /* none while anything is stuck */
}

/* A known kernel that takes a thousand times as long as ever: some are on their way by then, and
 * are paid for. How many is a matter of chance: of lengths from 40 to 60 us, 97 in the mean and 125
 * at most. */
UNIT_TEST(test_late_is_waited_for)
{
	struct kernel kernel = {.function = 1, .ns = 50000};
	struct sums then;

	joined(50);
	share_of(&kernel, 1, NS_PER_S);
	then = sums_now();
	kernel.ns *= 1000;
	while (time_ns - then.at_ns < 20 * NS_PER_S) {
		assert_int_equal(launch(&kernel), 0);
		assert_true(fake.done_ns[0] < time_ns + 160 * kernel.ns);
	}
	assert_share("late", share_since(&then), 50, 8, 4);
}

/* What took turns in two streams takes much longer: work is given up in which several windows are,
 * and what was waited for pays for all of them, not for the first that is over alone. */
UNIT_TEST(test_wait_pays_for_all)
{
	for (uint64_t ns = 100000; ns < 120000; ns += 1000) {
		struct kernel two[] = {{.function = 1, .ns = ns, .stream = 1},
				       {.function = 1, .ns = ns, .stream = 2}};
		uint64_t began_ns;

		joined(80);
		share_of(two, 2, NS_PER_S / 2);
		two[0].ns *= 39;
		began_ns = time_ns;
		while (time_ns - began_ns < 2 * NS_PER_S) {
			assert_int_equal(launch(&two[0]), 0);
			assert_true(bucket_level(bucket_of(0)) <= BUCKET_FULL_NS);
		}
		left();
	}
}

/* Nor when nobody will ever know how long it took. */
UNIT_TEST(test_nothing_stays_paid)
{
	struct kernel kernel = {.function = 1, .ns = 50000};
	int64_t level_ns;

	joined(50);
	share_of(&kernel, 1, NS_PER_S);
	synchronise(0);
	level_ns = bucket_level(bucket_of(0));
	kernel.ns = NS_PER_S;
	while (launch_timed(&kernel) < KNOWN_NS)
		;
	assert_true(bucket_level(bucket_of(0)) < level_ns - (int64_t)KNOWN_NS / 4);
	pace_end_context(&context_a);
	assert_true(bucket_level(bucket_of(0)) > level_ns - (int64_t)KNOWN_NS / 4);
}

/* What one function of two lengths gets of the device in streams that take turns, so that its cost
 * leans to the low side; one launch in so many is another function, 0: none is. */
static double share_of_mixture(uint64_t short_ns, uint64_t long_ns, unsigned unknown_each)
{
	uint64_t began_ns = time_ns, chance = 3;

	for (unsigned i = 1; time_ns - began_ns < 8 * NS_PER_S; i++) {
		struct kernel kernel = {.function = 1};

		chance = chance_after(chance);
		kernel.ns = chance >> 63 ? long_ns : short_ns;
		kernel.stream = 1 + (unsigned)(chance >> 40) % 3;
		if (unknown_each && i % unknown_each == 0)
			kernel.function = 1000 + i;
		assert_int_equal(launch(&kernel), 0);
		assert_true(fake.done_ns[0] < time_ns + 4 * NS_PER_S);
	}
	synchronise(0);
	return 100.0 * (double)fake.busy_ns[0] / (double)(time_ns - began_ns);
}

/* Windows of so many launches are all in use soon: what went then would be paid for by costs alone.
 */
UNIT_TEST(test_unmeasured_is_held)
{
	joined(30);
	assert_share("unmeasured", share_of_mixture(2000, 1024000, 0), 30, 2, 2);
}

/* What nobody knows is in no window, nor are they lost for that; and for what is before it, it is
 * not given up. */
UNIT_TEST(test_unknown_among_known)
{
	joined(30);
	assert_share("one in twenty", share_of_mixture(32000, 320000, 20), 30, 4, 1);
	left();
	joined(80);
	assert_share("one in a hundred", share_of_mixture(8000, 320000, 100), 80, 4, 2);
}

/* As long as there is something known before it, which takes its time, and then as long as ever. */
UNIT_TEST(test_unknown_behind_known)
{
	struct kernel known = {.function = 1, .ns = 50000};
	const struct kernel unknown = {.function = 2, .ns = 3 * MS};
	uint64_t end_ns;

	joined(50);
	share_of(&known, 1, NS_PER_S);
	synchronise(0);
	pass(100 * MS);
	known.ns = MS;
	for (unsigned i = 0; i < 60; i++)
		assert_int_equal(launch(&known), 0);
	launch_timed(&unknown);
	end_ns = fake.done_ns[0];
	assert_true(end_ns > time_ns + 50 * MS);
	launch_timed(&short_one);
	assert_in_range(time_ns, end_ns, end_ns + 200 * MS);
}

/* Nor for ever: where all that is under way never ends, that is waited for once. */
UNIT_TEST(test_unmeasured_goes)
{
	const struct kernel other = {.function = 1, .ns = 1000, .stream = 2};
	uint64_t began_ns;

	joined(50);
	fake.concurrent = true;
	launch_timed(&other);
	for (unsigned i = 0; i < 20; i++) {
		const struct kernel endless = {.function = 100 + i, .ns = 1000 * NS_PER_S};

		launch_timed(&endless);
	}
	pass(30 * NS_PER_S);
	began_ns = time_ns;
	for (unsigned i = 0; i < 1000; i++)
		launch_timed(&other);
	assert_true(time_ns - began_ns < 2 * NS_PER_S);
}
