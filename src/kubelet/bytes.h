/* Bytes that grow, for messages that are composed and then sent whole. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
	uint8_t *data; /* NULL: no room was needed yet */
	size_t len, room;
	bool failed; /* memory ran out, and some bytes are missing */
};

/* Adds to the end. Without memory, it sets bytes->failed. */
void bytes_add(struct bytes *bytes, const void *data, size_t len);
void bytes_clear(struct bytes *bytes); /* empties it and resets failed, but keeps the room */
void bytes_free(struct bytes *bytes);  /* accepts a zeroed one */
