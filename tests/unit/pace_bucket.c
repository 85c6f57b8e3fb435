/* The bucket: what time brings, what work takes, and that no measurement corrects a charge twice.
 */
#include <pthread.h>

#include "bucket.h"
#include "region_fixture.h"

#define START (1700000000 * NS_PER_S)
#define HOUR  (3600 * NS_PER_S)
#define MS    ((int64_t)NS_PER_MS)

static struct vgpu_region_bucket bucket;

/* Empty, as of START. */
static void begin(void)
{
	memset(&bucket, 0, sizeof(bucket));
	bucket_refill(&bucket, 50, START);
}

static void test_first_refill_is_none(void **state)
{
	(void)state;
	begin();
	assert_int_equal(bucket_level(&bucket), 0);
}

/* At the rate, however often it is asked. */
static void test_rate(void **state)
{
	static const unsigned rates[] = {1, 10, 37, 50, 99};
	static const uint64_t steps[] = {1000, 49999, 70001, NS_PER_MS, 3 * NS_PER_MS};

	(void)state;
	for (size_t r = 0; r < sizeof(rates) / sizeof(*rates); r++)
		for (size_t s = 0; s < sizeof(steps) / sizeof(*steps); s++) {
			int64_t due = (int64_t)(NS_PER_S * rates[r] / 100);

			begin();
			bucket_charge(&bucket, 2 * NS_PER_S, START); /* far from full */
			for (uint64_t t = 0; t <= NS_PER_S; t += steps[s])
				bucket_refill(&bucket, rates[r], START + t);
			assert_true(bucket_level(&bucket) + 2000 * MS <= due);
			assert_true(bucket_level(&bucket) + 2000 * MS >=
				    due - due / 50 - (int64_t)(2 * steps[s]));
		}
}

static void test_cap(void **state)
{
	(void)state;
	begin();
	for (uint64_t s = 1; s < 5; s++) {
		bucket_refill(&bucket, 50, START + s * NS_PER_S);
		assert_int_equal(bucket_level(&bucket), BUCKET_FULL_NS);
	}
	bucket_correct(&bucket, -5 * MS); /* more than full: that stays, and nothing comes to it */
	bucket_refill(&bucket, 50, START + 10 * NS_PER_S);
	assert_int_equal(bucket_level(&bucket), BUCKET_FULL_NS + 5 * MS);
}

/* Never forgiven, and paid at the rate. */
static void test_debt(void **state)
{
	uint64_t now = START;

	(void)state;
	begin();
	bucket_charge(&bucket, 3 * NS_PER_S, now);
	for (unsigned i = 0; i < 5990; i++)
		bucket_refill(&bucket, 50, now += NS_PER_MS);
	assert_false(bucket_is_open(&bucket));
	for (unsigned i = 0; i < 20; i++)
		bucket_refill(&bucket, 50, now += NS_PER_MS);
	assert_true(bucket_is_open(&bucket));
	assert_in_range(bucket_level(&bucket) + 100 * MS, 95 * MS, 105 * MS);
}

static void test_hysteresis(void **state)
{
	(void)state;
	begin();
	assert_true(bucket_is_open(&bucket));
	bucket_charge(&bucket, (uint64_t)-BUCKET_SHUT_NS - 1, START);
	assert_true(bucket_is_open(&bucket));
	bucket_charge(&bucket, 1, START);
	assert_false(bucket_is_open(&bucket));
	bucket_correct(&bucket, BUCKET_SHUT_NS - BUCKET_OPEN_NS + 1);
	assert_int_equal(bucket_level(&bucket), BUCKET_OPEN_NS - 1);
	assert_false(bucket_is_open(&bucket));
	bucket_correct(&bucket, -1);
	assert_true(bucket_is_open(&bucket));
	bucket_correct(&bucket, 1);
	assert_true(bucket_is_open(&bucket));
}

/* After the time that it says, not much before. */
static void test_wait(void **state)
{
	static const unsigned rates[] = {1, 50, 99};

	(void)state;
	for (size_t r = 0; r < sizeof(rates) / sizeof(*rates); r++) {
		uint64_t wait;

		begin();
		assert_int_equal(bucket_wait_ns(&bucket, rates[r]), 0);
		bucket_charge(&bucket, 30 * NS_PER_MS, START);
		assert_false(bucket_is_open(&bucket));
		wait = bucket_wait_ns(&bucket, rates[r]);
		bucket_refill(&bucket, rates[r], START + wait - wait / 50);
		assert_false(bucket_is_open(&bucket));
		bucket_refill(&bucket, rates[r], START + wait + 2 * NS_PER_MS);
		assert_true(bucket_is_open(&bucket));
	}
}

/* -- the clock is set ------------------------------------------------------------------------- */

static void test_steps(void **state)
{
	(void)state;
	begin();
	bucket_charge(&bucket, 3 * NS_PER_MS, START);
	bucket_refill(&bucket, 50, START + 5 * HOUR);
	assert_int_equal(bucket_level(&bucket), BUCKET_FULL_NS);
	bucket_charge(&bucket, 5 * NS_PER_MS, START + 5 * HOUR);
	bucket_refill(&bucket, 50, START); /* back: nothing comes, */
	assert_int_equal(bucket_level(&bucket), BUCKET_FULL_NS - 5 * MS);
	bucket_refill(&bucket, 50, START + 2 * NS_PER_MS); /* and it goes on from there */
	assert_int_equal(bucket_level(&bucket), BUCKET_FULL_NS - 4 * MS);
	for (unsigned i = 0; i < 20; i++) {
		bucket_refill(&bucket, 99, START + i % 2 * HOUR);
		assert_true(bucket_level(&bucket) <= BUCKET_FULL_NS);
	}
}

/* What was submitted before does not seem to go on until it is that late again. */
static void test_busy_after_steps(void **state)
{
	static const uint64_t backs[] = {NS_PER_S, 30 * NS_PER_S, 70 * NS_PER_S, 5 * HOUR};

	(void)state;
	for (size_t i = 0; i < sizeof(backs) / sizeof(*backs); i++) {
		begin();
		bucket_refill(&bucket, 50, START + backs[i]);
		bucket_charge(&bucket, NS_PER_MS, START + backs[i]);
		bucket_refill(&bucket, 50, START);
		bucket_charge(&bucket, NS_PER_MS, START);
		assert_false(bucket_is_idle(&bucket, START));
		assert_true(bucket_is_idle(&bucket, START + 3 * NS_PER_MS));
	}
}

/* -- what is submitted ------------------------------------------------------------------------ */

static void test_idle(void **state)
{
	struct bucket_mark before, after;

	(void)state;
	begin();
	assert_true(bucket_is_idle(&bucket, START));
	bucket_charge(&bucket, 2 * NS_PER_MS, START);
	bucket_charge(&bucket, 3 * NS_PER_MS, START);
	assert_false(bucket_is_idle(&bucket, START + 4 * NS_PER_MS));
	assert_true(bucket_is_idle(&bucket, START + 6 * NS_PER_MS));
	before = bucket_mark(&bucket, START + 5 * NS_PER_MS);
	after = bucket_mark(&bucket, START + 9 * NS_PER_MS); /* is still idle */
	assert_int_equal(after.idle - before.idle, 4 * MS);
	bucket_charge(&bucket, NS_PER_MS, START + 9 * NS_PER_MS);
	after = bucket_mark(&bucket, START + 9 * NS_PER_MS);
	assert_int_equal(after.idle - before.idle, 4 * MS);
	assert_int_equal(after.charged - before.charged, 1 * MS);
	bucket_is_busy_after_all(&bucket, START + 12 * NS_PER_MS);
	assert_true(bucket_is_idle(&bucket, START + 12 * NS_PER_MS + 1));
	after = bucket_mark(&bucket, START + 12 * NS_PER_MS);
	assert_int_equal(after.idle - before.idle, 4 * MS);
	bucket_is_busy_after_all(&bucket, START); /* never back */
	assert_false(bucket_is_idle(&bucket, START + 11 * NS_PER_MS));
}

/* -- measuring -------------------------------------------------------------------------------- */

static struct bucket_mark at(int64_t charged)
{
	return (struct bucket_mark){charged, 0};
}

static void measure(int64_t from, int64_t to, int64_t busy_ns)
{
	struct bucket_mark begun = at(from), ended = at(to);

	bucket_measured(&bucket, &begun, &ended, busy_ns);
}

static void test_measured(void **state)
{
	(void)state;
	begin();
	bucket_charge(&bucket, 100 * NS_PER_MS, START);
	measure(0, 10 * MS, 20 * MS); /* twice what was charged */
	assert_int_equal(bucket.corrected, 10 * MS);
	measure(10 * MS, 20 * MS, 5 * MS); /* half of it */
	assert_int_equal(bucket.corrected, 5 * MS);
	measure(20 * MS, 30 * MS, 10 * MS);
	assert_int_equal(bucket.corrected, 5 * MS);
	measure(30 * MS, 40 * MS, -1); /* it was right; */
	measure(30 * MS, 40 * MS, 99 * MS);
	assert_int_equal(bucket.corrected, 5 * MS); /* that is settled */
}

static void test_overlap(void **state)
{
	(void)state;
	begin();
	bucket_charge(&bucket, 100 * NS_PER_MS, START);
	measure(0, 10 * MS, 20 * MS);
	measure(5 * MS, 15 * MS, 20 * MS); /* half of it anew */
	assert_int_equal(bucket.corrected, 15 * MS);
	measure(2 * MS, 12 * MS, 20 * MS); /* nothing */
	measure(0, 15 * MS, 30 * MS);
	assert_int_equal(bucket.corrected, 15 * MS);
	measure(20 * MS, 25 * MS, 10 * MS); /* for what came before it, too */
	assert_int_equal(bucket.corrected, 25 * MS);
	assert_int_equal(bucket.measured, 25 * MS);
}

/* A short one says little about the long time before it; one of nothing says nothing. */
static void test_reach(void **state)
{
	(void)state;
	begin();
	bucket_charge(&bucket, 1000 * NS_PER_MS, START);
	measure(899 * MS, 900 * MS, 2 * MS);
	assert_in_range(bucket.corrected, 1 * MS, 10 * MS);
	measure(1000 * MS, 1000 * MS, 5 * MS);
	assert_in_range(bucket.corrected, 1 * MS, 10 * MS);
}

/* -- all at once ------------------------------------------------------------------------------ */

#define PROCESSES 2
#define THREADS   2 /* of each: as many measurements may overlap, as one speaks for the range of */
#define ROUNDS    200000
#define STEP_NS   20 /* all of it is less than a step of the clock */
#define UNIT      4096

static struct shared {
	struct vgpu_region_bucket bucket;
	uint64_t ready, time;
} * shared;

static void *work(void *arg)
{
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
	while (FLAG_READ(shared->ready) < PROCESSES * THREADS)
		;
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t now = START + __atomic_fetch_add(&shared->time, STEP_NS, __ATOMIC_SEQ_CST);
		struct bucket_mark from = bucket_mark(&shared->bucket, now), to;

		bucket_refill(&shared->bucket, 50, now);
		bucket_charge(&shared->bucket, UNIT, now);
		to = bucket_mark(&shared->bucket, now);
		bucket_measured(&shared->bucket, &from, &to, 2 * (to.charged - from.charged));
	}
	return arg;
}

static void in_process(void *arg)
{
	pthread_t threads[THREADS];

	(void)arg;
	for (unsigned i = 0; i < THREADS; i++)
		MUST(pthread_create(&threads[i], NULL, work, NULL) == 0);
	for (unsigned i = 0; i < THREADS; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
}

/* All that was charged is corrected, each of it once; and time that two see comes once. */
static void test_at_once(void **state)
{
	pid_t pids[PROCESSES];
	int64_t charged = (int64_t)PROCESSES * THREADS * ROUNDS * UNIT;

	(void)state;
	shared = shared_memory(sizeof(*shared));
	for (unsigned i = 0; i < PROCESSES; i++)
		pids[i] = spawn(in_process, NULL);
	for (unsigned i = 0; i < PROCESSES; i++)
		assert_int_equal(reap_status(pids[i]), 0);
	assert_int_equal(shared->bucket.charged, charged);
	assert_int_equal(shared->bucket.measured, charged);
	assert_true(shared->bucket.corrected <= charged);
	assert_true(shared->bucket.corrected >= charged - PROCESSES * THREADS * ROUNDS);
	assert_true(shared->bucket.credit <= (int64_t)(shared->time / 2));
	assert_true(shared->bucket.credit >= (int64_t)(shared->time / 2 - shared->time / 50));
	munmap(shared, sizeof(*shared));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_refill_is_none),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_cap),
		cmocka_unit_test(test_debt),
		cmocka_unit_test(test_hysteresis),
		cmocka_unit_test(test_wait),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_busy_after_steps),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_measured),
		cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_reach),
		cmocka_unit_test(test_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
