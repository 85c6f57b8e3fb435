/*
 * A request that does not name a capacity consumes all of it. So a pod that asks for memory
 * alone has the GPU's time to itself, and no share is given that the scheduler has not counted.
 */
#include "resource_slice.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "quantity.h"

#define ATTRIBUTE_MAX 64 /* bytes of an attribute's string */

void resource_slice_device_name(const struct gpu *gpu, char ret_name[VGPU_UUID_LEN])
{
	size_t at = 0;

	for (; at < VGPU_UUID_LEN - 1 && gpu->uuid[at]; at++)
		ret_name[at] = (char)tolower((unsigned char)gpu->uuid[at]);
	ret_name[at] = '\0';
}

const struct gpu *resource_slice_find(const struct gpus *gpus, const char *device)
{
	for (unsigned i = 0; i < gpus->count; i++) {
		char name[VGPU_UUID_LEN];

		resource_slice_device_name(&gpus->gpu[i], name);
		if (strcmp(name, device) == 0)
			return &gpus->gpu[i];
	}
	return NULL;
}

void resource_slice_name(const struct resource_slice_owner *owner, char *buf, size_t len)
{
	snprintf(buf, len, "%s-%s", owner->node, owner->driver);
}

/* -- a device ---------------------------------------------------------------------------------- */

static void add_text(struct json_object *object, const char *name, const char *text)
{
	json_object_object_add(object, name, json_object_new_string(text));
}

/* {"value": …, "requestPolicy": {"default": …, "validRange": {"min": …, "step": …}}} */
static struct json_object *make_capacity(const char *value, const char *step)
{
	struct json_object *capacity = json_object_new_object();
	struct json_object *policy = json_object_new_object(), *range = json_object_new_object();

	add_text(range, "min", step);
	add_text(range, "step", step);
	add_text(policy, "default", value);
	json_object_object_add(policy, "validRange", range);
	add_text(capacity, "value", value);
	json_object_object_add(capacity, "requestPolicy", policy);
	return capacity;
}

static void add_attribute(struct json_object *attributes, const char *name, const char *type,
			  struct json_object *value)
{
	struct json_object *attribute = json_object_new_object();

	json_object_object_add(attribute, type, value);
	json_object_object_add(attributes, name, attribute);
}

static struct json_object *make_attributes(const struct gpu *gpu)
{
	struct json_object *attributes = json_object_new_object();

	add_attribute(
		attributes, "uuid", "string",
		json_object_new_string_len(gpu->uuid, (int)strnlen(gpu->uuid, ATTRIBUTE_MAX)));
	if (*gpu->name)
		add_attribute(attributes, "productName", "string",
			      json_object_new_string_len(gpu->name,
							 (int)strnlen(gpu->name, ATTRIBUTE_MAX)));
	if (gpu->numa >= 0)
		add_attribute(attributes, "numaNode", "int", json_object_new_int(gpu->numa));
	return attributes;
}

static struct json_object *make_device(const struct gpu *gpu)
{
	struct json_object *device = json_object_new_object();
	struct json_object *capacity = json_object_new_object();
	char name[VGPU_UUID_LEN], memory[32];

	resource_slice_device_name(gpu, name);
	quantity_format(gpu->total_bytes, memory, sizeof(memory));
	json_object_object_add(capacity, "memory", make_capacity(memory, "1Mi"));
	json_object_object_add(capacity, "cores", make_capacity("100", "1"));
	add_text(device, "name", name);
	json_object_object_add(device, "attributes", make_attributes(gpu));
	json_object_object_add(device, "capacity", capacity);
	json_object_object_add(device, "allowMultipleAllocations", json_object_new_boolean(true));
	return device;
}

struct json_object *resource_slice_devices(const struct gpus *gpus)
{
	struct json_object *devices = json_object_new_array();

	for (unsigned i = 0; i < gpus->count; i++)
		if (gpus->gpu[i].healthy && gpus->gpu[i].total_bytes > 0)
			json_object_array_add(devices, make_device(&gpus->gpu[i]));
	return devices;
}

/* -- the slice --------------------------------------------------------------------------------- */

/* The node owns the slice, so Kubernetes deletes the slice with the node. */
static struct json_object *make_metadata(const struct resource_slice_owner *owner,
					 const char *version)
{
	struct json_object *metadata = json_object_new_object();
	struct json_object *reference = json_object_new_object(), *references;
	char name[512];

	add_text(reference, "apiVersion", "v1");
	add_text(reference, "kind", "Node");
	add_text(reference, "name", owner->node);
	add_text(reference, "uid", owner->node_uid);
	json_object_object_add(reference, "controller", json_object_new_boolean(true));
	references = json_object_new_array();
	json_object_array_add(references, reference);
	resource_slice_name(owner, name, sizeof(name));
	add_text(metadata, "name", name);
	if (version)
		add_text(metadata, "resourceVersion", version);
	json_object_object_add(metadata, "ownerReferences", references);
	return metadata;
}

struct json_object *resource_slice_make(const struct resource_slice_owner *owner,
					struct json_object *devices, int64_t generation,
					const char *version)
{
	struct json_object *slice = json_object_new_object(), *spec = json_object_new_object();
	struct json_object *pool = json_object_new_object();

	add_text(pool, "name", owner->node);
	json_object_object_add(pool, "generation", json_object_new_int64(generation));
	json_object_object_add(pool, "resourceSliceCount", json_object_new_int(1));
	add_text(spec, "driver", owner->driver);
	add_text(spec, "nodeName", owner->node);
	json_object_object_add(spec, "pool", pool);
	json_object_object_add(spec, "devices", devices);
	add_text(slice, "apiVersion", "resource.k8s.io/v1");
	add_text(slice, "kind", "ResourceSlice");
	json_object_object_add(slice, "metadata", make_metadata(owner, version));
	json_object_object_add(slice, "spec", spec);
	return slice;
}
