/*
 * Preloaded before the library: clocks that run a twelfth too fast, as while chrony puts the time
 * of day right as quickly as it may. Only CLOCK_MONOTONIC_RAW is left as it is, and so the
 * simulated GPU's clock.
 */
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HASTE 12

static int64_t ns_of(const struct timespec *t)
{
	return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *t)
{
	long result = syscall(SYS_clock_gettime, id, t);
	struct timespec raw;
	int64_t ns;

	if (result || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE &&
		       id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE))
		return (int)result;
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC_RAW, &raw);
	ns = ns_of(t) + ns_of(&raw) / HASTE;
	*t = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	return 0;
}
