/* What the commands' --json have in common, over json-c. Without memory there are nulls. */
#pragma once

#include <json-c/json.h>
#include <stdint.h>

#include "sight.h"

/* A member; value is the object's then. */
void json_add(struct json_object *to, const char *name, struct json_object *value);
void json_add_number(struct json_object *to, const char *name, uint64_t value);
/* null where 0 means that there is none. */
void json_add_number_or_null(struct json_object *to, const char *name, uint64_t value);

/* A string of any bytes, as a path is: "?" for each that is not ASCII, if it is not UTF-8. */
struct json_object *json_text(const char *text);

/* The members cores_limit_pct and cores_assured_pct, of what a policy has: null is no limit. */
void json_add_cores(struct json_object *device, unsigned pct, unsigned most_pct);

/* The member burst_ns, of what a policy has: null is the default. */
void json_add_burst(struct json_object *device, uint64_t burst_ns);

/* How the pacer throttled the device and how much was refused, as members of its object; and the
 * slice's gang. */
void json_add_counts(struct json_object *device, const struct sight_device *from);
struct json_object *json_gang(const struct sight_gang *gang);

/* Prints the document on one line and lets go of it, as json_print does. */
int json_print_line(struct json_object *document);

/* Prints the document and lets go of it: 0, or what to exit with after a line on stderr. */
int json_print(struct json_object *document);
