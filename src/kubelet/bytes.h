/* Bytes that grow, for messages that are put together and then sent whole. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
	uint8_t *data; /* NULL while there is no room for any */
	size_t len, room;
	bool failed; /* there was no memory for all of them */
};

void bytes_add(struct bytes *bytes, const void *data, size_t len);
void bytes_clear(struct bytes *bytes); /* keeps the room */
void bytes_free(struct bytes *bytes);  /* also of a zeroed one */
