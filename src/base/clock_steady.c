/*
 * The clock that measures a quota's time. It has to run as the GPU's does, and to be the same for
 * all processes of a slice.
 *
 * CLOCK_REALTIME and CLOCK_MONOTONIC run faster or slower while the time of day is adjusted. With
 * chrony they deviate by a twelfth at most, and a slice of 80 % then gets 86.7. CLOCK_MONOTONIC_RAW
 * does not. Linux 5.3 brought the raw clock into the vDSO of all architectures. Before, reading it
 * may take a system call, and CLOCK_MONOTONIC stands in for it. Neither clock ever steps.
 *
 * Since Linux 5.6 each time namespace has both clocks ahead by an offset, which is subtracted
 * (time_namespaces(7)).
 */
#include <fcntl.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "clock.h"
#include "fields.h"
#include "sys.h"

#define UNKNOWN (-1)

static int steady_id = UNKNOWN; /* atomic; written after ahead_ns, by all the same */
static uint64_t ahead_ns;       /* modulo 2^64, as it may be negative; atomic */

/* Whether this is Linux 5.3 or later. */
static bool is_raw_cheap(void)
{
	struct utsname name;
	const char *dot;
	uint64_t major, minor;

	if (sys_uname(&name) < 0)
		return false;
	dot = strchr(name.release, '.');
	major = field_number(name.release, 0);
	minor = dot ? field_number(dot + 1, 0) : 0;
	return major > 5 || (major == 5 && minor >= 3);
}

/* "monotonic SECONDS NANOSECONDS", and other clocks below. */
static uint64_t namespace_ahead_ns(void)
{
	char text[256];
	int fd = sys_open("/proc/self/timens_offsets", O_RDONLY, 0);
	long len = fd < 0 ? fd : sys_read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		sys_close(fd);
	if (len <= 0)
		return 0; /* no such namespaces, or no /proc */
	text[len] = '\0';
	if (strncmp(text, "monotonic ", 10) != 0)
		return 0;
	return (uint64_t)field_signed(text, 1) * NS_PER_S + field_number(text, 2);
}

void clock_find_steady(void)
{
	struct timespec t;
	bool raw = is_raw_cheap() && clock_gettime(CLOCK_MONOTONIC_RAW, &t) == 0;

	__atomic_store_n(&ahead_ns, namespace_ahead_ns(), __ATOMIC_RELAXED);
	__atomic_store_n(&steady_id, raw ? CLOCK_MONOTONIC_RAW : CLOCK_MONOTONIC, __ATOMIC_RELEASE);
}

void clock_forked(void)
{
	__atomic_store_n(&steady_id, UNKNOWN, __ATOMIC_RELAXED);
}

uint64_t clock_steady_ns(void)
{
	struct timespec t;

	if (__atomic_load_n(&steady_id, __ATOMIC_ACQUIRE) == UNKNOWN)
		clock_find_steady();
	clock_gettime(__atomic_load_n(&steady_id, __ATOMIC_RELAXED), &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec -
	       __atomic_load_n(&ahead_ns, __ATOMIC_RELAXED);
}
