/*
 * The least lengths of turns that vgpud has set because of memory pressure, for programs that show
 * the machine. vgpud keeps them in a file next to its socket, because only programs of slices have
 * its files of turns. A line is "UUID NANOSECONDS", and there is one for each GPU with pressure.
 */
#pragma once

#include "fault.h"
#include "usage.h"

#define LEAST_TURNS_NAME "pressure"
#define LEAST_TURNS_LEN  16384 /* of the text at most, with its NUL */

/* Writes the text, for a vgpud with that socket. 0, or a negative errno with a fault. */
int least_turns_write(const char *socket, const char *text, struct fault *fault);

/* Fills in each GPU's turn_least_ns, by the vgpud that programs here would ask. */
void least_turns_read(struct usage *usage);
