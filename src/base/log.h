/*
 * Messages of the library on stderr of the application's process, never on stdout. Each is one
 * line, "vgpu: …", and one write(2), without a buffer. errno keeps its value. LIBCUDA_LOG_LEVEL, a
 * name of HAMi's, sets the level.
 */
#pragma once

#include <stdbool.h>

enum log_level {
	LOG_ERROR = 0, /* a limit cannot be enforced, or the library itself refused a call */
	LOG_WARN = 1,  /* the default: a setting has another effect than the user asked for */
	LOG_INFO = 2,  /* the slice that the process joins, and changes of the slice */
	LOG_DEBUG = 3, /* each allocation that is refused for want of room */
	LOG_TRACE = 4, /* each allocation and each free */
};

/* Whether messages of the level are written, for a caller whose figures take time to compute. */
bool log_wants(enum log_level level);

__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *format, ...);
