/* JSON, by json-c (cli/json.c says why). Where it is missing, no_spec.c stands in for this file. */
#include "spec.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>

static struct json_object *make_options(const struct container_mount *mount)
{
	struct json_object *options = json_object_new_array();

	json_object_array_add(options, json_object_new_string(mount->writable ? "rw" : "ro"));
	json_object_array_add(options, json_object_new_string("nosuid"));
	json_object_array_add(options, json_object_new_string("nodev"));
	if (!mount->holds_code)
		json_object_array_add(options, json_object_new_string("noexec"));
	json_object_array_add(options, json_object_new_string("bind"));
	return options;
}

static struct json_object *make_mount(const struct container_mount *from)
{
	struct json_object *mount = json_object_new_object();

	json_object_object_add(mount, "hostPath", json_object_new_string(from->host));
	json_object_object_add(mount, "containerPath", json_object_new_string(from->container));
	json_object_object_add(mount, "options", make_options(from));
	return mount;
}

/* {"env": [...], "mounts": [...]} */
static struct json_object *make_edits(const struct container_places *places,
				      const struct container_slice *slice)
{
	struct container_mount mount[CONTAINER_MOUNTS_MAX];
	unsigned count = container_mounts(places, slice, mount);
	struct json_object *edits = json_object_new_object(), *mounts = json_object_new_array();

	for (unsigned i = 0; i < count; i++)
		json_object_array_add(mounts, make_mount(&mount[i]));
	if (slice->environment) {
		struct json_object *env = json_object_new_array();

		json_object_array_add(env, json_object_new_string(slice->environment));
		json_object_object_add(edits, "env", env);
	}
	json_object_object_add(edits, "mounts", mounts);
	return edits;
}

static struct json_object *make_spec(const struct container_places *places,
				     const struct container_slice *slice)
{
	struct json_object *spec = json_object_new_object(), *device = json_object_new_object();
	struct json_object *devices = json_object_new_array();

	json_object_object_add(device, "name", json_object_new_string(slice->name));
	json_object_object_add(device, "containerEdits", make_edits(places, slice));
	json_object_array_add(devices, device);
	json_object_object_add(spec, "cdiVersion", json_object_new_string("0.5.0"));
	json_object_object_add(spec, "kind", json_object_new_string(CONTAINER_SPEC_KIND));
	json_object_object_add(spec, "devices", devices);
	return spec;
}

int container_spec_text(const struct container_places *places, const struct container_slice *slice,
			char **ret_text, struct fault *fault)
{
	struct json_object *spec = make_spec(places, slice);
	const char *text = json_object_to_json_string_ext(
		spec, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
	char *copy = NULL;

	if (text && asprintf(&copy, "%s\n", text) < 0)
		copy = NULL;
	json_object_put(spec);
	if (!copy)
		return fault_set(fault, -ENOMEM, "there is no memory for a specification");
	*ret_text = copy;
	return 0;
}
