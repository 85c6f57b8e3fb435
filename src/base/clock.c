/* The clocks come from the vDSO: no system call, on any kernel that runs CUDA. */
#include "clock.h"

#include <time.h>

static uint64_t read_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t clock_now_ns(void)
{
	return read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_coarse_ns(void)
{
	return read_ns(CLOCK_MONOTONIC_COARSE);
}

uint64_t clock_wall_ns(void)
{
	return read_ns(CLOCK_REALTIME);
}

int64_t clock_unix_s(void)
{
	return (int64_t)(read_ns(CLOCK_REALTIME_COARSE) / NS_PER_S);
}
