#include "fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int fault_set(struct fault *fault, int error, const char *format, ...)
{
	va_list args;
	int saved = errno;

	if (fault) {
		va_start(args, format);
		vsnprintf(fault->text, sizeof(fault->text), format, args);
		va_end(args);
	}
	errno = saved;
	return error;
}
