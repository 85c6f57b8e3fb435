/*
 * This file reads digits itself. strtoull is bound to another symbol in every few releases of
 * glibc. It also accepts signs, octal and hexadecimal numbers, which no user means.
 */
#include "size.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SIZE_LIMIT ((uint64_t)1 << 63)

static const char units[] = "kmgtKMGT";

static const char *skip_blanks(const char *text)
{
	while (*text == ' ' || *text == '\t' || *text == '\n' || *text == '\r')
		text++;
	return text;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits up to max: 0, -EINVAL without a digit, -ERANGE. */
static int parse_digits(const char **text, uint64_t max, uint64_t *ret_number)
{
	uint64_t number = 0;
	const char *p = *text;

	if (!is_digit(*p))
		return -EINVAL;
	for (; is_digit(*p); p++) {
		uint64_t digit = (uint64_t)(*p - '0');

		if (digit > max || number > (max - digit) / 10)
			return -ERANGE;
		number = number * 10 + digit;
	}
	*text = p;
	*ret_number = number;
	return 0;
}

int number_parse(const char *text, uint64_t max, uint64_t *ret_number)
{
	const char *p = skip_blanks(text);
	uint64_t number;
	int error = parse_digits(&p, max, &number);

	if (error)
		return error;
	if (*skip_blanks(p))
		return -EINVAL;
	*ret_number = number;
	return 0;
}

/* The digits after a decimal point, if there is one: in thousandths, the rest cut off. *ret_some:
 * one of them is not 0. Returns 0, or -EINVAL for a point without a digit. */
static int parse_fraction(const char **text, unsigned *ret_thousandths, bool *ret_some)
{
	const char *p = *text;
	unsigned weight = 100;

	*ret_thousandths = 0;
	*ret_some = false;
	if (*p != '.')
		return 0;
	if (!is_digit(*++p))
		return -EINVAL;
	for (; is_digit(*p); p++, weight /= 10) {
		*ret_thousandths += (unsigned)(*p - '0') * weight;
		*ret_some = *ret_some || *p != '0';
	}
	*text = p;
	return 0;
}

int percent_parse(const char *text, uint64_t max, uint64_t *ret_pct)
{
	const char *p = skip_blanks(text);
	unsigned thousandths;
	uint64_t whole;
	bool fraction;
	int error = parse_digits(&p, max, &whole);

	if (!error)
		error = parse_fraction(&p, &thousandths, &fraction);
	if (error)
		return error;
	p = skip_blanks(p);
	if (*p == '%')
		p++;
	if (*skip_blanks(p))
		return -EINVAL;
	if (whole == max && fraction)
		return -ERANGE;
	*ret_pct = whole == 0 && fraction ? 1 : whole; /* 0 would be no limit */
	return 0;
}

/* The bytes of one unit: 1 where there is none. Steps over "k", "Ki", "kB", "KiB" … */
static uint64_t parse_unit(const char **text)
{
	const char *p = *text, *unit = *p ? strchr(units, *p) : NULL;
	uint64_t bytes = 1;

	if (unit) {
		bytes <<= 10 * ((unit - units) % 4 + 1);
		p++;
		if (*p == 'i')
			p++;
	}
	if (*p == 'B' || *p == 'b')
		p++;
	*text = p;
	return bytes;
}

int size_parse(const char *text, uint64_t *ret_bytes)
{
	const char *p = skip_blanks(text);
	uint64_t whole, unit;
	unsigned thousandths;
	bool fraction; /* there is one, be it less than a thousandth */
	int error = parse_digits(&p, SIZE_LIMIT, &whole);

	if (!error)
		error = parse_fraction(&p, &thousandths, &fraction);
	if (error)
		return error;
	p = skip_blanks(p);
	unit = parse_unit(&p);
	if (unit == 1 && fraction)
		return -EINVAL; /* of a byte there are no parts */
	if (*skip_blanks(p))
		return -EINVAL;
	if (whole > SIZE_LIMIT / unit)
		return -ERANGE;
	whole = whole * unit + thousandths * unit / 1000;
	if (whole > SIZE_LIMIT)
		return -ERANGE;
	if (whole == 0 && fraction)
		return -EINVAL; /* 0 would be no limit, to those who read one */
	*ret_bytes = whole;
	return 0;
}

char *size_format(uint64_t bytes, char *buf, size_t len)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned i = 0;

	while (i < 4 && bytes >> (10 * (i + 1)))
		i++;

	uint64_t unit = (uint64_t)1 << (10 * i);
	unsigned long long whole = bytes / unit;
	unsigned hundredths = (unsigned)(bytes % unit * 100 / unit);

	if (hundredths == 0)
		snprintf(buf, len, "%llu %s", whole, names[i]);
	else
		snprintf(buf, len, "%llu.%02u %s", whole, hundredths, names[i]);
	return buf;
}

/* -- times ------------------------------------------------------------------------------------- */

static const struct time_unit {
	const char *name;
	uint64_t ns;
} time_units[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};

#define TIME_UNITS (sizeof(time_units) / sizeof(time_units[0]))

/* The unit that the text names, which may be followed by blanks; NULL: none. */
static const struct time_unit *find_time_unit(const char *text)
{
	for (size_t i = 0; i < TIME_UNITS; i++) {
		size_t len = strlen(time_units[i].name);

		if (strncmp(text, time_units[i].name, len) == 0 && !*skip_blanks(text + len))
			return &time_units[i];
	}
	return NULL;
}

int time_parse(const char *text, uint64_t max_ns, uint64_t *ret_ns)
{
	const char *p = skip_blanks(text);
	const struct time_unit *unit;
	unsigned thousandths;
	uint64_t whole, ns;
	bool fraction;
	int error = parse_digits(&p, SIZE_LIMIT, &whole);

	if (!error)
		error = parse_fraction(&p, &thousandths, &fraction);
	if (error)
		return error;
	p = skip_blanks(p);
	unit = find_time_unit(p);
	if (!unit && (*p || whole || fraction))
		return -EINVAL;
	if (unit && whole > max_ns / unit->ns)
		return -ERANGE;
	ns = unit ? whole * unit->ns + thousandths * unit->ns / 1000 : 0;
	if (ns > max_ns)
		return -ERANGE;
	if (ns == 0 && (whole || fraction))
		return -EINVAL;
	*ret_ns = ns;
	return 0;
}

char *time_format(uint64_t ns, char *buf, size_t len)
{
	const struct time_unit *unit = time_units;

	while (ns % unit->ns)
		unit++;
	if (ns == 0)
		snprintf(buf, len, "0");
	else
		snprintf(buf, len, "%llu%s", (unsigned long long)(ns / unit->ns), unit->name);
	return buf;
}
