/*
 * JSON, by json-c. A damaged region may hold any figure, and json-c has all of uint64_t: jansson's
 * integers are signed, and cJSON's numbers are doubles. Each Debian and Ubuntu has json-c, which
 * depends on no other library. Where it is missing, no_json.c stands in for this file and those
 * that use it.
 */
#include "json.h"

#include <iconv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "policy.h"
#include "slice.h"

void json_add(struct json_object *to, const char *name, struct json_object *value)
{
	json_object_object_add(to, name, value);
}

void json_add_number(struct json_object *to, const char *name, uint64_t value)
{
	json_add(to, name, json_object_new_uint64(value));
}

void json_add_number_or_null(struct json_object *to, const char *name, uint64_t value)
{
	json_add(to, name, value ? json_object_new_uint64(value) : NULL);
}

static bool is_utf8(const char *text)
{
	char *from = (char *)text, buf[256], *to;
	size_t left = strlen(text), room, result;
	iconv_t check = iconv_open("UTF-8", "UTF-8");

	if (check == (iconv_t)-1)
		return false;
	do {
		to = buf;
		room = sizeof(buf);
		result = iconv(check, &from, &left, &to, &room);
	} while (result == (size_t)-1 && to > buf); /* buf was full, or the next round says */
	iconv_close(check);
	return result != (size_t)-1;
}

/* A document is UTF-8. */
struct json_object *json_text(const char *text)
{
	struct json_object *value;
	char *ascii;

	if (is_utf8(text))
		return json_object_new_string(text);
	ascii = strdup(text);
	if (!ascii)
		return NULL;
	for (char *at = ascii; *at; at++)
		if ((unsigned char)*at >= 0x80)
			*at = '?';
	value = json_object_new_string(ascii);
	free(ascii);
	return value;
}

void json_add_cores(struct json_object *device, unsigned pct, unsigned most_pct)
{
	json_add_number_or_null(device, "cores_limit_pct", slice_cores_most(pct, most_pct));
	json_add_number_or_null(device, "cores_assured_pct", pct);
}

void json_add_burst(struct json_object *device, uint64_t burst_ns)
{
	json_add(device, "burst_ns",
		 burst_ns ? json_object_new_uint64(burst_ns == POLICY_NO_BURST ? 0 : burst_ns)
			  : NULL);
}

void json_add_counts(struct json_object *device, const struct sight_device *from)
{
	json_add_number(device, "nr_throttled", from->throttled);
	json_add_number(device, "throttled_ns", from->throttled_ns);
	json_add_number(device, "launches_held", from->held);
	json_add_number(device, "charged_ns", from->charged_ns);
	json_add(device, "corrected_ns", json_object_new_int64(from->corrected_ns));
	json_add_number(device, "turns", from->turns.turns);
	json_add_number(device, "turn_ns", from->turn_ns);
	json_add_number(device, "turn_waited_ns", from->turns.waited_ns);
	json_add_number(device, "gang_members", from->gang_members);
	json_add_number(device, "allocations_refused", from->refused);
}

struct json_object *json_gang(const struct sight_gang *gang)
{
	struct json_object *value = json_object_new_object();

	json_add_number(value, "members", gang->members);
	json_add_number(value, "used_ns", gang->used_ns);
	json_add(value, "shut", json_object_new_boolean(gang->shut));
	json_add_number(value, "joint_processes", gang->joint_processes);
	json_add_number(value, "joint_used_ns", gang->joint_used_ns);
	return value;
}

/* DEL and the C1 control characters, which json-c prints as they are and a terminal may obey, stand
 * in strings alone. There \u00NN means the same. */
static void print_document(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	for (; *at; at++)
		if (*at == 0x7f)
			fputs("\\u007f", stdout);
		else if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f)
			printf("\\u00%02x", *++at);
		else
			putchar(*at);
	putchar('\n');
}

static int print(struct json_object *document, int flags)
{
	print_document(
		json_object_to_json_string_ext(document, flags | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(document);
	return cli_written(0);
}

int json_print(struct json_object *document)
{
	return print(document, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED);
}

int json_print_line(struct json_object *document)
{
	return print(document, JSON_C_TO_STRING_PLAIN);
}
