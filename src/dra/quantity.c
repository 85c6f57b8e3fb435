/*
 * A quantity is DIGITS[.DIGITS]SUFFIX. It is computed as a whole number, the digits without the
 * point. That number is then multiplied by a power of 2, and multiplied or divided by a power of
 * 10.
 */
#include "quantity.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX   19 /* so that the number has less than 64 bits */
#define EXPONENT_MAX 40

typedef unsigned __int128 wide;

static const struct suffix {
	const char *text;
	int twos, tens; /* powers */
} suffixes[] = {
	{"", 0, 0},    {"Ki", 10, 0}, {"Mi", 20, 0}, {"Gi", 30, 0}, {"Ti", 40, 0}, {"Pi", 50, 0},
	{"Ei", 60, 0}, {"n", 0, -9},  {"u", 0, -6},  {"m", 0, -3},  {"k", 0, 3},   {"M", 0, 6},
	{"G", 0, 9},   {"T", 0, 12},  {"P", 0, 15},  {"E", 0, 18},
};

/* Reads digits with a point. *ret_fraction: the digits after the point. Moves *at after
 * them. */
static bool take_digits(const char **at, uint64_t *ret_number, int *ret_fraction)
{
	uint64_t number = 0;
	unsigned digits = 0, seen = 0;
	int fraction = 0;
	bool point = false;

	for (;; (*at)++) {
		if (**at == '.' && !point) {
			point = true;
			continue;
		}
		if (!isdigit((unsigned char)**at))
			break;
		seen++;
		number = 10 * number + (unsigned)(**at - '0');
		digits += number > 0;
		fraction += point;
		if (digits > DIGITS_MAX || fraction > DIGITS_MAX)
			return false;
	}
	*ret_number = number;
	*ret_fraction = fraction;
	return seen > 0;
}

/* Reads an exponent, such as "e3" or "E-3". "E" alone is a suffix. */
static bool take_exponent(const char *text, int *ret_tens)
{
	char *end;
	long tens;

	if ((*text != 'e' && *text != 'E') || !strpbrk(text + 1, "0123456789") ||
	    !strchr("+-0123456789", text[1]))
		return false;
	tens = strtol(text + 1, &end, 10);
	if (*end || tens > EXPONENT_MAX || tens < -EXPONENT_MAX)
		return false;
	*ret_tens = (int)tens;
	return true;
}

static bool take_suffix(const char *text, int *ret_twos, int *ret_tens)
{
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (strcmp(text, suffixes[i].text) == 0) {
			*ret_twos = suffixes[i].twos;
			*ret_tens = suffixes[i].tens;
			return true;
		}
	*ret_twos = 0;
	return take_exponent(text, ret_tens);
}

/* Multiplies *number by 10^tens, rounded up. Returns false if the result is far too large. */
static bool scale(wide *number, int tens)
{
	bool rest = false;

	for (; tens > 0 && *number; tens--) {
		if (*number >> 64)
			return false;
		*number *= 10;
	}
	for (; tens < 0 && *number; tens++) {
		rest |= *number % 10 != 0;
		*number /= 10;
	}
	*number += rest;
	return true;
}

int quantity_parse(const char *text, uint64_t *ret_value)
{
	uint64_t number;
	int fraction, twos, tens;
	wide value;

	text += *text == '+';
	if (!take_digits(&text, &number, &fraction) || !take_suffix(text, &twos, &tens))
		return -EINVAL;
	value = (wide)number << twos;
	if (!scale(&value, tens - fraction) || value > INT64_MAX)
		return -ERANGE;
	*ret_value = (uint64_t)value;
	return 0;
}

char *quantity_format(uint64_t bytes, char *buf, size_t len)
{
	static const char *const units[] = {"Mi", "Gi", "Ti"};
	uint64_t count = bytes >> 20;
	size_t unit = 0;

	for (; unit < 2 && count && count % 1024 == 0; unit++)
		count /= 1024;
	snprintf(buf, len, "%llu%s", (unsigned long long)count, units[unit]);
	return buf;
}
