/* A sandbox that refuses futexes. */
#include <errno.h>
#include <sys/syscall.h>

#include "clock.h"
#include "sys.h"
#include "unit.h"

static unsigned sleeps;

static long refuse(long number)
{
	sleeps += number == SYS_nanosleep;
	return number == SYS_futex ? -EPERM : 0;
}

/* The caller sleeps a little, and is told. */
UNIT_TEST_ALONE(test_refused)
{
	uint32_t word = 1;

	sys_fault = refuse;
	assert_int_equal(sys_futex_wait(&word, 1, 10 * NS_PER_MS), -EPERM);
	assert_int_equal(sys_futex_wait(&word, 1, UINT64_MAX), -EPERM);
	sys_fault = NULL;
	assert_int_equal(sleeps, 2);
}

/* A word that has changed costs no sleep. */
UNIT_TEST_ALONE(test_changed)
{
	uint32_t word = 1;

	sleeps = 0;
	assert_int_equal(sys_futex_wait(&word, 2, 10 * NS_PER_MS), -EAGAIN);
	assert_int_equal(sleeps, 0);
}
