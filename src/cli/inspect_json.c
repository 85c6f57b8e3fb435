/* Prints the result of vgpu inspect as JSON. vgpu-inspect(1) documents the names. Members may
 * be added, but are never renamed. */
#include "inspect.h"

#include <stdio.h>

#include "json.h"

static struct json_object *lock_value(const struct inspection *found)
{
	struct json_object *lock = json_object_new_object();

	json_add(lock, "slot",
		 found->sight.lock_slot < 0 ? NULL : json_object_new_int(found->sight.lock_slot));
	json_add_number(lock, "takeovers", found->sight.takeovers);
	return lock;
}

static struct json_object *devices_value(const struct inspection *found)
{
	struct json_object *devices = json_object_new_array();

	for (unsigned i = 0; i < found->sight.device_count; i++) {
		struct json_object *device = json_object_new_object();

		json_add_number(device, "device", i);
		json_add(device, "uuid", json_object_new_string(found->sight.device[i].uuid));
		json_add_number(device, "memory_used_bytes", found->sight.device[i].used_bytes);
		json_add_number_or_null(device, "memory_limit_bytes",
					found->sight.device[i].limit_bytes);
		json_add_cores(device, found->sight.device[i].cores_pct,
			       found->sight.device[i].cores_most_pct);
		json_add_burst(device, found->sight.device[i].burst_ns);
		json_add_counts(device, &found->sight.device[i]);
		json_object_array_add(devices, device);
	}
	return devices;
}

static struct json_object *held_value(const struct inspection *found,
				      const struct sight_process *process)
{
	struct json_object *all = json_object_new_array();

	for (unsigned i = 0; i < found->sight.device_count; i++) {
		struct json_object *held = json_object_new_object();

		json_add_number(held, "device", i);
		json_add_number(held, "context_bytes", process->held[i].context);
		json_add_number(held, "module_bytes", process->held[i].module);
		json_add_number(held, "data_bytes", process->held[i].data);
		json_add_number(held, "offset_bytes", process->held[i].offset);
		json_add_number(held, "total_bytes", process->held[i].total);
		json_object_array_add(all, held);
	}
	return all;
}

static struct json_object *processes_value(const struct inspection *found)
{
	struct json_object *processes = json_object_new_array();

	for (unsigned i = 0; i < found->sight.process_count; i++) {
		const struct sight_process *from = &found->sight.process[i];
		struct json_object *process = json_object_new_object();

		json_add_number(process, "slot", from->slot);
		json_add(process, "pid", json_object_new_int(from->pid));
		json_add(process, "host_pid",
			 from->hostpid ? json_object_new_int(from->hostpid) : NULL);
		json_add(process, "state", json_object_new_string(from->state));
		json_add(process, "held", held_value(found, from));
		json_object_array_add(processes, process);
	}
	return processes;
}

static struct json_object *wrong_value(const struct inspection *found)
{
	struct json_object *wrong = json_object_new_array();

	for (unsigned i = 0; i < found->wrong_count; i++)
		json_object_array_add(wrong, json_object_new_string(found->wrong[i]));
	return wrong;
}

int inspect_print_json(const struct inspection *found)
{
	struct json_object *all = json_object_new_object();
	char hami[24];

	snprintf(hami, sizeof(hami), "%u.%u", found->sight.hami_major, found->sight.hami_minor);
	json_add(all, "path", json_text(found->path));
	json_add_number(all, "version", found->sight.version);
	json_add(all, "hami_version", json_object_new_string(hami));
	json_add(all, "paused", json_object_new_boolean(found->sight.paused));
	json_add(all, "gang_policy", found->gang ? json_object_new_string(found->gang) : NULL);
	json_add(all, "lock", lock_value(found));
	json_add(all, "devices", devices_value(found));
	json_add(all, "processes", processes_value(found));
	json_add(all, "whole", json_object_new_boolean(found->wrong_count == 0));
	json_add(all, "wrong", wrong_value(found));
	json_add(all, "gang", json_gang(&found->sight.gang));
	return json_print(all);
}
