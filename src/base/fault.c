#include "fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "assertion.h"

/* Paths and values may hold anything, and it is a line that was promised. */
static void keep_to_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			*text = '?';
}

int fault_set(struct fault *fault, int error, const char *format, ...)
{
	va_list args;
	int saved = errno;

	ASSERT(error <= 0);
	if (fault) {
		va_start(args, format);
		vsnprintf(fault->text, sizeof(fault->text), format, args);
		va_end(args);
		keep_to_line(fault->text);
	}
	errno = saved;
	return error;
}

bool fault_is_shortage(int error)
{
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}
