/*
 * The records of containers, STATE/NAME/record (containers.h). The first line has a number, the
 * time and the start of the machine when it was made; the second a resource; and each further line
 * the ID of a device.
 *
 * The time of day may be set. So a record has a number, which is higher than those of all records
 * that were there when it was made, and the time since the machine's start. Between two starts,
 * any span of time is over.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boot.h"

#define RECORDS_NAME_LEN 33 /* of a container: 32 digits and a NUL */

struct record {
	char name[RECORDS_NAME_LEN];
	uint64_t number;
	uint64_t made_s;     /* since the start of the machine */
	char boot[BOOT_LEN]; /* the kernel's ID of the start; "": not known */
	char *text;          /* of the file */
	char *ids;           /* after its resource: a newline, and its IDs, a line each */
};

struct records {
	unsigned count;
	struct record *record;
};

/* Reads those below the directory; a record that cannot be read is left out. 0 or a negative errno.
 */
int records_read(const char *state, struct records *ret_records);
void records_free(struct records *records);

/* Whether a directory of that name can be a container's. */
bool records_is_name(const char *name);

/* Writes one of now to the directory, with that number. ids ends with NULL. 0 or a negative errno.
 */
int records_write(const char *dir, uint64_t number, const char *resource, const char *const *ids);

/* A number above those of all. */
uint64_t records_next_number(const struct records *records);

/* The newest record with that ID; NULL: there is none. */
const struct record *records_newest(const struct records *records, const char *id, size_t len);

/* Calls found for each ID of the record, until it returns true: whether it did. */
bool records_any_id(const struct record *record,
		    bool (*found)(const void *arg, const char *id, size_t len), const void *arg);
bool records_has_id(const struct record *record, const char *id, size_t len);

/* Whether the record was made that long ago, or more. */
bool records_is_old(const struct record *record, unsigned span_s);
/* Whether the other one was made that long after the record, or more. */
bool records_is_later(const struct record *other, const struct record *record, unsigned span_s);
