/*
 * The digits are read here and not by strtol. Newer C libraries compile strtol to a symbol
 * (__isoc23_strtol) that older C libraries lack, and libvgpu.so must load on both.
 */
#include "fields.h"

#include <stddef.h>

static const char *skip_blanks(const char *text)
{
	while (*text == ' ')
		text++;
	return text;
}

const char *field_at(const char *line, unsigned n)
{
	const char *field = skip_blanks(line);

	for (; *field && n; n--) {
		while (*field && *field != ' ')
			field++;
		field = skip_blanks(field);
	}
	return *field ? field : NULL;
}

static uint64_t leading_number(const char *digit)
{
	uint64_t number = 0;

	for (; *digit >= '0' && *digit <= '9'; digit++)
		number = number * 10 + (uint64_t)(*digit - '0');
	return number;
}

uint64_t field_number(const char *line, unsigned n)
{
	const char *field = field_at(line, n);

	return field ? leading_number(field) : 0;
}

int64_t field_signed(const char *line, unsigned n)
{
	const char *field = field_at(line, n);

	if (!field)
		return 0;
	return *field == '-' ? -(int64_t)leading_number(field + 1) : (int64_t)leading_number(field);
}
