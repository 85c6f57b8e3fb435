/* The tally: when a device has nothing to do, and that no measurement corrects a charge twice. */
#include <pthread.h>

#include "clock.h"
#include "region_fixture.h"
#include "tally.h"

#define START (1700000000 * NS_PER_S)
#define MS    ((int64_t)NS_PER_MS)

static struct tally tally;

static void begin(void)
{
	memset(&tally, 0, sizeof(tally));
}

UNIT_TEST_ALONE(test_idle)
{
	uint64_t before;

	begin();
	assert_true(tally_is_idle(&tally, START));
	tally_charge(&tally, 2 * NS_PER_MS, 2 * NS_PER_MS, START);
	tally_charge(&tally, 3 * NS_PER_MS, 3 * NS_PER_MS, START);
	assert_false(tally_is_idle(&tally, START + 4 * NS_PER_MS));
	assert_true(tally_is_idle(&tally, START + 6 * NS_PER_MS));
	before = tally_idle_ns(&tally, START + 5 * NS_PER_MS);
	assert_int_equal(tally_idle_ns(&tally, START + 9 * NS_PER_MS) - before, 4 * MS); /* still */
	tally_charge(&tally, 2 * NS_PER_MS, NS_PER_MS, START + 9 * NS_PER_MS); /* one is sure */
	assert_int_equal(tally_idle_ns(&tally, START + 9 * NS_PER_MS) - before, 4 * MS);
	assert_int_equal(tally_ahead_ns(&tally, START + 9 * NS_PER_MS), MS);
	assert_int_equal(tally_ahead_ns(&tally, START + 11 * NS_PER_MS), 0);
	assert_int_equal(tally.charged, 7 * MS);
	tally_is_busy_after_all(&tally, START + 12 * NS_PER_MS);
	assert_true(tally_is_idle(&tally, START + 12 * NS_PER_MS + 1));
	assert_int_equal(tally_idle_ns(&tally, START + 12 * NS_PER_MS) - before, 4 * MS);
	tally_is_busy_after_all(&tally, START); /* never back */
	assert_false(tally_is_idle(&tally, START + 11 * NS_PER_MS));
	tally_is_idle_after_all(&tally, START + 10 * NS_PER_MS);
	assert_true(tally_is_idle(&tally, START + 11 * NS_PER_MS));
}

/* What is sure says when the device may be idle, what was charged when nothing should be left. */
UNIT_TEST_ALONE(test_due)
{
	struct tally_many many;

	begin();
	for (unsigned i = 0; i < 10; i++)
		tally_charge(&tally, 3 * NS_PER_MS, 2 * NS_PER_MS, START);
	assert_true(tally_is_idle(&tally, START + 21 * NS_PER_MS));
	assert_int_equal(tally_due_ns(&tally), START + 30 * NS_PER_MS);
	tally_correct(&tally, -4 * MS);
	assert_int_equal(tally_due_ns(&tally), START + 26 * NS_PER_MS);
	tally_is_busy_after_all(&tally, START + 25 * NS_PER_MS);
	assert_int_equal(tally_due_ns(&tally), START + 26 * NS_PER_MS);
	tally_is_busy_after_all(&tally, START + 27 * NS_PER_MS);
	assert_int_equal(tally_due_ns(&tally), START + 27 * NS_PER_MS);
	tally_charge(&tally, 3 * NS_PER_MS, 2 * NS_PER_MS, START + 26 * NS_PER_MS);
	tally_is_busy_while_due(&tally, START + 29 * NS_PER_MS + NS_PER_MS / 2);
	assert_int_equal(tally_ahead_ns(&tally, START), 29 * MS + MS / 2);
	tally_is_busy_while_due(&tally, START + 90 * NS_PER_MS);
	assert_int_equal(tally_ahead_ns(&tally, START), 30 * MS);
	tally_is_idle_after_all(&tally, START + 28 * NS_PER_MS);
	assert_int_equal(tally_due_ns(&tally), START + 28 * NS_PER_MS);

	tally_is_behind(&tally, tally.sure - 5 * MS, START + 26 * NS_PER_MS);
	assert_int_equal(tally_ahead_ns(&tally, START), 31 * MS);
	tally_is_behind(&tally, tally.sure - 5 * MS, START + 20 * NS_PER_MS); /* that is no news */
	assert_int_equal(tally_ahead_ns(&tally, START), 31 * MS);
	assert_int_equal(tally_due_ns(&tally), START + 28 * NS_PER_MS);
	tally_is_idle_after_all(&tally, START + 28 * NS_PER_MS);
	assert_int_equal(tally.sure, 22 * MS);

	many = tally_many_begin(&tally); /* the device is busy all the time, and idle in between */
	tally_many_add(&many, 3 * NS_PER_MS, 2 * NS_PER_MS, START + 28 * NS_PER_MS);
	tally_many_add(&many, 3 * NS_PER_MS, 2 * NS_PER_MS, START + 28 * NS_PER_MS);
	tally_charge_many(&tally, &many, START + 28 * NS_PER_MS);
	assert_int_equal(tally_due_ns(&tally), START + 34 * NS_PER_MS);
	many = tally_many_begin(&tally);
	tally_many_add(&many, 3 * NS_PER_MS, 2 * NS_PER_MS, START + 90 * NS_PER_MS);
	tally_charge_many(&tally, &many, START + 90 * NS_PER_MS);
	assert_int_equal(tally_due_ns(&tally), START + 92 * NS_PER_MS);
}

/* What a thread tells at the end is as if it had told it at once: whether the device was idle, for
 * some of it or not at all. */
UNIT_TEST_ALONE(test_many)
{
	static const uint64_t pauses[] = {0, 1000, 7000};

	for (size_t i = 0; i < 3; i++) {
		struct tally one_by_one = {0};
		struct tally_many many;
		uint64_t now_ns = START;

		begin();
		tally_charge(&tally, 5000, 5000, START);
		tally_charge(&one_by_one, 5000, 5000, START);
		many = tally_many_begin(&tally);
		for (unsigned n = 0; n < 10; n++) {
			now_ns += 1000 + pauses[i];
			tally_many_add(&many, 2000 + n, 2000 + n, now_ns);
			tally_charge(&one_by_one, 2000 + n, 2000 + n, now_ns);
		}
		tally_charge_many(&tally, &many, now_ns);
		assert_memory_equal(&tally, &one_by_one, sizeof(tally));
	}
}

/* Others' work came in between: then it is over by the end, at the latest. */
UNIT_TEST_ALONE(test_many_beside_others)
{
	struct tally_many many;

	begin();
	tally_charge(&tally, 5000, 5000, START);
	many = tally_many_begin(&tally);
	tally_many_add(&many, 3000, 3000, START + 9000);
	tally_charge(&tally, 1000, 1000, START + 7000);
	tally_charge_many(&tally, &many, START + 12000);
	assert_int_equal(tally.charged, 9000);
	assert_int_equal(tally.busy_until, START + 12000);
	assert_int_equal(tally.idle, 3000);
}

/* -- measuring -------------------------------------------------------------------------------- */

static void measure(int64_t from, int64_t to, int64_t busy_ns)
{
	tally_correct(&tally, tally_compare(&tally, from, to, busy_ns));
}

UNIT_TEST_ALONE(test_measured)
{
	begin();
	tally_charge(&tally, 100 * NS_PER_MS, 100 * NS_PER_MS, START);
	measure(0, 10 * MS, 20 * MS); /* twice what was charged */
	assert_int_equal(tally.corrected, 10 * MS);
	measure(10 * MS, 20 * MS, 5 * MS); /* half of it */
	assert_int_equal(tally.corrected, 5 * MS);
	measure(20 * MS, 30 * MS, 10 * MS);
	assert_int_equal(tally.corrected, 5 * MS);
	measure(30 * MS, 40 * MS, -1); /* it was right; */
	measure(30 * MS, 40 * MS, 99 * MS);
	assert_int_equal(tally.corrected, 5 * MS); /* that is settled */
	assert_true(tally_is_idle(&tally, START + 105 * NS_PER_MS + 1));
	assert_false(tally_is_idle(&tally, START + 105 * NS_PER_MS));
}

UNIT_TEST_ALONE(test_overlap)
{
	begin();
	tally_charge(&tally, 100 * NS_PER_MS, 100 * NS_PER_MS, START);
	measure(0, 10 * MS, 20 * MS);
	measure(5 * MS, 15 * MS, 20 * MS); /* half of it anew */
	assert_int_equal(tally.corrected, 15 * MS);
	measure(2 * MS, 12 * MS, 20 * MS); /* nothing */
	measure(0, 15 * MS, 30 * MS);
	assert_int_equal(tally.corrected, 15 * MS);
	measure(20 * MS, 25 * MS, 10 * MS); /* not for what came before it */
	assert_int_equal(tally.corrected, 20 * MS);
	measure(15 * MS, 20 * MS, 10 * MS); /* and who comes late is not heard */
	measure(25 * MS, 25 * MS, 5 * MS);
	assert_int_equal(tally.corrected, 20 * MS);
	assert_int_equal(tally.measured, 25 * MS);
}

/* -- all at once ------------------------------------------------------------------------------ */

#define THREADS 4 /* as many measurements may overlap as one speaks for the range of */
#define ROUNDS  200000
#define UNIT    4096

static uint64_t ready;

static void *work(void *arg)
{
	__atomic_fetch_add(&ready, 1, __ATOMIC_SEQ_CST);
	while (FLAG_READ(ready) < THREADS)
		;
	for (unsigned i = 0; i < ROUNDS; i++) {
		int64_t from = __atomic_load_n(&tally.charged, __ATOMIC_RELAXED), to;

		tally_charge(&tally, UNIT, UNIT, START);
		to = __atomic_load_n(&tally.charged, __ATOMIC_RELAXED);
		measure(from, to, 2 * (to - from));
	}
	return arg;
}

/* Most of what was charged is corrected, and none of it twice. */
UNIT_TEST_ALONE(test_at_once)
{
	int64_t charged = (int64_t)THREADS * ROUNDS * UNIT;
	pthread_t threads[THREADS];

	begin();
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(tally.charged, charged);
	assert_int_equal(tally.measured, charged);
	assert_in_range(tally.corrected, charged / 2, charged);
}
