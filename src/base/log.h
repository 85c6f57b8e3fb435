/*
 * Lines on stderr, from the library in an application's process: "vgpu: …", one write(2) a line,
 * nothing buffered, errno kept. Never stdout. The level comes from LIBCUDA_LOG_LEVEL (HAMi's name).
 */
#pragma once

#include <stdbool.h>

enum log_level {
	LOG_ERROR = 0, /* a slice cannot be enforced, a call was refused for a reason of ours */
	LOG_WARN = 1,  /* the default: something is not as it was asked for */
	LOG_INFO = 2,  /* the slice that the process joins, and what changes in it */
	LOG_DEBUG = 3, /* each allocation that is refused for want of room */
	LOG_TRACE = 4, /* each allocation and each free */
};

/* Whether lines of the level are written: for figures that are not at hand. */
bool log_wants(enum log_level level);

__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *format, ...);
