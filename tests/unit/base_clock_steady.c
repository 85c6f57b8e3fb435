/* The clock that quotas are told by. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "sys.h"
#include "unit.h"

#define LONG_NS (100 * NS_PER_S) /* any machine has got from one line to the next by then */

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static long failing; /* system call */

static long refuse(long number)
{
	return number == failing ? -EACCES : 0;
}

/* As it is found where that system call fails. */
static uint64_t steady_without(long number)
{
	uint64_t ns;

	failing = number;
	sys_fault = refuse;
	clock_forked();
	ns = clock_steady_ns();
	sys_fault = NULL;
	return ns;
}

static uint64_t ns_of(clockid_t id)
{
	struct timespec t;

	assert_int_equal(clock_gettime(id, &t), 0);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Without /proc it is the raw clock, as if there was one namespace; without a version it is the
 * clock that cannot be set either, and that NTP slews. */
UNIT_TEST(test_without)
{
	uint64_t raw = ns_of(CLOCK_MONOTONIC_RAW), slewed = ns_of(CLOCK_MONOTONIC);

	assert_in_range(steady_without(SYS_openat), raw, raw + LONG_NS);
	assert_in_range(steady_without(SYS_uname), slewed, slewed + LONG_NS);
	clock_forked();
}

/* What a child reads that has booted so much earlier, or later. 0: it cannot be made. */
static uint64_t steady_elsewhere(const char *offsets)
{
	int result[2], fd;
	uint64_t ns = 0;
	pid_t pid;

	assert_int_equal(pipe(result), 0);
	pid = fork();
	if (pid == 0) {
		fd = unshare(CLONE_NEWTIME) ? -1 : open("/proc/self/timens_offsets", O_WRONLY);
		if (fd < 0 || write(fd, offsets, strlen(offsets)) < 0)
			_exit(1);
		if (fork() == 0) {
			clock_forked();
			ns = clock_steady_ns();
			_exit(write(result[1], &ns, sizeof(ns)) != (ssize_t)sizeof(ns));
		}
		wait(NULL);
		_exit(0);
	}
	close(result[1]);
	if (read(result[0], &ns, sizeof(ns)) != (ssize_t)sizeof(ns))
		ns = 0;
	close(result[0]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return ns;
}

UNIT_TEST(test_namespaces)
{
	static const char *const offsets[] = {"monotonic 864000 5\n", "monotonic 1 999999999\n",
					      "monotonic -1 1\n", "boottime 1000 0\n"};

	clock_forked();
	for (unsigned i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
		uint64_t here = clock_steady_ns(), there = steady_elsewhere(offsets[i]);

		if (!there)
			skip();
		assert_in_range(there, here, clock_steady_ns());
	}
}
