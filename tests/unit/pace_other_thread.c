/* A thread is charged for its own launches, whether another thread waits or launches meanwhile. */
#include <pthread.h>

#include "pace_fake.h"

#define RECORD_NS 700
#define COPY_KIB  1024
#define COPY_NS   ((uint64_t)COPY_KIB * 23)

static void *wait_for_stream(void *context)
{
	pace_will_wait(context, true);
	return NULL;
}

/* That another thread waits changes nothing: what went with this one's lease is not counted yet. */
UNIT_TEST(test_others_wait)
{
	static const struct kernel kernel = {.function = 1, .ns = 10000};
	struct sums then;
	pthread_t other;

	joined(50);
	share_of(&kernel, 1, NS_PER_S / 4);
	then = sums_now();
	for (unsigned n = 0; n < 20000; n++) {
		assert_int_equal(launch(&kernel), 0);
		if (n % 20)
			continue;
		assert_int_equal(pthread_create(&other, NULL, wait_for_stream, &context_a), 0);
		pthread_join(other, NULL);
	}
	assert_share("others wait, charged", 100 * charged_since(&then), 100, 2, 2);
}

static void *launch_long(void *unused)
{
	static const struct kernel kernel = {.function = 1, .ns = 3800000};

	CHECK(launch(&kernel) == 0);
	return unused;
}

static void copy(void)
{
	struct fake_stream *stream = &fake.streams[0][0];
	const struct pace_work work = {.context = &context_a, .stream = stream};

	pace_will_copy(&work, (uint64_t)COPY_KIB << 10);
	pass(CALL_NS);
	stream->done_ns = (stream->done_ns > time_ns ? stream->done_ns : time_ns) + COPY_NS;
}

/* A window contains the launch of another thread that comes after this thread's copy. */
UNIT_TEST(test_copy_and_other)
{
	static const struct kernel kernel = {.function = 1, .ns = 20000};
	struct run run;
	pthread_t other;

	joined(30);
	fake.record_ns = RECORD_NS;
	run_begin(&run, 3, 2);
	while (goes_on(&run)) {
		for (unsigned i = 0; i < 20; i++)
			assert_int_equal(launch(&kernel), 0);
		copy();
		assert_int_equal(pthread_create(&other, NULL, launch_long, NULL), 0);
		pthread_join(other, NULL);
	}
	assert_share("copy and other", share_since(&run.then), 30, 1.5, 1.5);
}
