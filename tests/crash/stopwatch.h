/*
 * How long something took, whoever else wanted the CPU meanwhile: the time that the thread waited
 * for one while it could run is known to the kernel (/proc/thread-self/schedstat), and is not
 * counted.
 */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "clock.h"

struct stopwatch {
	uint64_t start_ns, starved_ns;
};

/* How long this process, of one thread, was kept from running in all its life; 0 where the kernel
 * does not say. */
static inline uint64_t starved_ns(void)
{
	static int fd = -1;
	static pid_t pid;
	unsigned long long ran, starved;
	char text[96];
	ssize_t len;

	if (pid != getpid()) { /* a fork's child has its own figures */
		pid = getpid();
		fd = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
	}
	len = pread(fd, text, sizeof(text) - 1, 0);
	text[len > 0 ? len : 0] = '\0';
	return sscanf(text, "%llu %llu", &ran, &starved) == 2 ? starved : 0;
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
