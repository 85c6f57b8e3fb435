/* Lines of /proc: fields with blanks between them, some of which are decimal numbers. */
#pragma once

#include <stdint.h>

/* The n-th field of the line, counted from 0; NULL if the line has fewer fields. */
const char *field_at(const char *line, unsigned n);
/* The number with which the n-th field begins; 0 if there is no such field, or no digit. */
uint64_t field_number(const char *line, unsigned n);
/* As field_number, for a field that may begin with a minus sign. */
int64_t field_signed(const char *line, unsigned n);
