/*
 * How long something took, whoever else wanted the CPU meanwhile: the time that the thread waited
 * for one while it could run is known to the kernel (/proc/self/schedstat), and is not
 * counted.
 */
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "clock.h"

struct stopwatch {
	uint64_t start_ns, starved_ns;
};

/* How long a process of one thread ran, and was kept from running, in all its life; 0 where the
 * kernel does not say. */
static inline void stopwatch_read(int fd, uint64_t *ret_ran_ns, uint64_t *ret_starved_ns)
{
	unsigned long long ran, starved;
	char text[96];
	ssize_t len = pread(fd, text, sizeof(text) - 1, 0);
	bool known;

	text[len > 0 ? len : 0] = '\0';
	known = sscanf(text, "%llu %llu", &ran, &starved) == 2;
	*ret_ran_ns = known ? ran : 0;
	*ret_starved_ns = known ? starved : 0;
}

/* Of ourselves: kept from running. */
static inline uint64_t starved_ns(void)
{
	static int fd = -1;
	static pid_t pid;
	uint64_t ran, starved;

	if (pid != getpid()) { /* a fork's child has its own figures */
		pid = getpid();
		fd = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
	}
	stopwatch_read(fd, &ran, &starved);
	return starved;
}

/* Of another, who may be a zombie: kept from running, and how long it ran where that is asked for.
 */
static inline uint64_t delayed_ns(pid_t other, bool and_ran)
{
	uint64_t ran, starved;
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)other);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	stopwatch_read(fd, &ran, &starved);
	if (fd >= 0)
		close(fd);
	return and_ran ? ran + starved : starved;
}

static inline struct stopwatch stopwatch_start(void)
{
	struct stopwatch watch = {clock_now_ns(), starved_ns()};

	return watch;
}

/* The nanoseconds of it since since_ns, and how long it was starved in all of it. */
static inline uint64_t stopwatch_stop(const struct stopwatch *watch, uint64_t since_ns,
				      uint64_t *ret_starved_ns)
{
	uint64_t now_ns = clock_now_ns(), starved = starved_ns() - watch->starved_ns;
	uint64_t from_ns = watch->start_ns > since_ns ? watch->start_ns : since_ns;
	uint64_t took_ns = now_ns > from_ns ? now_ns - from_ns : 0;

	*ret_starved_ns = starved;
	return took_ns > starved ? took_ns - starved : 0;
}
