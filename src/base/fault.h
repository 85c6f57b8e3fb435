/*
 * What went wrong, in words. Rooms never print: a function that can fail for a reason that a person
 * must mend takes a struct fault and, when it returns a negative errno, leaves one line in it: what
 * is wrong, where, and what to do. The caller decides who reads it.
 */
#pragma once

struct fault {
	char text[512]; /* no newline at the end; empty when there is nothing to say */
};

/* Writes the line, "?" for each control character, (a NULL fault is fine) and returns error, so
 * that it can stand in a return. */
__attribute__((format(printf, 3, 4))) int fault_set(struct fault *fault, int error,
						    const char *format, ...);
