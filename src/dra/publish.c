/*
 * The kubelet deletes the ResourceSlices of a driver that is not registered, and any user with
 * the rights may change them. So the slice is read every LOOK_NS, and written if anything is
 * missing. A change is a new generation of the pool.
 *
 * An API server without the feature gate DRAConsumableCapacity drops fields that it does not
 * know. Such a slice is not written again while it has the resourceVersion of this program's
 * last write.
 */
#include "publish.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "json.h"
#include "node.h"
#include "resource_slice.h"
#include "say.h"

#define LOOK_NS     (30 * NS_PER_S)
#define WAIT_NS     NS_PER_S /* after a failure; twice as long after each further one */
#define WAIT_MAX_NS (60 * NS_PER_S)

/* Sends a request, and parses the answer as JSON if its status is `wanted`. A GET may also
 * return API_NOT_FOUND, without an object. Returns the status, or a negative errno with a
 * fault. */
static int ask(struct publish *publish, const char *method, const char *path, const char *body,
	       int wanted, struct json_object **ret_object, struct fault *fault)
{
	struct bytes answer = {0};
	int status = api_server_ask(publish->server, method, path, body, &answer, fault);

	*ret_object = NULL;
	if (status == wanted) {
		*ret_object = json_read((const char *)answer.data, answer.len);
		if (!*ret_object)
			status = fault_set(fault, -EBADMSG, "the API server's answer is no JSON");
	} else if (status >= 0 && (status != API_NOT_FOUND || body)) {
		status = api_server_refused(method, path, status, &answer, -EIO, fault);
	}
	bytes_free(&answer);
	return status;
}

/* Whether the server kept allowMultipleAllocations, by which several claims may have one
 * GPU. */
static bool is_kept(struct json_object *slice)
{
	struct json_object *devices = json_at(slice, "spec.devices");
	bool kept = true;

	if (json_object_is_type(devices, json_type_array))
		for (size_t i = 0; i < json_object_array_length(devices); i++)
			kept &= json_object_get_boolean(json_at(
				json_object_array_get_idx(devices, i), "allowMultipleAllocations"));
	return kept;
}

static void note_written(struct publish *publish, struct json_object *slice)
{
	const char *version = json_text_at(slice, "metadata.resourceVersion");
	bool lost = !is_kept(slice);

	snprintf(publish->version, sizeof(publish->version), "%s", version ? version : "");
	say(LOG_NOTICE, "has published the node's GPUs, generation %lld",
	    (long long)json_object_get_int64(json_at(slice, "spec.pool.generation")));
	if (lost && !publish->says_lost)
		say(LOG_WARNING, "the cluster has no consumable capacity, so each GPU is given "
				 "whole: enable the feature gate DRAConsumableCapacity in the API "
				 "server, the scheduler and the kubelets");
	publish->says_lost = lost;
}

/* The pool's next generation. The pool has one slice, so any number that differs from the
 * present one is a new generation. */
static int64_t next_generation(struct json_object *there)
{
	int64_t generation = json_object_get_int64(json_at(there, "spec.pool.generation"));

	return generation > 0 && generation < INT64_MAX ? generation + 1 : 1;
}

/* Makes the slice, or replaces the one that is there. */
static int write_slice(struct publish *publish, struct json_object *there,
		       struct json_object *devices, struct fault *fault)
{
	char node_uid[NODE_UID_LEN], path[1024] = RESOURCE_SLICES, name[512], *body;
	const struct resource_slice_owner owner = {publish->driver, publish->node, node_uid};
	struct json_object *written;
	int status = node_find(publish->server, publish->node, node_uid, fault);

	if (status < 0)
		return status;
	body = json_write(resource_slice_make(&owner, json_object_get(devices),
					      next_generation(there),
					      json_text_at(there, "metadata.resourceVersion")));
	if (!body)
		return fault_set(fault, -ENOMEM, "there is no memory for a ResourceSlice");
	resource_slice_name(&owner, name, sizeof(name));
	if (there)
		snprintf(path, sizeof(path), RESOURCE_SLICES "/%s", name);
	status = ask(publish, there ? "PUT" : "POST", path, body, there ? API_OK : API_CREATED,
		     &written, fault);
	free(body);
	if (status < 0)
		return status;
	note_written(publish, written);
	json_object_put(written);
	return 0;
}

static bool is_current(const struct publish *publish, struct json_object *there,
		       struct json_object *devices)
{
	const char *version = json_text_at(there, "metadata.resourceVersion");
	bool own = version && *version && strcmp(version, publish->version) == 0;

	return json_contains(json_at(there, "spec.devices"), devices) ||
	       (own && publish->says_lost);
}

static int look(struct publish *publish, struct fault *fault)
{
	const struct resource_slice_owner owner = {publish->driver, publish->node, ""};
	char path[1024], name[512];
	struct json_object *there, *devices;
	int error;

	resource_slice_name(&owner, name, sizeof(name));
	snprintf(path, sizeof(path), RESOURCE_SLICES "/%s", name);
	error = ask(publish, "GET", path, NULL, API_OK, &there, fault);
	if (error < 0)
		return error;
	devices = resource_slice_devices(publish->gpus);
	error = is_current(publish, there, devices) ? 0
						    : write_slice(publish, there, devices, fault);
	json_object_put(devices);
	json_object_put(there);
	return error;
}

void publish_look(struct publish *publish)
{
	struct fault fault = {""};
	uint64_t now_ns = clock_now_ns();

	if (now_ns < publish->next_ns)
		return;
	if (!look(publish, &fault)) {
		publish->wait_ns = 0;
		publish->next_ns = now_ns + LOOK_NS;
		say_changed(&publish->said, "");
		return;
	}
	publish->wait_ns = publish->wait_ns ? 2 * publish->wait_ns : WAIT_NS;
	if (publish->wait_ns > WAIT_MAX_NS)
		publish->wait_ns = WAIT_MAX_NS;
	publish->next_ns = now_ns + publish->wait_ns;
	if (say_changed(&publish->said, fault.text))
		say(LOG_WARNING, "the node's GPUs are not published yet: %s", fault.text);
}

void publish_soon(struct publish *publish)
{
	publish->next_ns = 0;
}
