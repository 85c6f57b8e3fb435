/*
 * Fields of a message may come in any order. So the names of a pod or container are read before
 * its contents.
 */
#include "pod_resources.h"

#include <errno.h>

/* -- numbers of the fields of each message -- */
enum { LIST_PODS = 1 };
enum { POD_NAME = 1, POD_NAMESPACE = 2, POD_CONTAINERS = 3 };
enum { CONTAINER_NAME = 1, CONTAINER_DEVICES = 2, CONTAINER_CLAIMS = 5 };
enum { DEVICES_IDS = 2 };
enum { CLAIM_RESOURCES = 4 };
enum { RESOURCE_CDI = 1 };
enum { CDI_NAME = 1 };

struct walk {
	enum pod_resources_kind kind;
	pod_resources_found *found;
	void *arg;
	struct pod_names names;
};

typedef int walk_message(struct walk *walk, struct pb_message within);

/* Calls `each` for every message in that field. Returns 0, or -EBADMSG. */
static int walk_field(struct walk *walk, struct pb_message message, unsigned number,
		      walk_message *each)
{
	struct pb_field field;
	int more, error = 0;

	while (!error && (more = pb_next(&message, &field)) != 0) {
		if (more < 0)
			error = more;
		else if (pb_is(&field, number, PB_BYTES))
			error = each(walk, field.within);
	}
	return error;
}

/* Reads the string of that field; "" where there is none. Of several, the last one counts, as
 * in proto3. */
static void read_name(struct pb_message message, unsigned number, char *name, size_t room)
{
	struct pb_field field;

	*name = '\0';
	while (pb_next(&message, &field) > 0)
		if (pb_is(&field, number, PB_BYTES) && !pb_string(&field, name, room))
			*name = '\0';
}

static int walk_id(struct walk *walk, struct pb_message id)
{
	walk->found(walk->arg, (const char *)id.at, (size_t)(id.end - id.at), &walk->names);
	return 0;
}

static int walk_devices(struct walk *walk, struct pb_message devices)
{
	return walk_field(walk, devices, DEVICES_IDS, walk_id);
}

static int walk_cdi(struct walk *walk, struct pb_message device)
{
	return walk_field(walk, device, CDI_NAME, walk_id);
}

static int walk_resource(struct walk *walk, struct pb_message resource)
{
	return walk_field(walk, resource, RESOURCE_CDI, walk_cdi);
}

static int walk_claim(struct walk *walk, struct pb_message claim)
{
	return walk_field(walk, claim, CLAIM_RESOURCES, walk_resource);
}

static int walk_container(struct walk *walk, struct pb_message container)
{
	struct pod_names *names = &walk->names;

	read_name(container, CONTAINER_NAME, names->container, sizeof(names->container));
	return walk->kind == POD_RESOURCES_CDI
		       ? walk_field(walk, container, CONTAINER_CLAIMS, walk_claim)
		       : walk_field(walk, container, CONTAINER_DEVICES, walk_devices);
}

static int walk_pod(struct walk *walk, struct pb_message pod)
{
	struct pod_names *names = &walk->names;

	read_name(pod, POD_NAME, names->pod, sizeof(names->pod));
	read_name(pod, POD_NAMESPACE, names->name_space, sizeof(names->name_space));
	return walk_field(walk, pod, POD_CONTAINERS, walk_container);
}

int pod_resources_each(struct pb_message answer, enum pod_resources_kind kind,
		       pod_resources_found *found, void *arg)
{
	struct walk walk = {.kind = kind, .found = found, .arg = arg};

	return walk_field(&walk, answer, LIST_PODS, walk_pod);
}
