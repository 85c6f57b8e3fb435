/*
 * Checks for all tests that do not use cmocka. The first check that fails prints its place and the
 * values that it compared, and ends the process with status 1, without the handlers of exit(3): the
 * process may be a child of another test program. A process that cannot be tested here says why
 * with SKIP, and ends with status 77.
 */
#pragma once

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "note.h"

/* The function by which a check ends the process. A file that needs exit(3) defines it
 * before. */
#ifndef CHECK_END
#define CHECK_END _exit
#endif

#define CHECK_SKIPPED 77    /* an exit status */
#define SOON_MS       10000 /* see CHECK_SOON_EQUAL */

#define CHECK(condition)                                              \
	do {                                                          \
		if (!(condition))                                     \
			check_failed(__FILE__, __LINE__, #condition); \
	} while (0)

/* Checks a condition; the arguments are the format of the line that a failure prints. */
#define CHECK_SAYING(condition, ...)                                          \
	do {                                                                  \
		if (!(condition))                                             \
			check_failed_saying(__FILE__, __LINE__, __VA_ARGS__); \
	} while (0)

#define CHECK_EQUAL(a, b) \
	check_equal(__FILE__, __LINE__, #a " == " #b, (long long)(a), (long long)(b))
#define CHECK_AT_MOST(a, b) \
	check_at_most(__FILE__, __LINE__, #a " <= " #b, (uint64_t)(a), (uint64_t)(b))
#define CHECK_STRING(a, b) check_string(__FILE__, __LINE__, #a " == " #b, a, b)

/* The call succeeds: it returns 0, which is CUDA_SUCCESS, NVML_SUCCESS and cudaSuccess. */
#define CHECK_OK(call) check_equal(__FILE__, __LINE__, #call, (long long)(call), 0)

/* The equality holds after a while. A death is an example: the kernel may need some time for it on
 * a busy machine (tests/unit/departure.h). */
#define CHECK_SOON_EQUAL(a, b)                                                          \
	do {                                                                            \
		uint64_t check_until = check_now_ms() + SOON_MS;                        \
		long long check_a = (long long)(a);                                     \
		while (check_a != (long long)(b) && check_now_ms() < check_until) {     \
			usleep(1000);                                                   \
			check_a = (long long)(a);                                       \
		}                                                                       \
		check_equal(__FILE__, __LINE__, #a " == " #b, check_a, (long long)(b)); \
	} while (0)

#define SKIP(...) check_skip(__VA_ARGS__)

__attribute__((format(printf, 3, 4), noreturn, unused)) static void
check_failed_saying(const char *file, int line, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s:%d: ", file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	CHECK_END(1);
}

__attribute__((unused)) _Noreturn static void check_failed(const char *file, int line,
							   const char *what)
{
	check_failed_saying(file, line, "%s", what);
}

__attribute__((format(printf, 1, 2), noreturn, unused)) static void check_skip(const char *format,
									       ...)
{
	va_list args;

	printf("skipped: ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	_exit(CHECK_SKIPPED);
}

static inline void check_equal(const char *file, int line, const char *what, long long a,
			       long long b)
{
	if (a != b)
		check_failed_saying(file, line, "%s: %lld and %lld", what, a, b);
}

static inline void check_at_most(const char *file, int line, const char *what, uint64_t a,
				 uint64_t b)
{
	if (a > b)
		check_failed_saying(file, line, "%s: %llu and %llu", what, (unsigned long long)a,
				    (unsigned long long)b);
}

static inline void check_string(const char *file, int line, const char *what, const char *a,
				const char *b)
{
	if (!a || !b || strcmp(a, b) != 0)
		check_failed_saying(file, line, "%s: \"%s\" and \"%s\"", what, a ? a : "(none)",
				    b ? b : "(none)");
}

static inline uint64_t check_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
