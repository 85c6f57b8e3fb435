/*
 * The part of Protocol Buffers' wire format that the kubelet's messages need: varints and
 * fields with a length. A message is a sequence of fields. A field is a varint, number << 3 |
 * wire type, and its value. Fields of other wire types are skipped. Groups are an error, as
 * proto3 has none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bytes.h"

enum pb_type { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

/* -- writing: bytes->failed says that something is missing -- */

/* Add a field. As in proto3, 0, false and the empty string are left out. */
void pb_put_varint(struct bytes *bytes, unsigned field, uint64_t value);
void pb_put_string(struct bytes *bytes, unsigned field, const char *text);
/* Adds a message within a message, even an empty one. */
void pb_put_message(struct bytes *bytes, unsigned field, const struct bytes *message);
/* Adds an entry of a map from strings to strings. */
void pb_put_entry(struct bytes *bytes, unsigned field, const char *key, const char *value);

/* -- reading -- */

/* A message that is read, or the rest of it. */
struct pb_message {
	const uint8_t *at, *end;
};

struct pb_field {
	unsigned number;
	enum pb_type type;
	uint64_t varint;          /* the value of PB_VARINT; 0 for other types */
	struct pb_message within; /* the bytes of PB_BYTES; empty for other types */
};

/* Reads the next field. Returns 1; 0 at the message's end; or -EBADMSG: the bytes are no
 * message. */
int pb_next(struct pb_message *message, struct pb_field *ret_field);

/* Whether the field has this number and type. */
bool pb_is(const struct pb_field *field, unsigned number, enum pb_type type);

/* Copies the field's bytes to buf as a string. Returns false if they do not fit, or have a
 * NUL. */
bool pb_string(const struct pb_field *field, char *buf, size_t len);
