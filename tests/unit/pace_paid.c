/* Threads of two contexts settle the first launches of their kernels, which ran at the same time:
 * that time is charged once. */
#include <pthread.h>
#include <sched.h>

#include "costs.h"
#include "sample.h"
#include "unit.h"

#define TIMES   3000
#define TOOK_NS (10 * NS_PER_MS)

static struct meter meter;
static struct vgpu_region_bucket bucket;
static unsigned arrived;
static int64_t charged[2]; /* by each thread, at the last time */

/* Waits until both threads have called it so often: at first without a system call, so that they go
 * on together. */
static void meet(unsigned times)
{
	__atomic_fetch_add(&arrived, 1, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; __atomic_load_n(&arrived, __ATOMIC_SEQ_CST) < 2 * times; i++)
		if (i > 10000)
			sched_yield();
}

static void *settle(void *stream)
{
	const char *at = stream;
	unsigned which = *at != 0;

	for (unsigned i = 0; i < TIMES; i++) {
		struct cost cost = {.samples = 0};
		const struct span span = {.meter = &meter,
					  .cost = &cost,
					  .stream = stream,
					  .unknown = true,
					  .at_once = true,
					  .begun_ns = NS_PER_S * (i + 1)};

		meet(2 * i + 1);
		charged[which] = sample_settle(&span, TOOK_NS, false);
		meet(2 * i + 2);
		if (which)
			continue;
		if (charged[0] + charged[1] > (int64_t)TOOK_NS || charged[0] + charged[1] == 0)
			fail_msg("of 10 ms, %ld and %ld ns are charged", (long)charged[0],
				 (long)charged[1]);
	}
	return NULL;
}

UNIT_TEST_ALONE(test_two_contexts)
{
	static char streams[] = {0, 1};
	pthread_t other;

	meter.bucket = &bucket;
	assert_int_equal(pthread_create(&other, NULL, settle, &streams[1]), 0);
	settle(&streams[0]);
	assert_int_equal(pthread_join(other, NULL), 0);
}
