/* The order of locks: a wrong one aborts, although nobody waits. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lock.h"
#include "unit.h"

static struct lock a, b, c;

static void nest(struct lock *outer, struct lock *inner)
{
	lock_acquire(outer);
	lock_acquire(inner);
	lock_release(inner);
	lock_release(outer);
}

/* Plays it in a process of its own; the signal by which that ended, or 0. */
static int signal_of(void (*play)(void))
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		close(STDERR_FILENO);
		play();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void in_one_order(void)
{
	nest(&a, &b);
	nest(&b, &c);
	nest(&a, &c);
	nest(&a, &b);
}

static void turned_round(void)
{
	nest(&a, &b);
	nest(&b, &a);
}

static void in_a_ring(void)
{
	nest(&a, &b);
	nest(&b, &c);
	nest(&c, &a);
}

/* b, c is said before a, b: what follows from both is known at once. */
static void in_a_ring_from_behind(void)
{
	nest(&b, &c);
	nest(&a, &b);
	nest(&c, &a);
}

static void twice(void)
{
	lock_acquire(&a);
	lock_acquire(&a);
}

static void tried(void)
{
	nest(&a, &b);
	lock_acquire(&b);
	if (lock_try(&a))
		lock_release(&a);
	lock_release(&b);
}

static void under_a_tried_one(void)
{
	nest(&b, &a);
	if (lock_try(&a))
		lock_acquire(&b);
}

static void hand_over_hand(void)
{
	lock_acquire(&a);
	lock_acquire(&b);
	lock_release(&a);
	lock_acquire(&c);
	lock_release(&b);
	lock_release(&c);
	lock_acquire(&a);
	lock_release(&a);
}

static void with_a_new_lock(void)
{
	nest(&a, &b);
	lock_init(&a);
	nest(&b, &a);
}

UNIT_TEST(test_order)
{
	assert_int_equal(signal_of(in_one_order), 0);
	assert_int_equal(signal_of(tried), 0);
	assert_int_equal(signal_of(hand_over_hand), 0);
	assert_int_equal(signal_of(with_a_new_lock), 0);
}

UNIT_TEST(test_wrong_order)
{
	assert_int_equal(signal_of(turned_round), SIGABRT);
	assert_int_equal(signal_of(in_a_ring), SIGABRT);
	assert_int_equal(signal_of(in_a_ring_from_behind), SIGABRT);
	assert_int_equal(signal_of(twice), SIGABRT);
	assert_int_equal(signal_of(under_a_tried_one), SIGABRT);
}
