#include "resource.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prefer.h"
#include "say.h"

/* Fills the fault of a request that could not be read: it is malformed, or memory ran out. */
static enum grpc_status refuse(int error, const char *kind, struct fault *fault)
{
	if (error == -ENOMEM) {
		fault_set(fault, error, "there is no memory to read a %s", kind);
		return GRPC_RESOURCE_EXHAUSTED;
	}
	fault_set(fault, error, "the request is no %s", kind);
	return GRPC_INVALID_ARGUMENT;
}

/* -- options ----------------------------------------------------------------------------------- */

void resource_put_options(struct bytes *bytes)
{
	pb_put_varint(bytes, 1, true); /* pre_start_required */
	pb_put_varint(bytes, 2, true); /* get_preferred_allocation_available */
}

static enum grpc_status get_options(void *arg, struct pb_message request, struct bytes *ret_message,
				    struct fault *fault)
{
	(void)arg, (void)request, (void)fault;
	resource_put_options(ret_message);
	return GRPC_OK;
}

/* -- the list ---------------------------------------------------------------------------------- */

static void put_topology(struct bytes *device, int numa)
{
	struct bytes node = {0}, topology = {0};

	pb_put_varint(&node, 1, (uint64_t)numa);
	pb_put_message(&topology, 1, &node);
	pb_put_message(device, 3, &topology);
	bytes_free(&node);
	bytes_free(&topology);
}

static void put_device(struct bytes *list, const struct devices *devices, unsigned gpu,
		       unsigned replica)
{
	const struct gpu *of = &devices->gpus->gpu[gpu];
	char id[DEVICES_ID_LEN];
	struct bytes device = {0};

	devices_id(devices, gpu, replica, id);
	pb_put_string(&device, 1, id);
	pb_put_string(&device, 2, of->healthy ? "Healthy" : "Unhealthy");
	if (of->numa >= 0)
		put_topology(&device, of->numa);
	pb_put_message(list, 1, &device);
	bytes_free(&device);
}

static enum grpc_status list(void *arg, struct pb_message request, struct bytes *ret_message,
			     struct fault *fault)
{
	const struct resource *resource = arg;
	const struct devices *devices = &resource->devices;

	(void)request, (void)fault;
	for (unsigned i = 0; i < devices->gpu_count; i++)
		for (unsigned replica = 0; replica < devices->slice->replicas; replica++)
			put_device(ret_message, devices, devices->gpu[i], replica);
	return GRPC_OK;
}

/* -- preferred allocation ---------------------------------------------------------------------- */

/* The devices that the kubelet offers for a container. */
struct offer {
	struct prefer_gpu gpu[VGPU_DEVICES_MAX];
	bool available[VGPU_DEVICES_MAX][CONFIG_REPLICAS_MAX];
	/* the container has the device already */
	bool must[VGPU_DEVICES_MAX][CONFIG_REPLICAS_MAX];
	uint64_t size;
};

/* Marks the device with the field's ID. Other IDs are skipped, as the kubelet may know devices
 * from before a change of the configuration. */
static void mark(const struct resource *resource, const struct pb_field *field,
		 bool marks[VGPU_DEVICES_MAX][CONFIG_REPLICAS_MAX])
{
	char id[DEVICES_ID_LEN];
	unsigned gpu, replica;

	if (pb_string(field, id, sizeof(id)) &&
	    devices_parse(&resource->devices, id, &gpu, &replica))
		marks[gpu][replica] = true;
}

static int read_offer(const struct resource *resource, struct pb_message request,
		      struct offer *ret_offer)
{
	struct pb_field field;
	int more;

	memset(ret_offer, 0, sizeof(*ret_offer));
	while ((more = pb_next(&request, &field)) > 0) {
		if (pb_is(&field, 1, PB_BYTES))
			mark(resource, &field, ret_offer->available);
		else if (pb_is(&field, 2, PB_BYTES))
			mark(resource, &field, ret_offer->must);
		else if (pb_is(&field, 3, PB_VARINT))
			ret_offer->size = field.varint;
	}
	return more;
}

/* Counts the slices of each GPU that the container has, and those that it could get. Returns
 * how many it has. */
static unsigned count_slices(const struct gpus *gpus, struct offer *offer)
{
	unsigned taken = 0;

	for (unsigned i = 0; i < gpus->count; i++) {
		offer->gpu[i].numa = gpus->gpu[i].numa;
		for (unsigned r = 0; r < CONFIG_REPLICAS_MAX; r++) {
			offer->gpu[i].taken += offer->must[i][r];
			offer->gpu[i].available += offer->available[i][r] && !offer->must[i][r];
		}
		taken += offer->gpu[i].taken;
	}
	return taken;
}

/* Adds the IDs of the devices that were chosen: for each GPU, those that the container has, and
 * then the first free ones. */
static void put_chosen(const struct resource *resource, const struct offer *offer,
		       struct bytes *chosen)
{
	for (unsigned i = 0; i < resource->devices.gpus->count; i++) {
		unsigned left = offer->gpu[i].taken;
		char id[DEVICES_ID_LEN];

		for (unsigned r = 0; r < CONFIG_REPLICAS_MAX; r++)
			left -= offer->must[i][r];
		for (unsigned r = 0; r < CONFIG_REPLICAS_MAX; r++) {
			bool take = left && offer->available[i][r] && !offer->must[i][r];

			if (!take && !offer->must[i][r])
				continue;
			left -= take;
			devices_id(&resource->devices, i, r, id);
			pb_put_string(chosen, 1, id);
		}
	}
}

static int prefer_for_container(const struct resource *resource, struct pb_message request,
				struct offer *offer, struct bytes *ret_message)
{
	const struct gpus *gpus = resource->devices.gpus;
	struct bytes chosen = {0};
	unsigned taken;

	if (read_offer(resource, request, offer) < 0)
		return -EBADMSG;
	taken = count_slices(gpus, offer);
	if (offer->size > taken && offer->size <= (uint64_t)VGPU_DEVICES_MAX * CONFIG_REPLICAS_MAX)
		prefer(resource->devices.slice->placement, offer->gpu, gpus->count,
		       (unsigned)offer->size - taken);
	put_chosen(resource, offer, &chosen);
	pb_put_message(ret_message, 1, &chosen);
	bytes_free(&chosen);
	return 0;
}

static enum grpc_status get_preferred(void *arg, struct pb_message request,
				      struct bytes *ret_message, struct fault *fault)
{
	struct offer *offer = malloc(sizeof(*offer));
	struct pb_field field;
	int more = 0, error = offer ? 0 : -ENOMEM;

	while (!error && (more = pb_next(&request, &field)) > 0)
		if (pb_is(&field, 1, PB_BYTES))
			error = prefer_for_container(arg, field.within, offer, ret_message);
	free(offer);
	if (!error)
		error = more;
	return error ? refuse(error, "PreferredAllocationRequest", fault) : GRPC_OK;
}

/* -- before a start of a container ------------------------------------------------------------- */

/* Adds an ID to a list that ends with NULL. */
static int add_id(const struct pb_field *field, unsigned count, char ***ids)
{
	char **more = realloc(*ids, (count + 2) * sizeof(*more)), id[DEVICES_ID_LEN];

	if (!more)
		return -ENOMEM;
	*ids = more;
	more[count] = more[count + 1] = NULL;
	if (!pb_string(field, id, sizeof(id)))
		return -EBADMSG;
	more[count] = strdup(id);
	return more[count] ? 0 : -ENOMEM;
}

/* Reads the IDs of the devices that were allocated to the container. */
static int read_ids(struct pb_message request, char ***ret_ids)
{
	struct pb_field field;
	unsigned count = 0;
	int more, error = 0;

	while (!error && (more = pb_next(&request, &field)) != 0) {
		if (more < 0)
			error = more;
		else if (pb_is(&field, 1, PB_BYTES))
			error = add_id(&field, count++, ret_ids);
	}
	return !error && count == 0 ? -EBADMSG : error;
}

static void free_ids(char **ids)
{
	for (unsigned i = 0; ids && ids[i]; i++)
		free(ids[i]);
	free(ids);
}

/* Answers PreStartContainer. After an error, the kubelet does not start the container, and asks
 * again. */
static enum grpc_status pre_start(void *arg, struct pb_message request, struct bytes *ret_message,
				  struct fault *fault)
{
	const struct resource *resource = arg;
	enum grpc_status status = GRPC_OK;
	char **ids = NULL;
	int error = read_ids(request, &ids);

	(void)ret_message;
	if (error) {
		status = refuse(error, "PreStartContainerRequest", fault);
	} else if ((error = containers_ready(resource->places, (const char *const *)ids, fault)) !=
		   0) {
		status = error == -ENOENT ? GRPC_FAILED_PRECONDITION : GRPC_INTERNAL;
	}
	free_ids(ids);
	if (!error)
		names_ask(resource->names);
	else
		say(LOG_ERR, "refuses the start of a container: %s", fault->text);
	return status;
}

/* -- all --------------------------------------------------------------------------------------- */

#define METHOD(name) "/v1beta1.DevicePlugin/" name

const struct grpc_method resource_methods[] = {
	{METHOD("GetDevicePluginOptions"), get_options, false},
	{METHOD("ListAndWatch"), list, true},
	{METHOD("GetPreferredAllocation"), get_preferred, false},
	{METHOD("Allocate"), resource_allocate, false},
	{METHOD("PreStartContainer"), pre_start, false},
	{NULL, NULL, false},
};
