/* Prints a look at the machine as JSON. vgpu-ps(1) documents the names. Members may be added,
 * but are never renamed. */
#include "ps.h"

#include <time.h>

#include "json.h"

static void add_text(struct json_object *to, const char *name, const char *text)
{
	json_add(to, name, text ? json_text(text) : NULL);
}

/* null below 0. */
static void add_known(struct json_object *to, const char *name, int value)
{
	json_add(to, name, value < 0 ? NULL : json_object_new_int(value));
}

static void add_flag(struct json_object *to, const char *name, bool value)
{
	json_add(to, name, json_object_new_boolean(value));
}

static void add_held(struct json_object *to, const struct sight_held *held)
{
	json_add_number(to, "context_bytes", held->context);
	json_add_number(to, "module_bytes", held->module);
	json_add_number(to, "data_bytes", held->data);
	json_add_number(to, "offset_bytes", held->offset);
}

/* -- GPUs -------------------------------------------------------------------------------------- */

static struct json_object *gpus_value(const struct overview *overview)
{
	const struct usage *usage = &overview->usage;
	struct json_object *gpus = json_object_new_array();

	for (unsigned i = 0; i < usage->gpu_count; i++) {
		const struct usage_gpu *from = &usage->gpu[i];
		struct json_object *gpu = json_object_new_object();

		json_add_number(gpu, "index", from->index);
		add_text(gpu, "uuid", from->uuid);
		add_text(gpu, "name", from->name);
		json_add(gpu, "memory_used_bytes",
			 from->total_bytes ? json_object_new_uint64(from->used_bytes) : NULL);
		json_add_number_or_null(gpu, "memory_total_bytes", from->total_bytes);
		add_known(gpu, "busy_pct", from->busy_pct);
		json_add_number(gpu, "cores_assured_pct",
				overview_assured(overview, from->uuid).sum_pct);
		json_add_number(gpu, "slices_held_bytes",
				overview_held_bytes(overview, from->uuid));
		json_add_number(gpu, "turn_least_ns", from->turn_least_ns);
		json_object_array_add(gpus, gpu);
	}
	return gpus;
}

/* NVML's index of a slice's device. */
static void add_index(struct json_object *to, const struct usage *usage, int gpu)
{
	add_known(to, "index", gpu < 0 ? -1 : (int)usage->gpu[gpu].index);
}

/* -- slices ------------------------------------------------------------------------------------ */

static struct json_object *devices_value(const struct overview *overview,
					 const struct overview_slice *slice)
{
	static const char *const counters[] = {
		[OVERVIEW_NOBODY] = NULL,
		[OVERVIEW_REGION] = "slice",
		[OVERVIEW_NVML] = "nvml",
	};
	struct json_object *devices = json_object_new_array();

	for (unsigned i = 0; i < slice->device_count; i++) {
		const struct overview_device *from = &slice->device[i];
		struct json_object *device = json_object_new_object();

		json_add_number(device, "device", i);
		add_text(device, "uuid", from->seen.uuid);
		add_index(device, &overview->usage, from->gpu);
		json_add_number(device, "memory_used_bytes", from->seen.used_bytes);
		json_add_number_or_null(device, "memory_limit_bytes", from->seen.limit_bytes);
		add_held(device, &from->held);
		add_known(device, "cores_used_pct", from->cores_used_pct);
		add_text(device, "cores_used_by", counters[from->counter]);
		add_known(device, "throttled_pct", from->throttled_pct);
		add_known(device, "turn_waited_pct", from->turn_waited_pct);
		json_add_cores(device, from->seen.cores_pct, from->seen.cores_most_pct);
		json_add_burst(device, from->seen.burst_ns);
		json_add_counts(device, &from->seen);
		json_object_array_add(devices, device);
	}
	return devices;
}

static struct json_object *process_held_value(const struct overview_slice *slice,
					      const struct overview_process *process)
{
	struct json_object *all = json_object_new_array();

	for (unsigned i = 0; i < slice->device_count; i++) {
		struct json_object *held = json_object_new_object();

		json_add_number(held, "device", i);
		add_held(held, &process->seen.held[i]);
		json_add_number(held, "total_bytes", process->seen.held[i].total);
		json_object_array_add(all, held);
	}
	return all;
}

static struct json_object *processes_value(const struct overview_slice *slice)
{
	struct json_object *processes = json_object_new_array();

	for (unsigned i = 0; i < slice->process_count; i++) {
		const struct overview_process *from = &slice->process[i];
		struct json_object *process = json_object_new_object();

		json_add_number(process, "slot", from->seen.slot);
		json_add(process, "pid", json_object_new_int(from->seen.pid));
		json_add(process, "host_pid", from->here ? json_object_new_int(from->here) : NULL);
		add_text(process, "command", *from->command ? from->command : NULL);
		add_text(process, "state", from->seen.state);
		add_flag(process, "held_known", !from->may_be_held);
		json_add(process, "held", process_held_value(slice, from));
		json_object_array_add(processes, process);
	}
	return processes;
}

/* null for a name that is not known, or that the slice's users do not share. */
static void add_name(struct json_object *object, const char *name, const char *text)
{
	add_text(object, name, *text ? text : NULL);
}

static void add_names(struct json_object *object, const struct pod_names *names)
{
	add_name(object, "namespace", names->name_space);
	add_name(object, "pod", names->pod);
	add_name(object, "container", names->container);
}

static void add_shared_names(struct json_object *slice, const struct pod_users *pods)
{
	struct pod_names names = {.pod = ""};

	if (pods)
		pod_shared_names(pods, &names);
	add_names(slice, &names);
}

static struct json_object *pods_value(const struct pod_users *pods)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; pods && i < pods->count; i++) {
		struct json_object *user = json_object_new_object();

		add_names(user, &pods->user[i]);
		json_object_array_add(list, user);
	}
	return list;
}

static struct json_object *slice_value(const struct overview *overview,
				       const struct overview_slice *from)
{
	struct json_object *slice = json_object_new_object();
	char user[64];

	add_text(slice, "name", from->one->name);
	add_text(slice, "kind", slices_kind_name(from->one->kind));
	add_text(slice, "region", from->one->region_path);
	add_text(slice, "policy", from->one->policy_path);
	json_add_number(slice, "owner_uid", from->one->owner);
	add_text(slice, "user", slices_user(from->one, user, sizeof(user)));
	add_text(slice, "state", overview_state_name(from->state));
	add_text(slice, "error", from->why);
	add_flag(slice, "paused", from->paused);
	add_flag(slice, "blocked", from->blocked);
	add_flag(slice, "cores_lifted", from->lifted);
	json_add(slice, "launched_s",
		 from->launched_s ? json_object_new_int64(from->launched_s) : NULL);
	json_add(slice, "devices", devices_value(overview, from));
	json_add(slice, "processes", processes_value(from));
	json_add(slice, "gang", json_gang(&from->gang));
	add_shared_names(slice, from->one->pods);
	json_add(slice, "pods", pods_value(from->one->pods));
	return slice;
}

/* -- all --------------------------------------------------------------------------------------- */

static struct json_object *others_value(const struct overview *overview)
{
	struct json_object *others = json_object_new_array();

	for (unsigned i = 0; i < overview->stranger_count; i++) {
		const struct overview_stranger *from = &overview->stranger[i];
		struct json_object *other = json_object_new_object();

		add_index(other, &overview->usage, (int)from->gpu);
		add_text(other, "uuid", overview->usage.gpu[from->gpu].uuid);
		json_add_number(other, "pid", from->seen.pid);
		add_text(other, "command", *from->command ? from->command : NULL);
		json_add(other, "memory_used_bytes",
			 from->seen.bytes == USAGE_UNKNOWN_BYTES
				 ? NULL
				 : json_object_new_uint64(from->seen.bytes));
		add_known(other, "cores_used_pct", from->seen.busy_pct);
		json_object_array_add(others, other);
	}
	return others;
}

static struct json_object *document_of(const struct overview *overview, bool all)
{
	struct json_object *document = json_object_new_object();
	struct json_object *slices = json_object_new_array();

	json_add(document, "gpus", gpus_value(overview));
	for (unsigned i = 0; i < overview->count; i++)
		json_object_array_add(slices, slice_value(overview, &overview->slice[i]));
	json_add(document, "slices", slices);
	json_add(document, "others", all ? others_value(overview) : NULL);
	return document;
}

int ps_print_json(const struct overview *overview, bool all)
{
	return json_print(document_of(overview, all));
}

int ps_print_json_line(const struct overview *overview, bool all)
{
	struct json_object *document = document_of(overview, all);

	json_add(document, "time_s", json_object_new_int64(time(NULL)));
	return json_print_line(document);
}
