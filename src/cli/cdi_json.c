/* The slices for containers as JSON. vgpu-cdi(1) promises the names: members are added, never
 * renamed. */
#include "cdi.h"

#include <stdio.h>

#include "json.h"

static struct json_object *devices_value(const struct policy *policy)
{
	struct json_object *devices = json_object_new_array();

	for (unsigned i = 0; i < policy->device_count; i++) {
		struct json_object *device = json_object_new_object();

		json_add(device, "uuid", json_object_new_string(policy->device[i].uuid));
		json_add_number_or_null(device, "memory_limit_bytes",
					policy->device[i].memory_bytes);
		json_add_cores(device, policy->device[i].cores_pct,
			       policy->device[i].cores_most_pct);
		json_add_burst(device, policy->device[i].burst_ns);
		json_object_array_add(devices, device);
	}
	return devices;
}

static struct json_object *slice_value(const struct cdi_slice *from)
{
	struct json_object *slice = json_object_new_object();
	char device[sizeof(CONTAINER_SPEC_KIND) + CONTAINER_NAME_MAX + 2];

	snprintf(device, sizeof(device), CONTAINER_SPEC_KIND "=%s", from->name);
	json_add(slice, "name", json_object_new_string(from->name));
	json_add(slice, "device", json_object_new_string(device));
	json_add(slice, "specification", from->has_spec ? json_text(from->spec_path) : NULL);
	json_add(slice, "policy", json_text(from->policy_path));
	json_add(slice, "region", json_text(from->region_path));
	json_add(slice, "error", from->why ? json_text(from->why) : NULL);
	json_add(slice, "gpus", devices_value(&from->policy));
	return slice;
}

int cdi_print_json(const struct cdi_slices *slices)
{
	struct json_object *all = json_object_new_array(), *document = json_object_new_object();

	for (unsigned i = 0; i < slices->count; i++)
		json_object_array_add(all, slice_value(&slices->slice[i]));
	json_add(document, "slices", all);
	return json_print(document);
}
