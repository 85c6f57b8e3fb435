/* Functions for --json that several commands use, over json-c. A value for which there is no
 * memory becomes null. */
#pragma once

#include <json-c/json.h>
#include <stdint.h>

#include "sight.h"

/* Adds a member to the object, which takes over the value. value may be NULL: null. */
void json_add(struct json_object *to, const char *name, struct json_object *value);
void json_add_number(struct json_object *to, const char *name, uint64_t value);
/* Adds a member for a value of which 0 means "none": 0 becomes null. */
void json_add_number_or_null(struct json_object *to, const char *name, uint64_t value);

/* Makes a string from any bytes, such as a path. If they are not UTF-8, each byte that is not
 * ASCII becomes "?". */
struct json_object *json_text(const char *text);

/* Adds cores_limit_pct and cores_assured_pct, from the figures of a policy. null: no limit. */
void json_add_cores(struct json_object *device, unsigned pct, unsigned most_pct);

/* Adds burst_ns, from the figure of a policy. null: the default. */
void json_add_burst(struct json_object *device, uint64_t burst_ns);

/* Adds the counters of the pacer and of refused allocations to the device's object. */
void json_add_counts(struct json_object *device, const struct sight_device *from);

/* Makes the object of the slice's gang. */
struct json_object *json_gang(const struct sight_gang *gang);

/* Print the document on stdout, and free it; json_print_line prints it on one line. Return 0,
 * or the exit status after a line on stderr. */
int json_print_line(struct json_object *document);
int json_print(struct json_object *document);
