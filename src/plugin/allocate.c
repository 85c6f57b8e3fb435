/*
 * The method Allocate makes a directory for each container (containers.h). It answers with the
 * mounts and variables that the runtime must set. The policy has a file for each GPU of the
 * container's slices. Several slices of one GPU become one with the sum of their limits. The
 * container's environment has no influence: the library takes its limits from the policy, which
 * the container cannot write.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "containers.h"
#include "library.h"
#include "resource.h"
#include "say.h"
#include "slice.h"

#define LIST_INSIDE    "/etc/ld.so.preload"
#define VOLUMES_INSIDE "/var/run/nvidia-container-devices"
#define VISIBLE        "NVIDIA_VISIBLE_DEVICES"

/* The slices that a container asks for. */
struct request {
	unsigned count;
	char (*id)[DEVICES_ID_LEN];
	unsigned slices[VGPU_DEVICES_MAX]; /* per GPU */
};

/* -- reading ----------------------------------------------------------------------------------- */

static bool has_id(const struct request *request, const char *id)
{
	for (unsigned i = 0; i < request->count; i++)
		if (strcmp(request->id[i], id) == 0)
			return true;
	return false;
}

static int add_id(const struct resource *resource, const struct pb_field *field,
		  struct request *request, struct fault *fault)
{
	char(*more)[DEVICES_ID_LEN] =
		realloc(request->id, (request->count + 1) * sizeof(*request->id));
	char *id;
	unsigned gpu, replica;

	if (!more)
		return fault_set(fault, -ENOMEM, "there is no memory for a container");
	request->id = more;
	id = more[request->count];
	if (!pb_string(field, id, DEVICES_ID_LEN) ||
	    !devices_parse(&resource->devices, id, &gpu, &replica))
		return fault_set(fault, -EINVAL, "there is no such device of %s",
				 resource->devices.slice->resource);
	if (has_id(request, id))
		return fault_set(fault, -EINVAL, "the request has the device %s twice", id);
	request->count++;
	request->slices[gpu]++;
	return 0;
}

static int read_request(const struct resource *resource, struct pb_message message,
			struct request *request, struct fault *fault)
{
	const struct config_slice *slice = resource->devices.slice;
	struct pb_field field;
	int more, error = 0;

	while (!error && (more = pb_next(&message, &field)) != 0) {
		if (more < 0)
			error = fault_set(fault, -EBADMSG, "the request is no AllocateRequest");
		else if (pb_is(&field, 1, PB_BYTES))
			error = add_id(resource, &field, request, fault);
	}
	if (!error && request->count == 0)
		error = fault_set(fault, -EINVAL, "the request has no device");
	if (!error && slice->single && request->count > 1)
		error = fault_set(fault, -EINVAL,
				  "a container gets one %s at most: ask for 1, or for a resource "
				  "with larger slices",
				  slice->resource);
	return error;
}

/* -- the policy -------------------------------------------------------------------------------- */

static unsigned times_pct(unsigned pct, unsigned count)
{
	return pct == 0 || count * pct < 100 ? count * pct : 100;
}

static void make_policy(const struct resource *resource, const struct request *request,
			struct policy *policy)
{
	const struct config_slice *slice = resource->devices.slice;
	const struct gpus *gpus = resource->devices.gpus;

	memset(policy, 0, sizeof(*policy));
	snprintf(policy->region_path, sizeof(policy->region_path), "%s",
		 CONTAINERS_REGION_DIR "/region");
	snprintf(policy->name, sizeof(policy->name), "%s", slice->name);
	for (unsigned i = 0; i < gpus->count; i++) {
		struct policy_device *device = &policy->device[policy->device_count];

		if (!request->slices[i])
			continue;
		memcpy(device->uuid, gpus->gpu[i].uuid, sizeof(device->uuid));
		device->memory_bytes = slice->memory_bytes * request->slices[i];
		device->cores_pct = times_pct(slice->cores_pct, request->slices[i]);
		device->cores_most_pct = times_pct(slice->cores_most_pct, request->slices[i]);
		if (device->cores_most_pct <= device->cores_pct)
			device->cores_most_pct = 0;
		device->burst_ns = slice->burst_ns;
		policy->device_count++;
	}
}

/* -- the answer -------------------------------------------------------------------------------- */

/* Numbers of ContainerAllocateResponse's fields. */
enum { ENVS = 1, MOUNTS = 2, DEVICES = 3, ANNOTATIONS = 4, CDI_DEVICES = 5 };

static void put_mount(struct bytes *answer, const char *inside, const char *host, bool read_only)
{
	struct bytes mount = {0};

	pb_put_string(&mount, 1, inside);
	pb_put_string(&mount, 2, host);
	pb_put_varint(&mount, 3, read_only);
	pb_put_message(answer, MOUNTS, &mount);
	bytes_free(&mount);
}

static void put_mount_below(struct bytes *answer, const char *dir, const char *name,
			    const char *part, const char *inside, bool read_only)
{
	char path[CONTAINERS_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s%s", dir, name, part);
	put_mount(answer, inside, path, read_only);
}

static void put_mounts(struct bytes *answer, const struct resource *resource, const char *name)
{
	const struct containers_places *places = resource->places;

	put_mount_below(answer, places->state, LIBRARY_NAME, "", RESOURCE_LIBRARY, true);
	put_mount_below(answer, places->state, CONTAINERS_PRELOAD, "", LIST_INSIDE, true);
	put_mount_below(answer, places->state, name, "/" CONTAINERS_POLICY, SLICE_POLICY_DIR, true);
	put_mount_below(answer, places->regions, name, "", CONTAINERS_REGION_DIR, false);
	/* vgpud's socket may exist or appear later. A runtime makes a directory that is
	 * missing. */
	put_mount(answer, SLICE_SOCKET_DIR, SLICE_SOCKET_DIR, true);
	if (*resource->config->turns)
		put_mount(answer, SLICE_TURNS_MOUNT, resource->config->turns, false);
}

static void put_node(struct bytes *answer, const char *path)
{
	struct bytes device = {0};

	if (access(path, F_OK) != 0)
		return;
	pb_put_string(&device, 1, path);
	pb_put_string(&device, 2, path);
	pb_put_string(&device, 3, "rw");
	pb_put_message(answer, DEVICES, &device);
	bytes_free(&device);
}

static void put_nodes(struct bytes *answer, const struct resource *resource,
		      const struct request *request)
{
	static const char *const common[] = {"/dev/nvidiactl", "/dev/nvidia-uvm",
					     "/dev/nvidia-uvm-tools"};
	const struct gpus *gpus = resource->devices.gpus;
	char path[64];

	for (unsigned i = 0; i < sizeof(common) / sizeof(common[0]); i++)
		put_node(answer, common[i]);
	for (unsigned i = 0; i < gpus->count; i++)
		if (request->slices[i] && gpus->gpu[i].minor >= 0) {
			snprintf(path, sizeof(path), "/dev/nvidia%d", gpus->gpu[i].minor);
			put_node(answer, path);
		}
}

/* Writes the UUIDs of the container's GPUs, each after the prefix, with commas between them and
 * a NUL. */
static void join_uuids(const struct resource *resource, const struct request *request,
		       const char *prefix, struct bytes *ret_text)
{
	const struct gpus *gpus = resource->devices.gpus;

	for (unsigned i = 0; i < gpus->count; i++) {
		if (!request->slices[i])
			continue;
		if (ret_text->len)
			bytes_add(ret_text, ",", 1);
		bytes_add(ret_text, prefix, strlen(prefix));
		bytes_add(ret_text, gpus->gpu[i].uuid, strlen(gpus->gpu[i].uuid));
	}
	bytes_add(ret_text, "", 1);
}

static void put_volumes(struct bytes *answer, const struct resource *resource,
			const struct request *request)
{
	const struct gpus *gpus = resource->devices.gpus;
	char path[sizeof(VOLUMES_INSIDE) + VGPU_UUID_LEN];

	for (unsigned i = 0; i < gpus->count; i++)
		if (request->slices[i]) {
			snprintf(path, sizeof(path), VOLUMES_INSIDE "/%.*s", VGPU_UUID_LEN - 1,
				 gpus->gpu[i].uuid);
			put_mount(answer, path, "/dev/null", false);
		}
	pb_put_entry(answer, ENVS, VISIBLE, VOLUMES_INSIDE);
}

static void put_cdi_names(struct bytes *answer, const struct resource *resource,
			  const struct request *request)
{
	const struct gpus *gpus = resource->devices.gpus;
	char name[sizeof(resource->config->cdi_kind) + VGPU_UUID_LEN + 1];

	for (unsigned i = 0; i < gpus->count; i++) {
		struct bytes device = {0};

		if (!request->slices[i])
			continue;
		snprintf(name, sizeof(name), "%s=%.*s", resource->config->cdi_kind,
			 VGPU_UUID_LEN - 1, gpus->gpu[i].uuid);
		pb_put_string(&device, 1, name);
		pb_put_message(answer, CDI_DEVICES, &device);
		bytes_free(&device);
	}
}

static void put_lists(struct bytes *answer, const struct resource *resource,
		      const struct request *request, const char *name)
{
	const struct config *config = resource->config;
	struct bytes uuids = {0}, cdi = {0};
	char prefix[sizeof(config->cdi_kind) + 1], key[64 + CONTAINERS_NAME_LEN];

	join_uuids(resource, request, "", &uuids);
	snprintf(prefix, sizeof(prefix), "%s=", config->cdi_kind);
	join_uuids(resource, request, prefix, &cdi);
	answer->failed |= uuids.failed || cdi.failed;
	if (config->lists.volume_mounts)
		put_volumes(answer, resource, request);
	else if (config->lists.envvar && !uuids.failed)
		pb_put_entry(answer, ENVS, VISIBLE, (const char *)uuids.data);
	if (config->lists.cdi_cri)
		put_cdi_names(answer, resource, request);
	snprintf(key, sizeof(key), "cdi.k8s.io/vgpu_%s", name);
	if (config->lists.cdi_annotations && !cdi.failed)
		pb_put_entry(answer, ANNOTATIONS, key, (const char *)cdi.data);
	bytes_free(&uuids);
	bytes_free(&cdi);
}

/* -- a container ------------------------------------------------------------------------------- */

static int make_directories_for(const struct resource *resource, const struct request *request,
				char ret_name[CONTAINERS_NAME_LEN], struct fault *fault)
{
	const char **ids = calloc(request->count + 1, sizeof(*ids));
	struct policy *policy = malloc(sizeof(*policy));
	int error;

	if (!ids || !policy) {
		free(ids);
		free(policy);
		return fault_set(fault, -ENOMEM, "there is no memory for a container");
	}
	for (unsigned i = 0; i < request->count; i++)
		ids[i] = request->id[i];
	make_policy(resource, request, policy);
	error = containers_make(resource->places, resource->devices.slice->resource, ids, policy,
				ret_name, fault);
	free(ids);
	free(policy);
	return error;
}

static int allocate(const struct resource *resource, struct pb_message message,
		    struct bytes *ret_message, struct fault *fault)
{
	struct request request = {0};
	struct bytes answer = {0};
	char name[CONTAINERS_NAME_LEN];
	int error = read_request(resource, message, &request, fault);

	if (!error)
		error = make_directories_for(resource, &request, name, fault);
	if (!error) {
		put_lists(&answer, resource, &request, name);
		put_mounts(&answer, resource, name);
		if (resource->config->device_specs)
			put_nodes(&answer, resource, &request);
		pb_put_message(ret_message, 1, &answer);
		say(LOG_INFO, "gives %u of %s as %s", request.count,
		    resource->devices.slice->resource, name);
	}
	bytes_free(&answer);
	free(request.id);
	return error;
}

enum grpc_status resource_allocate(void *arg, struct pb_message request, struct bytes *ret_message,
				   struct fault *fault)
{
	struct pb_field field;
	int more, error = 0;

	while (!error && (more = pb_next(&request, &field)) != 0) {
		if (more < 0)
			error = fault_set(fault, -EBADMSG, "the request is no AllocateRequest");
		else if (pb_is(&field, 1, PB_BYTES))
			error = allocate(arg, field.within, ret_message, fault);
	}
	if (!error)
		return GRPC_OK;
	say(LOG_ERR, "refuses a container: %s", fault->text);
	return error == -EINVAL || error == -EBADMSG ? GRPC_INVALID_ARGUMENT : GRPC_INTERNAL;
}
