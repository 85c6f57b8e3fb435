#include "json.h"

#include <stdio.h>
#include <string.h>

struct json_object *json_read(const char *text, size_t len)
{
	struct json_tokener *tokener = json_tokener_new();
	struct json_object *object = NULL;
	enum json_tokener_error error;

	if (!tokener)
		return NULL;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	object = json_tokener_parse_ex(tokener, text, len > INT32_MAX ? 0 : (int)len);
	error = json_tokener_get_error(tokener);
	if (error == json_tokener_continue) { /* a number may end with the text */
		object = json_tokener_parse_ex(tokener, "", 1);
		error = json_tokener_get_error(tokener);
	}
	if (error != json_tokener_success) {
		json_object_put(object);
		object = NULL;
	}
	json_tokener_free(tokener);
	return object;
}

struct json_object *json_at(struct json_object *object, const char *path)
{
	char name[64];

	while (object && *path) {
		size_t len = strcspn(path, ".");

		snprintf(name, sizeof(name), "%.*s", (int)len, path);
		if (!json_object_is_type(object, json_type_object) ||
		    !json_object_object_get_ex(object, name, &object))
			return NULL;
		path += len + (path[len] == '.');
	}
	return object;
}

const char *json_text(struct json_object *object)
{
	const char *text = json_object_is_type(object, json_type_string)
				   ? json_object_get_string(object)
				   : NULL;

	return text && strlen(text) == (size_t)json_object_get_string_len(object) ? text : NULL;
}

const char *json_text_at(struct json_object *object, const char *path)
{
	return json_text(json_at(object, path));
}

static bool contains_elements(struct json_object *whole, struct json_object *part)
{
	size_t count = json_object_array_length(part);

	if (json_object_array_length(whole) != count)
		return false;
	for (size_t i = 0; i < count; i++)
		if (!json_contains(json_object_array_get_idx(whole, i),
				   json_object_array_get_idx(part, i)))
			return false;
	return true;
}

bool json_contains(struct json_object *whole, struct json_object *part)
{
	enum json_type type = json_object_get_type(part);

	if (json_object_get_type(whole) != type)
		return false;
	if (type == json_type_array)
		return contains_elements(whole, part);
	if (type != json_type_object)
		return json_object_equal(whole, part);
	json_object_object_foreach(part, name, value)
	{
		struct json_object *other;

		if (!json_object_object_get_ex(whole, name, &other) || !json_contains(other, value))
			return false;
	}
	return true;
}

char *json_write(struct json_object *object)
{
	const char *text = json_object_to_json_string_ext(
		object, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
	char *copy = text ? strdup(text) : NULL;

	json_object_put(object);
	return copy;
}
