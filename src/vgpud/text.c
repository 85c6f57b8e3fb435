#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define ROOM_AT_FIRST 4096

/* Makes room for `more` bytes and the NUL. Returns false without memory. */
static bool grow(struct text *text, size_t more)
{
	size_t room = text->room ? text->room : ROOM_AT_FIRST;
	char *bytes;

	while (room <= text->length + more)
		room *= 2;
	if (room == text->room)
		return true;
	bytes = realloc(text->bytes, room);
	if (!bytes)
		return false;
	text->bytes = bytes;
	text->room = room;
	return true;
}

void text_add(struct text *text, const char *format, ...)
{
	va_list args, again;
	int length;

	va_start(args, format);
	va_copy(again, args);
	length = vsnprintf(NULL, 0, format, args);
	if (length < 0 || text->failed || !grow(text, (size_t)length))
		text->failed = true;
	else
		text->length += (size_t)vsnprintf(text->bytes + text->length,
						  text->room - text->length, format, again);
	va_end(again);
	va_end(args);
}

void text_free(struct text *text)
{
	free(text->bytes);
	*text = (struct text){0};
}
