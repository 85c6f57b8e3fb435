#include "say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"

#define LINE_MAX_LEN 2048

void say(int level, const char *format, ...)
{
	char plain[LINE_MAX_LEN], line[2 * LINE_MAX_LEN];
	va_list args;

	va_start(args, format);
	vsnprintf(plain, sizeof(plain), format, args);
	va_end(args);
	escape(plain, line, sizeof(line));
	if (getenv("JOURNAL_STREAM"))
		fprintf(stderr, "<%d>%s\n", level, line);
	else
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, line);
}

bool say_changed(struct fault *last, const char *why)
{
	if (strcmp(last->text, why) == 0)
		return false;
	snprintf(last->text, sizeof(last->text), "%s", why);
	return true;
}
