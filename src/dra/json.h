/* JSON, by json-c: the texts of the API server. */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

/* The value that is the whole text, to be put; NULL where it is no JSON. */
struct json_object *json_read(const char *text, size_t len);

/* The value at a path of names with dots between them; NULL where there is none. */
struct json_object *json_at(struct json_object *object, const char *path);
/* The object as a string, which stays the object's; NULL where it is none, or has a NUL within. */
const char *json_text(struct json_object *object);
/* The same of the value at a path. */
const char *json_text_at(struct json_object *object, const char *path);

/* Whether all of part is in whole: each of an object's members, and each of an array's elements in
 * its place. Objects of whole may have more members. */
bool json_contains(struct json_object *whole, struct json_object *part);

/* The object as a text, to be freed. The object is put. NULL without memory. */
char *json_write(struct json_object *object);
