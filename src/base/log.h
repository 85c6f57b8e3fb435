/*
 * Lines on stderr, from the library in an application's process: "vgpu: …", one write(2) a line,
 * nothing buffered, errno kept. Never stdout. The level comes from LIBCUDA_LOG_LEVEL (HAMi's name).
 */
#pragma once

enum log_level {
	LOG_ERROR = 0, /* a slice cannot be enforced, a call was refused for a reason of ours */
	LOG_WARN = 1,
	LOG_INFO = 2,
	LOG_DEBUG = 3, /* refused allocations */
	LOG_TRACE = 4,
};

__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *format, ...);
