/* Threads most of whose launches go without asking: what their program gets, and what it is
 * charged. */
#include <pthread.h>
#include <semaphore.h>

#include "pace_lease_fixture.h"

static void *launch_some(void *count)
{
	for (uintptr_t i = 0; i < (uintptr_t)count; i++)
		launch(&short_one);
	return NULL;
}

/* Threads that end: what they have not returned is hardly anything. */
UNIT_TEST(test_threads_end)
{
	static const uintptr_t counts[] = {15, 40, 200, 1000};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		struct sums then;
		uint64_t end_ns;

		joined_and_known(50);
		then = sums_now();
		for (end_ns = time_ns + NS_PER_S; time_ns < end_ns;) {
			pthread_t thread;

			assert_int_equal(
				pthread_create(&thread, NULL, launch_some, (void *)counts[i]), 0);
			assert_int_equal(pthread_join(thread, NULL), 0);
			synchronise(0);
		}
		harness_note("threads of %lu launches: %.2f of 50, charged %.3f",
			     (unsigned long)counts[i], share_since(&then), charged_since(&then));
		assert_share("threads that end", share_since(&then), 50, 3, 3);
		left();
	}
}

static void *launch_some_relaxed(void *count)
{
	for (uintptr_t i = 0; i < (uintptr_t)count; i++) {
		launch(&short_one);
		pass(SHORT_NS * 100 / 80 - CALL_NS);
	}
	return NULL;
}

/* The same where a program wants more than its quota, and its pauses look as if it wanted less. */
UNIT_TEST(test_threads_end_relaxed)
{
	static const uintptr_t counts[] = {280, 400, 600, 1000, 3000};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		struct sums then;
		uint64_t end_ns;

		joined_and_known(70);
		pass(10 * MS); /* the bucket is full */
		then = sums_now();
		for (end_ns = time_ns + NS_PER_S; time_ns < end_ns;) {
			pthread_t thread;

			assert_int_equal(pthread_create(&thread, NULL, launch_some_relaxed,
							(void *)counts[i]),
					 0);
			assert_int_equal(pthread_join(thread, NULL), 0);
		}
		harness_note("threads of %lu launches in relaxed mode: %.2f of 70, charged %.3f",
			     (unsigned long)counts[i], share_since(&then), charged_since(&then));
		assert_share("threads that end in relaxed mode", share_since(&then), 70, 4, 4);
		left();
	}
}

/* Which of two threads goes next, so that they go one after the other. */
static sem_t turns[2];
static uint64_t turns_end_ns;

#define EACH_TURN_NS (SHORT_NS * 2 * 100 / 65)

static void *launch_in_turns(void *arg)
{
	unsigned self = (unsigned)(uintptr_t)arg;
	static uint64_t due_ns;
	bool goes_on = true;

	while (goes_on) {
		sem_wait(&turns[self]);
		goes_on = time_ns < turns_end_ns;
		if (goes_on)
			launch(&short_one);
		if (goes_on && self) {
			due_ns = due_ns + 10 * EACH_TURN_NS < time_ns ? time_ns
								      : due_ns + EACH_TURN_NS;
			if (due_ns > time_ns)
				pass(due_ns - time_ns);
		}
		sem_post(&turns[!self]);
	}
	return NULL;
}

static void in_turns_for(uint64_t ns)
{
	pthread_t threads[2];

	turns_end_ns = time_ns + ns;
	sem_init(&turns[0], 0, 1);
	sem_init(&turns[1], 0, 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, launch_in_turns, (void *)(uintptr_t)i),
			0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Neither knows from its own launches when the device is idle. */
UNIT_TEST(test_threads_in_turns)
{
	struct sums then;

	joined_and_known(75);
	in_turns_for(NS_PER_S / 10);
	then = sums_now();
	in_turns_for(NS_PER_S / 5);
	harness_note("threads in turns: %.2f of 65, charged %.3f", share_since(&then),
		     charged_since(&then));
	assert_share("threads in turns", share_since(&then), 65, 1, 1);
	assert_share("charged", 100 * charged_since(&then), 100, 10, 5);
}
