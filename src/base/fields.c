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

uint64_t field_number(const char *line, unsigned n)
{
	const char *digit = field_at(line, n);
	uint64_t number = 0;

	for (; digit && *digit >= '0' && *digit <= '9'; digit++)
		number = number * 10 + (uint64_t)(*digit - '0');
	return number;
}
