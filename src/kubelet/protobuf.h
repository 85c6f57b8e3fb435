/*
 * Protocol Buffers' wire format, as far as the kubelet's messages need it: varints and fields with
 * a length. A message is a sequence of fields; a field is a varint, number << 3 | wire type, and
 * then its value. Fields of the other wire types are passed over. Groups are an error, as proto3
 * has none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bytes.h"

enum pb_type { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

/* -- writing: bytes->failed says that something is missing -- */

/* As proto3 has it: 0, false and empty strings are left out. */
void pb_put_varint(struct bytes *bytes, unsigned field, uint64_t value);
void pb_put_string(struct bytes *bytes, unsigned field, const char *text);
/* A message within a message, also an empty one. */
void pb_put_message(struct bytes *bytes, unsigned field, const struct bytes *message);
/* An entry of a map from strings to strings. */
void pb_put_entry(struct bytes *bytes, unsigned field, const char *key, const char *value);

/* -- reading -- */

/* A message that is read, or what is left of it. */
struct pb_message {
	const uint8_t *at, *end;
};

struct pb_field {
	unsigned number;
	enum pb_type type;
	uint64_t varint;          /* of PB_VARINT; else 0 */
	struct pb_message within; /* the bytes of PB_BYTES; else empty */
};

/* The next field: 1; 0 at the message's end; -EBADMSG where the bytes are no message. */
int pb_next(struct pb_message *message, struct pb_field *ret_field);

/* Whether the field is this one, of that type. */
bool pb_is(const struct pb_field *field, unsigned number, enum pb_type type);

/* The bytes as a string in buf. False: they do not fit, or have a NUL. */
bool pb_string(const struct pb_field *field, char *buf, size_t len);
