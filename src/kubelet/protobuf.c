/*
 * Every read is checked against the end of the message first, so no input leads beyond it. A
 * varint has ten bytes at most. Bits beyond the 64th are an error here, though other decoders
 * drop them.
 */
#include "protobuf.h"

#include <errno.h>
#include <string.h>

#define VARINT_BYTES 10
#define FIELD_MAX    ((1u << 29) - 1)

/* -- writing ----------------------------------------------------------------------------------- */

static void add_varint(struct bytes *bytes, uint64_t value)
{
	uint8_t text[VARINT_BYTES];
	size_t len = 0;

	do {
		text[len] = (uint8_t)(value & 0x7f);
		value >>= 7;
		if (value)
			text[len] |= 0x80;
		len++;
	} while (value);
	bytes_add(bytes, text, len);
}

static void add_key(struct bytes *bytes, unsigned field, enum pb_type type)
{
	add_varint(bytes, (uint64_t)field << 3 | (unsigned)type);
}

static void add_bytes(struct bytes *bytes, unsigned field, const void *data, size_t len)
{
	add_key(bytes, field, PB_BYTES);
	add_varint(bytes, len);
	bytes_add(bytes, data, len);
}

void pb_put_varint(struct bytes *bytes, unsigned field, uint64_t value)
{
	if (!value)
		return;
	add_key(bytes, field, PB_VARINT);
	add_varint(bytes, value);
}

void pb_put_string(struct bytes *bytes, unsigned field, const char *text)
{
	if (*text)
		add_bytes(bytes, field, text, strlen(text));
}

void pb_put_message(struct bytes *bytes, unsigned field, const struct bytes *message)
{
	add_bytes(bytes, field, message->data, message->len);
	bytes->failed |= message->failed;
}

void pb_put_entry(struct bytes *bytes, unsigned field, const char *key, const char *value)
{
	struct bytes entry = {0};

	pb_put_string(&entry, 1, key);
	pb_put_string(&entry, 2, value);
	pb_put_message(bytes, field, &entry);
	bytes_free(&entry);
}

/* -- reading ----------------------------------------------------------------------------------- */

static bool take_varint(struct pb_message *message, uint64_t *ret_value)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < VARINT_BYTES && message->at < message->end; i++) {
		uint8_t byte = *message->at++;

		if (i == VARINT_BYTES - 1 && byte > 1)
			return false;
		value |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (!(byte & 0x80)) {
			*ret_value = value;
			return true;
		}
	}
	return false;
}

static bool take_bytes(struct pb_message *message, uint64_t len, struct pb_message *ret_bytes)
{
	if (len > (size_t)(message->end - message->at))
		return false;
	ret_bytes->at = message->at;
	ret_bytes->end = message->at + len;
	message->at += len;
	return true;
}

static bool take_value(struct pb_message *message, struct pb_field *field)
{
	struct pb_message passed;
	uint64_t len;

	switch (field->type) {
	case PB_VARINT:
		return take_varint(message, &field->varint);
	case PB_BYTES:
		return take_varint(message, &len) && take_bytes(message, len, &field->within);
	case PB_FIXED64:
		return take_bytes(message, sizeof(uint64_t), &passed);
	case PB_FIXED32:
		return take_bytes(message, sizeof(uint32_t), &passed);
	}
	return false;
}

int pb_next(struct pb_message *message, struct pb_field *ret_field)
{
	struct pb_field field = {.within = {message->end, message->end}};
	uint64_t key;

	if (message->at == message->end)
		return 0;
	if (!take_varint(message, &key) || key >> 3 == 0 || key >> 3 > FIELD_MAX)
		return -EBADMSG;
	field.number = (unsigned)(key >> 3);
	field.type = (enum pb_type)(key & 7);
	if (!take_value(message, &field))
		return -EBADMSG;
	*ret_field = field;
	return 1;
}

bool pb_is(const struct pb_field *field, unsigned number, enum pb_type type)
{
	return field->number == number && field->type == type;
}

bool pb_string(const struct pb_field *field, char *buf, size_t len)
{
	size_t bytes = (size_t)(field->within.end - field->within.at);

	if (bytes >= len || memchr(field->within.at, '\0', bytes))
		return false;
	memcpy(buf, field->within.at, bytes);
	buf[bytes] = '\0';
	return true;
}
