/* JSON for the texts of the API server, by json-c. */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

/* Parses a whole text. The caller releases the result with json_object_put(); NULL: the text is
 * no JSON, or there is no memory. */
struct json_object *json_read(const char *text, size_t len);

/* The value at a path of names with dots between them, which stays the object's; NULL: there is
 * none. */
struct json_object *json_at(struct json_object *object, const char *path);
/* The text of a string object, which stays the object's; NULL: it is no string, or contains a
 * NUL. */
const char *json_text(struct json_object *object);
/* The text of the string at a path, as json_at() and json_text(). */
const char *json_text_at(struct json_object *object, const char *path);

/* Whether whole contains all of part. Objects of whole may have more members; arrays must have
 * equal lengths, and are compared element by element. */
bool json_contains(struct json_object *whole, struct json_object *part);

/* Writes the object as a text, which the caller frees, and releases the object. NULL without
 * memory. */
char *json_write(struct json_object *object);
