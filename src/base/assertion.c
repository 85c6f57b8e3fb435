/* The line is written by one system call without a buffer, as a component may hold any lock here.
 */
#include "assertion.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sys.h"

void assertion_failed(const char *file, int line, const char *condition)
{
	char text[512];
	int len = snprintf(text, sizeof(text), "%s:%d: this does not hold: %s\n", file, line,
			   condition);

	if (len >= (int)sizeof(text)) {
		len = sizeof(text) - 1;
		text[len - 1] = '\n';
	}
	sys_write_line(STDERR_FILENO, text, (size_t)len);
	abort();
}
