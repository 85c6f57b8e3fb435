/* The backlog: when a device has nothing to do, and that no measurement corrects a charge twice. */
#include <pthread.h>

#include "backlog.h"
#include "clock.h"
#include "region_fixture.h"

#define START (1700000000 * NS_PER_S)
#define MS    ((int64_t)NS_PER_MS)

static struct backlog backlog;

static void begin(void)
{
	memset(&backlog, 0, sizeof(backlog));
}

UNIT_TEST_ALONE(test_idle)
{
	uint64_t before;

	begin();
	assert_true(backlog_is_idle(&backlog, START));
	backlog_charge(&backlog, 2 * NS_PER_MS, 2 * NS_PER_MS, START);
	backlog_charge(&backlog, 3 * NS_PER_MS, 3 * NS_PER_MS, START);
	assert_false(backlog_is_idle(&backlog, START + 4 * NS_PER_MS));
	assert_true(backlog_is_idle(&backlog, START + 6 * NS_PER_MS));
	before = backlog_idle_ns(&backlog, START + 5 * NS_PER_MS);
	assert_int_equal(backlog_idle_ns(&backlog, START + 9 * NS_PER_MS) - before,
			 4 * MS);                                                  /* still */
	backlog_charge(&backlog, 2 * NS_PER_MS, NS_PER_MS, START + 9 * NS_PER_MS); /* one is sure */
	assert_int_equal(backlog_idle_ns(&backlog, START + 9 * NS_PER_MS) - before, 4 * MS);
	assert_int_equal(backlog_ahead_ns(&backlog, START + 9 * NS_PER_MS), MS);
	assert_int_equal(backlog_ahead_ns(&backlog, START + 11 * NS_PER_MS), 0);
	assert_int_equal(backlog.charged, 7 * MS);
	backlog_set_busy(&backlog, START + 12 * NS_PER_MS);
	assert_true(backlog_is_idle(&backlog, START + 12 * NS_PER_MS + 1));
	assert_int_equal(backlog_idle_ns(&backlog, START + 12 * NS_PER_MS) - before, 4 * MS);
	backlog_set_busy(&backlog, START); /* never back */
	assert_false(backlog_is_idle(&backlog, START + 11 * NS_PER_MS));
	backlog_set_idle(&backlog, START + 10 * NS_PER_MS);
	assert_true(backlog_is_idle(&backlog, START + 11 * NS_PER_MS));
}

/* What is sure says when the device may be idle, what was charged when nothing should be left. */
UNIT_TEST_ALONE(test_due)
{
	struct backlog_many many;

	begin();
	for (unsigned i = 0; i < 10; i++)
		backlog_charge(&backlog, 3 * NS_PER_MS, 2 * NS_PER_MS, START);
	assert_true(backlog_is_idle(&backlog, START + 21 * NS_PER_MS));
	assert_int_equal(backlog_due_ns(&backlog), START + 30 * NS_PER_MS);
	backlog_correct(&backlog, -4 * MS);
	assert_int_equal(backlog_due_ns(&backlog), START + 26 * NS_PER_MS);
	backlog_set_busy(&backlog, START + 25 * NS_PER_MS);
	assert_int_equal(backlog_due_ns(&backlog), START + 26 * NS_PER_MS);
	backlog_set_busy(&backlog, START + 27 * NS_PER_MS);
	assert_int_equal(backlog_due_ns(&backlog), START + 27 * NS_PER_MS);
	backlog_charge(&backlog, 3 * NS_PER_MS, 2 * NS_PER_MS, START + 26 * NS_PER_MS);
	backlog_extend_to_due(&backlog, START + 29 * NS_PER_MS + NS_PER_MS / 2);
	assert_int_equal(backlog_ahead_ns(&backlog, START), 29 * MS + MS / 2);
	backlog_extend_to_due(&backlog, START + 90 * NS_PER_MS);
	assert_int_equal(backlog_ahead_ns(&backlog, START), 30 * MS);
	backlog_set_idle(&backlog, START + 28 * NS_PER_MS);
	assert_int_equal(backlog_due_ns(&backlog), START + 28 * NS_PER_MS);

	backlog_extend_after(&backlog, backlog.sure - 5 * MS, START + 26 * NS_PER_MS);
	assert_int_equal(backlog_ahead_ns(&backlog, START), 31 * MS);
	backlog_extend_after(&backlog, backlog.sure - 5 * MS,
			     START + 20 * NS_PER_MS); /* that is no news */
	assert_int_equal(backlog_ahead_ns(&backlog, START), 31 * MS);
	assert_int_equal(backlog_due_ns(&backlog), START + 28 * NS_PER_MS);
	backlog_set_idle(&backlog, START + 28 * NS_PER_MS);
	assert_int_equal(backlog.sure, 22 * MS);

	many = backlog_many_begin(
		&backlog); /* the device is busy all the time, and idle in between */
	backlog_many_add(&many, 3 * NS_PER_MS, 2 * NS_PER_MS, START + 28 * NS_PER_MS);
	backlog_many_add(&many, 3 * NS_PER_MS, 2 * NS_PER_MS, START + 28 * NS_PER_MS);
	backlog_charge_many(&backlog, &many, START + 28 * NS_PER_MS);
	assert_int_equal(backlog_due_ns(&backlog), START + 34 * NS_PER_MS);
	many = backlog_many_begin(&backlog);
	backlog_many_add(&many, 3 * NS_PER_MS, 2 * NS_PER_MS, START + 90 * NS_PER_MS);
	backlog_charge_many(&backlog, &many, START + 90 * NS_PER_MS);
	assert_int_equal(backlog_due_ns(&backlog), START + 92 * NS_PER_MS);
}

/* What a thread tells at the end is as if it had told it at once: whether the device was idle, for
 * some of it or not at all. */
UNIT_TEST_ALONE(test_many)
{
	static const uint64_t pauses[] = {0, 1000, 7000};

	for (size_t i = 0; i < 3; i++) {
		struct backlog one_by_one = {0};
		struct backlog_many many;
		uint64_t now_ns = START;

		begin();
		backlog_charge(&backlog, 5000, 5000, START);
		backlog_charge(&one_by_one, 5000, 5000, START);
		many = backlog_many_begin(&backlog);
		for (unsigned n = 0; n < 10; n++) {
			now_ns += 1000 + pauses[i];
			backlog_many_add(&many, 2000 + n, 2000 + n, now_ns);
			backlog_charge(&one_by_one, 2000 + n, 2000 + n, now_ns);
		}
		backlog_charge_many(&backlog, &many, now_ns);
		assert_memory_equal(&backlog, &one_by_one, sizeof(backlog));
	}
}

/* Others' work came in between: then it is over by the end, at the latest. */
UNIT_TEST_ALONE(test_many_beside_others)
{
	struct backlog_many many;

	begin();
	backlog_charge(&backlog, 5000, 5000, START);
	many = backlog_many_begin(&backlog);
	backlog_many_add(&many, 3000, 3000, START + 9000);
	backlog_charge(&backlog, 1000, 1000, START + 7000);
	backlog_charge_many(&backlog, &many, START + 12000);
	assert_int_equal(backlog.charged, 9000);
	assert_int_equal(backlog.busy_until, START + 12000);
	assert_int_equal(backlog.idle, 3000);
}

/* -- measuring -------------------------------------------------------------------------------- */

static void measure(int64_t from, int64_t to, int64_t busy_ns)
{
	backlog_correct(&backlog, backlog_compare(&backlog, from, to, busy_ns));
}

UNIT_TEST_ALONE(test_measured)
{
	begin();
	backlog_charge(&backlog, 100 * NS_PER_MS, 100 * NS_PER_MS, START);
	measure(0, 10 * MS, 20 * MS); /* twice what was charged */
	assert_int_equal(backlog.corrected, 10 * MS);
	measure(10 * MS, 20 * MS, 5 * MS); /* half of it */
	assert_int_equal(backlog.corrected, 5 * MS);
	measure(20 * MS, 30 * MS, 10 * MS);
	assert_int_equal(backlog.corrected, 5 * MS);
	measure(30 * MS, 40 * MS, -1); /* it was right; */
	measure(30 * MS, 40 * MS, 99 * MS);
	assert_int_equal(backlog.corrected, 5 * MS); /* that is settled */
	assert_true(backlog_is_idle(&backlog, START + 105 * NS_PER_MS + 1));
	assert_false(backlog_is_idle(&backlog, START + 105 * NS_PER_MS));
}

UNIT_TEST_ALONE(test_overlap)
{
	begin();
	backlog_charge(&backlog, 100 * NS_PER_MS, 100 * NS_PER_MS, START);
	measure(0, 10 * MS, 20 * MS);
	measure(5 * MS, 15 * MS, 20 * MS); /* half of it anew */
	assert_int_equal(backlog.corrected, 15 * MS);
	measure(2 * MS, 12 * MS, 20 * MS); /* nothing */
	measure(0, 15 * MS, 30 * MS);
	assert_int_equal(backlog.corrected, 15 * MS);
	measure(20 * MS, 25 * MS, 10 * MS); /* not for what came before it */
	assert_int_equal(backlog.corrected, 20 * MS);
	measure(15 * MS, 20 * MS, 10 * MS); /* and who comes late is not heard */
	measure(25 * MS, 25 * MS, 5 * MS);
	assert_int_equal(backlog.corrected, 20 * MS);
	assert_int_equal(backlog.measured, 25 * MS);
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
		int64_t from = __atomic_load_n(&backlog.charged, __ATOMIC_RELAXED), to;

		backlog_charge(&backlog, UNIT, UNIT, START);
		to = __atomic_load_n(&backlog.charged, __ATOMIC_RELAXED);
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
	assert_int_equal(backlog.charged, charged);
	assert_int_equal(backlog.measured, charged);
	assert_in_range(backlog.corrected, charged / 2, charged);
}
