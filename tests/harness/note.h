/* Prints a figure that a test measured: a line on stderr, if VGPU_TEST_VERBOSE is set. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline bool harness_is_verbose(void)
{
	return getenv("VGPU_TEST_VERBOSE") != NULL;
}

__attribute__((format(printf, 1, 2), unused)) static void harness_note(const char *format, ...)
{
	va_list args;

	if (!harness_is_verbose())
		return;
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}
