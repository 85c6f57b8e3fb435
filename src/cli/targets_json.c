/* Prints the results of actions on slices as JSON. The commands' manual pages document the
 * names. Members may be added, but are never renamed. */
#include "json.h"
#include "targets.h"

struct target_document {
	struct json_object *slices;
};

int target_document_open(struct target_document **ret_document)
{
	static struct target_document document;

	document.slices = json_object_new_array();
	*ret_document = &document;
	return 0;
}

static struct json_object *gpus_value(const struct target *target)
{
	struct json_object *gpus = json_object_new_array();

	for (unsigned i = 0; i < target->gpu_count; i++) {
		const struct target_gpu *from = &target->gpu[i];
		struct json_object *gpu = json_object_new_object();

		json_add_number(gpu, "index", from->index);
		json_add(gpu, "uuid", json_text(from->uuid));
		json_add_number(gpu, "memory_used_bytes", from->memory_used_bytes);
		json_add_number_or_null(gpu, "memory_limit_bytes", from->memory_limit_bytes);
		json_add_cores(gpu, from->cores_pct, from->cores_most_pct);
		json_add_burst(gpu, from->burst_ns);
		json_object_array_add(gpus, gpu);
	}
	return gpus;
}

void target_document_add(struct target_document *document, const struct target *target)
{
	const struct slices_one *one = target->slice;
	const char *error = target->fault.text[0] ? target->fault.text : NULL;
	struct json_object *slice = json_object_new_object();
	char user[64];

	json_add(slice, "name", json_text(target->name));
	json_add(slice, "kind", one ? json_text(slices_kind_name(one->kind)) : NULL);
	json_add(slice, "region", one ? json_text(one->region_path) : NULL);
	json_add(slice, "owner_uid", one ? json_object_new_uint64(one->owner) : NULL);
	json_add(slice, "user", one ? json_text(slices_user(one, user, sizeof(user))) : NULL);
	json_add(slice, "done", json_object_new_boolean(!error));
	json_add(slice, "error", error ? json_text(error) : NULL);
	json_add(slice, "changed", json_object_new_boolean(target->changed));
	json_add_number(slice, "processes", target->processes);
	if (target->gpu_count > 0) {
		json_add(slice, "gpus", gpus_value(target));
		json_add(slice, "gang_policy", target->gang ? json_text(target->gang) : NULL);
	}
	json_object_array_add(document->slices, slice);
}

int target_document_print(struct target_document *document)
{
	struct json_object *all = json_object_new_object();

	json_add(all, "slices", document->slices);
	return json_print(all);
}
