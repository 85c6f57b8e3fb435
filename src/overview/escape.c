/*
 * The result depends on the text alone, not on the locale: the program never calls setlocale. A
 * terminal that does not understand UTF-8 may show wrong characters. It sees no ASCII control
 * character in them, because all bytes of a kept sequence are 0x80 or above. The character of a
 * kept sequence is no C1 control character either.
 */
#include "escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ESCAPED_LEN 4 /* \xNN */

/* Returns the number of bytes of the UTF-8 sequence at text, and its code point; 0: the
 * sequence is not valid. */
static size_t decode(const unsigned char *text, uint32_t *ret_point)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800,
					 0x10000}; /* shorter forms exist below */
	size_t len = text[0] < 0x80 ? 1 : text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2 : 0;
	uint32_t point;

	if (text[0] >= 0xe0)
		len = text[0] < 0xf0 ? 3 : text[0] < 0xf5 ? 4 : 0;
	if (len <= 1) {
		*ret_point = text[0];
		return len;
	}
	point = text[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((text[i] & 0xc0) != 0x80) /* NUL, too */
			return 0;
		point = point << 6 | (text[i] & 0x3f);
	}
	if (point < least[len] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
		return 0;
	*ret_point = point;
	return len;
}

static bool is_printable(uint32_t point)
{
	static const struct {
		uint32_t first, last;
	} hidden[] = {
		{0x00, 0x1f},     {0x7f, 0x9f},       {0xad, 0xad},     {0x061c, 0x061c},
		{0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f}, {0xfeff, 0xfeff},
		{0xfff9, 0xfffb}, {0xe0000, 0xe007f},
	};

	for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
		if (point >= hidden[i].first && point <= hidden[i].last)
			return false;
	return true;
}

char *escape(const char *text, char *buf, size_t len)
{
	const unsigned char *from = (const unsigned char *)text;
	size_t at = 0;

	while (*from) {
		uint32_t point = 0;
		size_t bytes = decode(from, &point);
		bool keep = bytes > 0 && is_printable(point);

		if (!bytes)
			bytes = 1;
		if (at + (keep ? bytes : bytes * ESCAPED_LEN) >= len)
			break;
		if (keep)
			memcpy(buf + at, from, bytes);
		for (size_t i = 0; !keep && i < bytes; i++)
			snprintf(buf + at + i * ESCAPED_LEN, ESCAPED_LEN + 1, "\\x%02x", from[i]);
		at += keep ? bytes : bytes * ESCAPED_LEN;
		from += bytes;
	}
	buf[at] = '\0';
	return buf;
}
