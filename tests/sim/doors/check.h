/* A check that fails ends the process with one line that says what is wrong. */
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

enum { EXIT_SKIPPED = 77 };

__attribute__((format(printf, 2, 3), noreturn)) static inline void give_up(int status,
									   const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(status);
}

#define CHECK(condition, ...)                               \
	do {                                                \
		if (!(condition))                           \
			give_up(EXIT_FAILURE, __VA_ARGS__); \
	} while (0)

#define SKIP(...) give_up(EXIT_SKIPPED, __VA_ARGS__)
