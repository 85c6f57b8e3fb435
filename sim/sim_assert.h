/*
 * Assertions about the simulated machine's own state: sums that never fall below 0, references that
 * are never given back twice, times that never go back. They are on in all builds, as the
 * simulator's figures are what tests compare the library with. A false assertion prints one line
 * with the place and the condition, and aborts.
 *
 * No assertion is about an argument of the application, which gets an error instead. A condition
 * has no side effect.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SIM_ASSERT(condition)                                                 \
	do {                                                                  \
		if (__builtin_expect(!(condition), 0))                        \
			sim_assertion_failed(__FILE__, __LINE__, #condition); \
	} while (0)

/* dprintf has no buffer that another thread may have locked. */
__attribute__((noreturn, cold, unused)) static void sim_assertion_failed(const char *file, int line,
									 const char *condition)
{
	dprintf(STDERR_FILENO, "%s:%d: the simulated machine is wrong, this does not hold: %s\n",
		file, line, condition);
	abort();
}
