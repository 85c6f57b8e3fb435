/*
 * Every line that may hold a name, a path or an argument passes through here, and is escaped as a
 * whole. Tenants choose such text, and a terminal would obey its control characters.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "escape.h"

#define ESCAPED_LEN 4 /* what a byte of the text becomes at most (escape.h) */

/* The line without its line feed; NULL without memory. */
__attribute__((format(printf, 1, 0))) static char *make_line(const char *format, va_list args)
{
	char *plain = NULL, *line = NULL;
	int len = vasprintf(&plain, format, args);

	if (len >= 0)
		line = malloc((size_t)len * ESCAPED_LEN + 1);
	if (line)
		escape(plain, line, (size_t)len * ESCAPED_LEN + 1);
	if (len >= 0)
		free(plain);
	return line;
}

int cli_fail(int status, const char *format, ...)
{
	va_list args;
	char *line;

	va_start(args, format);
	line = make_line(format, args);
	va_end(args);
	fprintf(stderr, "vgpu: %s\n", line ? line : "out of memory");
	free(line);
	return status;
}

void cli_say(const char *format, ...)
{
	va_list args;
	char *line;

	va_start(args, format);
	line = make_line(format, args);
	va_end(args);
	if (!line)
		exit(cli_fail(CLI_FAILED, "out of memory"));
	puts(line);
	free(line);
}

int cli_written(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	return cli_fail(CLI_FAILED, "standard output cannot be written: is the disk full?");
}
