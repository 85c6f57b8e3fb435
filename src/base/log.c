#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "env.h"
#include "size.h"
#include "sys.h"

/* The level of LIBCUDA_LOG_LEVEL. The first thread that needs it reads the variable, once. */
static int threshold(void)
{
	static int level = -1;
	int seen = __atomic_load_n(&level, __ATOMIC_RELAXED);

	if (seen < 0) {
		const char *text = env_get("LIBCUDA_LOG_LEVEL");
		uint64_t number;

		seen = text && number_parse(text, LOG_TRACE, &number) == 0 ? (int)number : LOG_WARN;
		__atomic_store_n(&level, seen, __ATOMIC_RELAXED);
	}
	return seen;
}

bool log_wants(enum log_level level)
{
	return (int)level <= threshold();
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[640] = "vgpu: ";
	size_t start = strlen(line);
	int saved = errno, len;
	va_list args;

	if (!log_wants(level))
		return;
	va_start(args, format);
	len = vsnprintf(line + start, sizeof(line) - start - 1, format, args);
	va_end(args);
	if (len > 0) {
		size_t end = strlen(line);

		line[end] = '\n';
		sys_write_line(STDERR_FILENO, line, end + 1);
	}
	errno = saved;
}
