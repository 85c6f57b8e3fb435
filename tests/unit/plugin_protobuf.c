/* The codec of the kubelet's messages: against bytes that protoc makes, and against damaged ones.
 */
#include <errno.h>
#include <string.h>

#include "protobuf.h"
#include "unit.h"

static struct pb_message message_of(const void *data, size_t len)
{
	return (struct pb_message){data, (const uint8_t *)data + len};
}

#define MESSAGE(text) message_of(text, sizeof(text) - 1)

static void assert_bytes(struct bytes *bytes, const char *expected, size_t len)
{
	assert_false(bytes->failed);
	assert_int_equal(bytes->len, len);
	assert_memory_equal(bytes->data, expected, len);
	bytes_free(bytes);
}

#define ASSERT_BYTES(bytes, expected) assert_bytes(bytes, expected, sizeof(expected) - 1)

UNIT_TEST(test_writes)
{
	struct bytes bytes = {0}, within = {0};

	pb_put_varint(&bytes, 1, 0);
	pb_put_varint(&bytes, 1, 150);
	pb_put_varint(&bytes, 16, UINT64_MAX);
	pb_put_string(&bytes, 2, "");
	pb_put_string(&bytes, 2, "testing");
	pb_put_message(&bytes, 3, &within);
	pb_put_varint(&within, 1, 1);
	pb_put_message(&bytes, 3, &within);
	pb_put_entry(&bytes, 4, "k", "v");
	ASSERT_BYTES(&bytes, "\x08\x96\x01"
			     "\x80\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
			     "\x12\x07testing"
			     "\x1a\x00"
			     "\x1a\x02\x08\x01"
			     "\x22\x06\x0a\x01k\x12\x01v");
	bytes_free(&within);
}

UNIT_TEST(test_reads)
{
	struct pb_message message = MESSAGE("\x08\x96\x01\x12\x03"
					    "abc\x1d"
					    "1234\x21"
					    "12345678\xf8\xff\xff\xff\x0f\x00");
	struct pb_field field;
	char text[4];

	assert_int_equal(pb_next(&message, &field), 1);
	assert_true(pb_is(&field, 1, PB_VARINT));
	assert_int_equal(field.varint, 150);
	assert_int_equal(pb_next(&message, &field), 1);
	assert_true(pb_is(&field, 2, PB_BYTES));
	assert_false(pb_string(&field, text, 3));
	assert_true(pb_string(&field, text, sizeof(text)));
	assert_string_equal(text, "abc");
	assert_int_equal(pb_next(&message, &field), 1);
	assert_true(pb_is(&field, 3, PB_FIXED32));
	assert_int_equal(pb_next(&message, &field), 1);
	assert_true(pb_is(&field, 4, PB_FIXED64));
	assert_int_equal(pb_next(&message, &field), 1);
	assert_true(pb_is(&field, (1u << 29) - 1, PB_VARINT));
	assert_int_equal(pb_next(&message, &field), 0);
}

static void refuse(struct pb_message message)
{
	struct pb_field field = {.number = 7};

	assert_int_equal(pb_next(&message, &field), -EBADMSG);
	assert_int_equal(field.number, 7);
}

UNIT_TEST(test_refuses)
{
	refuse(MESSAGE("\x80"));                                         /* a key without an end */
	refuse(MESSAGE("\x00\x01"));                                     /* field 0 */
	refuse(MESSAGE("\x80\x80\x80\x80\x10\x01"));                     /* field 2^29 */
	refuse(MESSAGE("\x08"));                                         /* no value */
	refuse(MESSAGE("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")); /* 65 bits */
	refuse(MESSAGE("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"));
	refuse(MESSAGE("\x12\x04"
		       "abc")); /* longer than the message */
	refuse(MESSAGE("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
		       "abc"));
	refuse(MESSAGE("\x1d"
		       "123"));
	refuse(MESSAGE("\x21"
		       "1234567"));
	refuse(MESSAGE("\x0b\x0c")); /* a group */
	refuse(MESSAGE("\x0e\x00"));
	refuse(MESSAGE("\x0f\x00"));
}

UNIT_TEST(test_strings_with_nul_are_refused)
{
	struct pb_message message = MESSAGE("\x0a\x03"
					    "a\0b");
	struct pb_field field;
	char text[8];

	assert_int_equal(pb_next(&message, &field), 1);
	assert_false(pb_string(&field, text, sizeof(text)));
}
