/*
 * What vgpu inspect found, as JSON. vgpu-inspect(1) promises the names: members are added, never
 * renamed.
 *
 * By json-c, because it has all of uint64_t (a damaged file may hold any figure; jansson's integers
 * are signed, and cJSON's numbers are doubles), and because each Debian and Ubuntu has it, with
 * nothing of its own to depend on. Where it was missing, vgpu is built without.
 */
#include "cli.h"
#include "inspect.h"

#ifdef VGPU_JSON

#include <iconv.h>
#include <json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct json_object *to, const char *name, struct json_object *value)
{
	json_object_object_add(to, name, value);
}

static void add_number(struct json_object *to, const char *name, uint64_t value)
{
	add(to, name, json_object_new_uint64(value));
}

/* null where 0 means that there is none. */
static void add_number_or_null(struct json_object *to, const char *name, uint64_t value)
{
	add(to, name, value ? json_object_new_uint64(value) : NULL);
}

static bool is_utf8(const char *text)
{
	char *from = (char *)text, buf[256], *to;
	size_t left = strlen(text), room, result;
	iconv_t check = iconv_open("UTF-8", "UTF-8");

	if (check == (iconv_t)-1)
		return false;
	do {
		to = buf;
		room = sizeof(buf);
		result = iconv(check, &from, &left, &to, &room);
	} while (result == (size_t)-1 && to > buf); /* buf was full, or the next round says */
	iconv_close(check);
	return result != (size_t)-1;
}

/* A document is UTF-8, and a path is any bytes: "?" for each that is not ASCII in one that is not
 * UTF-8. */
static struct json_object *path_value(const char *path)
{
	struct json_object *value;
	char *ascii;

	if (is_utf8(path))
		return json_object_new_string(path);
	ascii = strdup(path);
	if (!ascii)
		return NULL;
	for (char *at = ascii; *at; at++)
		if ((unsigned char)*at >= 0x80)
			*at = '?';
	value = json_object_new_string(ascii);
	free(ascii);
	return value;
}

static struct json_object *lock_value(const struct inspection *found)
{
	struct json_object *lock = json_object_new_object();

	add(lock, "slot", found->lock_slot < 0 ? NULL : json_object_new_int(found->lock_slot));
	add_number(lock, "takeovers", found->takeovers);
	return lock;
}

static struct json_object *devices_value(const struct inspection *found)
{
	struct json_object *devices = json_object_new_array();

	for (unsigned i = 0; i < found->device_count; i++) {
		struct json_object *device = json_object_new_object();

		add_number(device, "device", i);
		add(device, "uuid", json_object_new_string(found->device[i].uuid));
		add_number(device, "memory_used_bytes", found->device[i].used_bytes);
		add_number_or_null(device, "memory_limit_bytes", found->device[i].limit_bytes);
		add_number_or_null(device, "cores_limit_pct", found->device[i].cores_pct);
		json_object_array_add(devices, device);
	}
	return devices;
}

static struct json_object *held_value(const struct inspection *found,
				      const struct inspect_process *process)
{
	struct json_object *all = json_object_new_array();

	for (unsigned i = 0; i < found->device_count; i++) {
		struct json_object *held = json_object_new_object();

		add_number(held, "device", i);
		add_number(held, "context_bytes", process->held[i].context);
		add_number(held, "module_bytes", process->held[i].module);
		add_number(held, "data_bytes", process->held[i].data);
		add_number(held, "offset_bytes", process->held[i].offset);
		add_number(held, "total_bytes", process->held[i].total);
		json_object_array_add(all, held);
	}
	return all;
}

static struct json_object *processes_value(const struct inspection *found)
{
	struct json_object *processes = json_object_new_array();

	for (unsigned i = 0; i < found->process_count; i++) {
		const struct inspect_process *from = &found->process[i];
		struct json_object *process = json_object_new_object();

		add_number(process, "slot", from->slot);
		add(process, "pid", json_object_new_int(from->pid));
		add(process, "host_pid", from->hostpid ? json_object_new_int(from->hostpid) : NULL);
		add(process, "state", json_object_new_string(from->state));
		add(process, "held", held_value(found, from));
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

	snprintf(hami, sizeof(hami), "%u.%u", found->hami_major, found->hami_minor);
	add(all, "path", path_value(found->path));
	add_number(all, "version", found->version);
	add(all, "hami_version", json_object_new_string(hami));
	add(all, "lock", lock_value(found));
	add(all, "devices", devices_value(found));
	add(all, "processes", processes_value(found));
	add(all, "whole", json_object_new_boolean(found->wrong_count == 0));
	add(all, "wrong", wrong_value(found));
	puts(json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
							 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(all);
	return 0;
}

#else

int inspect_print_json(const struct inspection *found)
{
	(void)found;
	return cli_fail(CLI_FAILED, "this vgpu was built without --json: install json-c "
				    "(libjson-c-dev) and pkg-config, and build it again");
}

#endif
