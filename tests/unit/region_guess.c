/* Guesses: what others have charged for their first contexts is waited for, and not for long. */
#include <pthread.h>

#include "region_fixture.h"
#include "region_internal.h"

#define LIMIT (100 * MIB)

struct two {
	struct region own, other;
};

static void open_two(struct two *two)
{
	struct region_setup setup = setup_from(0, 2, LIMIT);

	*two = (struct two){REGION_CLOSED, REGION_CLOSED};
	assert_int_equal(open_claimed(here.path, &setup, &two->own), 0);
	assert_int_equal(open_claimed(here.path, &setup, &two->other), 0);
}

static void close_two(struct two *two)
{
	assert_int_equal(count_wrong(&two->own), 0);
	region_close(&two->other);
	region_close(&two->own);
}

static void *end_soon(void *arg)
{
	struct two *two = arg;

	usleep(100000);
	region_guess_end(&two->other, 1);
	return NULL;
}

/* Whether the other's guess is waited for until its end. On a machine that stands still between the
 * two it may be too old for that: once more then. */
static bool is_waited_for(struct two *two)
{
	uint64_t began_ns, took_ns;
	pthread_t thread;
	bool waited;

	do {
		began_ns = clock_now_ns();
		region_guess_begin(&two->other, 1);
		assert_int_equal(pthread_create(&thread, NULL, end_soon, two), 0);
		waited = region_wait_guesses(&two->own, 1);
		took_ns = clock_now_ns() - began_ns;
		assert_int_equal(pthread_join(thread, NULL), 0);
	} while (took_ns >= REGION_GUESS_PATIENCE_NS / 2);
	return waited && took_ns >= 90 * NS_PER_MS;
}

UNIT_TEST(test_is_waited_for)
{
	struct two two;

	open_two(&two);
	assert_false(region_wait_guesses(&two.own, 1));
	assert_true(is_waited_for(&two));
	assert_false(region_wait_guesses(&two.own, 1));
	close_two(&two);
}

/* Nor is our own, nor one of another device. */
UNIT_TEST(test_of_others_on_the_device)
{
	struct two two;

	open_two(&two);
	region_guess_begin(&two.own, 0);
	region_guess_begin(&two.own, 1);
	region_guess_begin(&two.other, 1);
	assert_false(region_wait_guesses(&two.own, 0));
	assert_false(region_wait_guesses(&two.own, VGPU_DEVICES_MAX));
	region_guess_begin(&two.other, 0); /* both */
	region_guess_end(&two.other, 0);
	assert_false(region_wait_guesses(&two.own, 0));
	region_guess_end(&two.other, 0); /* twice is no harm */
	region_guess_end(&two.other, 1);
	assert_int_equal(two.other.file->own.slots[two.other.slot].guess & 0xffff, 0);
	close_two(&two);
}

UNIT_TEST(test_not_for_ever)
{
	struct two two;
	uint64_t began_ns;

	open_two(&two);
	began_ns = clock_now_ns();
	region_guess_begin(&two.other, 1);
	region_wait_guesses(&two.own, 1);
	assert_true(clock_now_ns() - began_ns >=
		    REGION_GUESS_PATIENCE_NS - 10 * NS_PER_MS); /* a tick of the coarse clock */
	assert_false(region_wait_guesses(&two.own, 1));
	close_two(&two);
}

/* Of a word that says a time to come, as after a boot, nothing is waited for. */
UNIT_TEST(test_odd_times)
{
	struct two two;
	uint64_t *word;

	open_two(&two);
	word = &two.other.file->own.slots[two.other.slot].guess;
	*word = UINT64_MAX;
	assert_false(region_wait_guesses(&two.own, 1));
	*word = 0xffff; /* and of one that is long ago */
	assert_false(region_wait_guesses(&two.own, 1));
	close_two(&two);
}

/* The dead have none, and who gets the slot next has not theirs. */
UNIT_TEST(test_death)
{
	struct region_setup setup = setup_from(0, 2, LIMIT);
	struct two two;
	int slot;

	open_two(&two);
	slot = two.other.slot;
	region_guess_begin(&two.other, 1);
	region_forget(&two.other);
	assert_false(region_wait_guesses(&two.own, 1));
	assert_int_equal(region_reap(&two.own), 1);
	two.other = (struct region)REGION_CLOSED;
	assert_int_equal(open_claimed(here.path, &setup, &two.other), 0);
	assert_int_equal(two.other.slot, slot);
	assert_false(region_wait_guesses(&two.own, 1));
	close_two(&two);
}
