/*
 * The records of containers, STATE/NAME/record (containers.h). The first line has a number, and
 * the time and the boot ID when the record was made. The second line has a resource, and each
 * further line the ID of a device.
 *
 * The time of day may be set, so a record does not rely on it. It has a number above those of
 * all records that existed when it was made, and the time since the machine's start. Between
 * two starts, any span of time counts as over; an unknown boot ID is not taken for another
 * start.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boot.h"

#define RECORDS_NAME_LEN 33 /* length of a container's name: 32 digits and a NUL */

struct record {
	char name[RECORDS_NAME_LEN];
	uint64_t number;
	uint64_t made_s;     /* seconds from the machine's start */
	char boot[BOOT_LEN]; /* the boot ID; "": not known */
	char *text;          /* the file's text; the record owns it */
	char *ids;           /* in text, after the resource: a newline, and the IDs, a line each */
};

struct records {
	unsigned count;
	struct record *record;
};

/* Reads the records below the directory. A record that cannot be read is left out, unless the
 * machine lacks descriptors or memory. Returns 0 or a negative errno. The caller frees
 * *ret_records. */
int records_read(const char *state, struct records *ret_records);
void records_free(struct records *records);

/* Whether the name has the form of a container's directory. */
bool records_is_name(const char *name);

/* Writes a record to the directory, with that number and the present time. ids ends with NULL.
 * Returns 0 or a negative errno. */
int records_write(const char *dir, uint64_t number, const char *resource, const char *const *ids);

/* A number above those of all records, 1 or more. */
uint64_t records_next_number(const struct records *records);

/* The newest record that has the device with that ID; NULL: there is none. */
const struct record *records_newest(const struct records *records, const char *id, size_t len);

/* Calls found for each ID of the record until one call returns true. Returns whether one
 * did. */
bool records_any_id(const struct record *record,
		    bool (*found)(const void *arg, const char *id, size_t len), const void *arg);
/* Whether the record has the device with that ID. */
bool records_has_id(const struct record *record, const char *id, size_t len);

/* Whether the record was made span_s seconds ago or earlier. */
bool records_is_old(const struct record *record, unsigned span_s);
/* Whether the other record was made span_s seconds or more after the record. */
bool records_is_later(const struct record *other, const struct record *record, unsigned span_s);
