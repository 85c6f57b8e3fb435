/* The bucket: what time brings, and what work takes. */
#include "bucket.h"
#include "region_fixture.h"

#define START (1700000000 * NS_PER_S)
#define HOUR  (3600 * NS_PER_S)
#define MS    ((int64_t)NS_PER_MS)

static struct vgpu_region_device device;
static struct vgpu_region_bucket *const bucket = &device.bucket;

/* What a look at the clock finds. */
static uint64_t steady_ns = START;
uint64_t __wrap_clock_steady_ns(void);
uint64_t __wrap_clock_steady_ns(void)
{
	return steady_ns;
}

/* Empty, as of START. */
static void begin(void)
{
	memset(&device, 0, sizeof(device));
	steady_ns = START;
	bucket_refill(bucket, 50, START);
}

UNIT_TEST_ALONE(test_first_refill_is_none)
{
	begin();
	assert_int_equal(bucket_level(bucket), 0);
}

/* At the rate, however often it is asked. */
UNIT_TEST_ALONE(test_rate)
{
	static const unsigned rates[] = {1, 10, 37, 50, 99};
	static const uint64_t steps[] = {1000, 49999, 70001, NS_PER_MS, 3 * NS_PER_MS};

	for (size_t r = 0; r < sizeof(rates) / sizeof(*rates); r++)
		for (size_t s = 0; s < sizeof(steps) / sizeof(*steps); s++) {
			int64_t due = (int64_t)(NS_PER_S * rates[r] / 100);

			begin();
			bucket_charge(bucket, 2 * NS_PER_S, START); /* far from full */
			for (uint64_t t = 0; t <= NS_PER_S; t += steps[s])
				bucket_refill(bucket, rates[r], START + t);
			assert_true(bucket_level(bucket) + 2000 * MS <= due);
			assert_true(bucket_level(bucket) + 2000 * MS >=
				    due - due / 50 - (int64_t)(2 * steps[s]));
		}
}

UNIT_TEST_ALONE(test_cap)
{
	begin();
	for (uint64_t s = 1; s < 5; s++) {
		bucket_refill(bucket, 50, START + s * NS_PER_S);
		assert_int_equal(bucket_level(bucket), BUCKET_FULL_NS);
	}
	bucket_correct(bucket, -5 * MS); /* more than full: that stays, and nothing comes to it */
	bucket_refill(bucket, 50, START + 10 * NS_PER_S);
	assert_int_equal(bucket_level(bucket), BUCKET_FULL_NS + 5 * MS);
}

/* What the device's burst_ns says; a second at most. */
UNIT_TEST_ALONE(test_burst)
{
	static const int64_t bursts[] = {1, 2 * MS, 300 * MS, 1000 * MS};

	for (size_t i = 0; i < sizeof(bursts) / sizeof(*bursts); i++) {
		begin();
		device.burst_ns = (uint64_t)bursts[i];
		bucket_refill(bucket, 50, START + 10 * NS_PER_S);
		assert_int_equal(bucket_level(bucket), bursts[i]);
		device.burst_ns = 0; /* the default: what is more stays */
		bucket_refill(bucket, 50, START + 20 * NS_PER_S);
		assert_int_equal(bucket_level(bucket),
				 bursts[i] > BUCKET_FULL_NS ? bursts[i] : BUCKET_FULL_NS);
	}
	begin();
	device.burst_ns = UINT64_MAX;
	bucket_refill(bucket, 50, START + 10 * NS_PER_S);
	assert_int_equal(bucket_level(bucket), 1000 * MS);
}

/* With no credit but the smallest: it is shut and opens as ever. */
UNIT_TEST_ALONE(test_no_burst)
{
	uint64_t now_ns = START, open_ns = 0;

	begin();
	device.burst_ns = 1;
	for (unsigned i = 0; i < 10000; i++, now_ns += NS_PER_MS / 10) {
		bucket_refill(bucket, 50, now_ns);
		if (bucket_is_open(bucket)) {
			bucket_charge(bucket, NS_PER_MS / 10, now_ns);
			open_ns += NS_PER_MS / 10;
		}
		assert_true(bucket_level(bucket) <= 1);
	}
	assert_in_range(open_ns, 495 * NS_PER_MS, 505 * NS_PER_MS);
}

/* Never forgiven, and paid at the rate. */
UNIT_TEST_ALONE(test_debt)
{
	uint64_t now = START;

	begin();
	bucket_charge(bucket, 3 * NS_PER_S, START);
	for (unsigned i = 0; i < 5990; i++)
		bucket_refill(bucket, 50, now += NS_PER_MS);
	assert_false(bucket_is_open(bucket));
	for (unsigned i = 0; i < 20; i++)
		bucket_refill(bucket, 50, now += NS_PER_MS);
	assert_true(bucket_is_open(bucket));
	assert_in_range(bucket_level(bucket) + 100 * MS, 95 * MS, 105 * MS);
}

UNIT_TEST_ALONE(test_hysteresis)
{
	begin();
	assert_true(bucket_is_open(bucket));
	bucket_charge(bucket, (uint64_t)-BUCKET_SHUT_NS - 1, START);
	assert_true(bucket_is_open(bucket));
	bucket_charge(bucket, 1, START);
	assert_false(bucket_is_open(bucket));
	bucket_correct(bucket, BUCKET_SHUT_NS + 1);
	assert_int_equal(bucket_level(bucket), -1);
	assert_false(bucket_is_open(bucket));
	bucket_correct(bucket, -1);
	assert_true(bucket_is_open(bucket));
	bucket_correct(bucket, 1);
	assert_true(bucket_is_open(bucket));
}

/* After the time that it says, not much before. */
UNIT_TEST_ALONE(test_wait)
{
	static const unsigned rates[] = {1, 50, 99};

	for (size_t r = 0; r < sizeof(rates) / sizeof(*rates); r++) {
		uint64_t wait;

		begin();
		assert_int_equal(bucket_wait_ns(bucket, rates[r]), 0);
		bucket_charge(bucket, 30 * NS_PER_MS, START);
		assert_false(bucket_is_open(bucket));
		wait = bucket_wait_ns(bucket, rates[r]);
		bucket_refill(bucket, rates[r], START + wait - wait / 50);
		assert_false(bucket_is_open(bucket));
		bucket_refill(bucket, rates[r], START + wait + 2 * NS_PER_MS);
		assert_true(bucket_is_open(bucket));
	}
}

/* -- the clock is set ------------------------------------------------------------------------- */

UNIT_TEST_ALONE(test_steps)
{
	begin();
	bucket_charge(bucket, 3 * NS_PER_MS, START);
	bucket_refill(bucket, 50, START + 5 * HOUR);
	assert_int_equal(bucket_level(bucket), BUCKET_FULL_NS);
	bucket_charge(bucket, 5 * NS_PER_MS, START);
	bucket_refill(bucket, 50, START); /* back: nothing comes, */
	assert_int_equal(bucket_level(bucket), BUCKET_FULL_NS - 5 * MS);
	bucket_refill(bucket, 50, START + 2 * NS_PER_MS); /* and it goes on from there */
	assert_int_equal(bucket_level(bucket), BUCKET_FULL_NS - 4 * MS);
	for (unsigned i = 0; i < 20; i++) {
		bucket_refill(bucket, 99, START + i % 2 * HOUR);
		assert_true(bucket_level(bucket) <= BUCKET_FULL_NS);
	}
}

/* -- all at once ------------------------------------------------------------------------------ */

#define PROCESSES 4
#define ROUNDS    200000
#define STEP_NS   20 /* all of it is less than a step of the clock */
#define UNIT      4096

static struct shared {
	struct vgpu_region_device device;
	uint64_t ready, time;
} * shared;

static void in_process(void *arg)
{
	(void)arg;
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
	while (FLAG_READ(shared->ready) < PROCESSES)
		;
	for (unsigned i = 0; i < ROUNDS; i++) {
		bucket_refill(&shared->device.bucket, 50,
			      START + __atomic_fetch_add(&shared->time, STEP_NS, __ATOMIC_SEQ_CST));
		bucket_charge(&shared->device.bucket, UNIT, START);
		bucket_correct(&shared->device.bucket, -1);
	}
}

/* Nothing is lost, and time that two see comes once. */
UNIT_TEST_ALONE(test_at_once)
{
	pid_t pids[PROCESSES];

	shared = shared_memory(sizeof(*shared));
	for (unsigned i = 0; i < PROCESSES; i++)
		pids[i] = spawn(in_process, NULL);
	for (unsigned i = 0; i < PROCESSES; i++)
		assert_int_equal(reap_status(pids[i]), 0);
	assert_int_equal(shared->device.bucket.charged, (int64_t)PROCESSES * ROUNDS * UNIT);
	assert_int_equal(shared->device.bucket.corrected, -(int64_t)PROCESSES * ROUNDS);
	assert_true(shared->device.bucket.credit <= (int64_t)(shared->time / 2));
	assert_true(shared->device.bucket.credit >=
		    (int64_t)(shared->time / 2 - shared->time / 50));
	munmap(shared, sizeof(*shared));
}

/* -- how it was shut -------------------------------------------------------------------------- */

/* Until it had recovered, whenever somebody looks, and once. */
UNIT_TEST_ALONE(test_throttled)
{
	begin();
	assert_true(bucket_is_open(bucket));
	bucket_charge(bucket, 10 * NS_PER_MS, START);
	for (int i = 0; i < 5; i++)
		assert_false(bucket_is_open(bucket));
	assert_int_equal(device.throttled, 1);
	assert_int_equal(bucket->shut_at, START);
	bucket_refill(bucket, 50, START + 10 * NS_PER_MS);
	assert_false(bucket_is_open(bucket));
	assert_int_equal(device.throttled_ns, 0);
	steady_ns = START + HOUR;
	bucket_refill(bucket, 50, START + HOUR);
	for (int i = 0; i < 5; i++)
		assert_true(bucket_is_open(bucket));
	assert_int_equal(device.throttled, 1);
	assert_int_equal(device.throttled_ns, 20 * NS_PER_MS); /* 10 ms of work, at a half */
	assert_int_equal(bucket->shut_at, 0);
	bucket_charge(bucket, (uint64_t)BUCKET_FULL_NS + 20 * NS_PER_MS, START + HOUR);
	assert_false(bucket_is_open(bucket));
	assert_int_equal(device.throttled, 2);
	assert_int_equal(device.throttled_ns, 20 * NS_PER_MS);
}

/* What was charged turns out to have been less: it opens at that moment. */
UNIT_TEST_ALONE(test_throttled_until_corrected)
{
	begin();
	bucket_charge(bucket, 10 * NS_PER_MS, START);
	assert_false(bucket_is_open(bucket));
	bucket_correct(bucket, -10 * MS);
	steady_ns = START + 3 * NS_PER_MS;
	assert_true(bucket_is_open(bucket));
	assert_int_equal(device.throttled_ns, 3 * NS_PER_MS);
	assert_true(bucket_is_open(bucket));
	assert_int_equal(device.throttled_ns, 3 * NS_PER_MS);
}

/* Neither a clock that was set back nor a process that died between two words adds any time. */
UNIT_TEST_ALONE(test_throttled_odd)
{
	begin();
	bucket_charge(bucket, 10 * NS_PER_MS, START);
	assert_false(bucket_is_open(bucket));
	steady_ns = START - HOUR;
	bucket_correct(bucket, -10 * MS);
	assert_true(bucket_is_open(bucket));
	assert_int_equal(device.throttled_ns, 0);
	bucket_charge(bucket, 10 * NS_PER_MS, START);
	assert_false(bucket_is_open(bucket));
	bucket->shut_at = 0;
	bucket_correct(bucket, -10 * MS);
	assert_true(bucket_is_open(bucket));
	assert_int_equal(device.throttled_ns, 0);
	assert_int_equal(bucket->shut, 0);
}

static void finds_it_shut(void *arg)
{
	(void)arg;
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_SEQ_CST);
	while (FLAG_READ(shared->ready) < PROCESSES)
		;
	for (unsigned i = 0; i < ROUNDS; i++)
		CHECK(!bucket_is_open(&shared->device.bucket));
}

/* Of many that find it shut, one counts. */
UNIT_TEST_ALONE(test_throttled_at_once)
{
	pid_t pids[PROCESSES];

	shared = shared_memory(sizeof(*shared));
	shared->device.bucket.charged = -2 * BUCKET_SHUT_NS;
	for (unsigned i = 0; i < PROCESSES; i++)
		pids[i] = spawn(finds_it_shut, NULL);
	for (unsigned i = 0; i < PROCESSES; i++)
		assert_int_equal(reap_status(pids[i]), 0);
	assert_int_equal(shared->device.throttled, 1);
	munmap(shared, sizeof(*shared));
}
