/*
 * Assertions, in three levels by what they cost. A false one is a mistake in this program: the
 * process prints one line with the place and the condition, and aborts.
 *
 *     ASSERT            a contract: an argument, or the order of calls; a comparison or two
 *     ASSERT_INTERNAL   what a component keeps true of its own state; some loads
 *     ASSERT_EXPENSIVE  a whole structure, by its function *_is_valid
 *
 *     build                                   levels
 *     release                                 none: the conditions are compiled and never evaluated
 *     Debug, and fault injection              the first two
 *     sanitizers, fuzzers                     all
 *
 * `cmake -DVGPU_ASSERTIONS=N` sets the number of levels. No assertion is about an input. A file
 * that others can write, an environment, and what the driver returns are inputs: these are checked
 * in all builds. A condition has no side effect.
 */
#pragma once

#ifndef VGPU_ASSERTIONS
#define VGPU_ASSERTIONS 0
#endif
#if defined(VGPU_FAULTS) && VGPU_ASSERTIONS < 2
#define ASSERTION_LEVEL 2
#else
#define ASSERTION_LEVEL VGPU_ASSERTIONS
#endif

#define ASSERTION_CHECK(level, condition)                                            \
	do {                                                                         \
		if (ASSERTION_LEVEL >= (level) && __builtin_expect(!(condition), 0)) \
			assertion_failed(__FILE__, __LINE__, #condition);            \
	} while (0)

#define ASSERT(condition)           ASSERTION_CHECK(1, condition)
#define ASSERT_INTERNAL(condition)  ASSERTION_CHECK(2, condition)
#define ASSERT_EXPENSIVE(condition) ASSERTION_CHECK(3, condition)

__attribute__((noreturn, cold)) void assertion_failed(const char *file, int line,
						      const char *condition);
