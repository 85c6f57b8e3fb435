/*
 * The cause of a failure, in words. Components never print. A function takes a struct fault if it
 * can fail for a reason that a person must correct. When the function returns a negative errno, the
 * fault has one line: what is wrong, where, and what to do. The caller decides where the line goes.
 */
#pragma once

#include <stdbool.h>

struct fault {
	char text[512]; /* no newline at the end; empty when there is nothing to say */
};

/* Writes the line, with "?" in place of each control character, and returns error: so the call can
 * be the expression of a return. fault may be NULL. */
__attribute__((format(printf, 3, 4))) int fault_set(struct fault *fault, int error,
						    const char *format, ...);

/* Whether the negative errno says that memory or descriptors have run out. Such an error says
 * nothing about the file that was to be opened or read: it may be there, and be in order. */
bool fault_is_shortage(int error);
