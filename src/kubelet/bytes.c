#include "bytes.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_AT_FIRST 256

static bool grow(struct bytes *bytes, size_t more)
{
	size_t room = bytes->room ? bytes->room : ROOM_AT_FIRST;
	uint8_t *data;

	if (more > SIZE_MAX / 4 || bytes->len > SIZE_MAX / 4)
		return false;
	while (room < bytes->len + more)
		room *= 2;
	if (room == bytes->room)
		return true;
	data = realloc(bytes->data, room);
	if (!data)
		return false;
	bytes->data = data;
	bytes->room = room;
	return true;
}

void bytes_add(struct bytes *bytes, const void *data, size_t len)
{
	if (bytes->failed || !grow(bytes, len)) {
		bytes->failed = true;
		return;
	}
	if (len)
		memcpy(bytes->data + bytes->len, data, len);
	bytes->len += len;
}

void bytes_clear(struct bytes *bytes)
{
	bytes->len = 0;
	bytes->failed = false;
}

void bytes_free(struct bytes *bytes)
{
	free(bytes->data);
	*bytes = (struct bytes){0};
}
