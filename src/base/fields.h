/*
 * Lines as /proc has them: fields that stand apart by blanks, some of them decimal numbers.
 */
#pragma once

#include <stdint.h>

/* The n-th field of the line, from 0; NULL if it has fewer. */
const char *field_at(const char *line, unsigned n);
/* The number that the n-th field begins with; 0 if it begins with no digit, or is not there. */
uint64_t field_number(const char *line, unsigned n);
/* The same for a field that may begin with a minus sign. */
int64_t field_signed(const char *line, unsigned n);
