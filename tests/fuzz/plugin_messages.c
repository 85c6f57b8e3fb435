/*
 * Fuzzes the device plugin's methods: the first byte of the input chooses one, the rest is its
 * request. An answer must be a message, and have no device that is not there, or was not offered.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "containers.h"
#include "input.h"
#include "resource.h"
#include "say.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct containers_places places = {.state = "/state", .regions = "/regions"};

static const struct gpus gpus = {
	.count = 3,
	.gpu = {{.uuid = "GPU-a", .numa = 0, .healthy = true},
		{.uuid = "GPU-b", .numa = 1},
		{.uuid = "GPU-c", .numa = -1, .healthy = true}},
};

static struct config config = {
	.lists = {true, false, true, true},
	.cdi_kind = "nvidia.com/gpu",
	.library = "/lib",
	.slice_count = 1,
	.slice = {{.resource = "vgpu.dev/s", .name = "s", .memory_bytes = 1, .replicas = 4}},
};

/* In the place of containers.c's: no file is made. */
int containers_make(const struct containers_places *where, const char *resource,
		    const char *const *ids, const struct policy *policy,
		    char ret_name[CONTAINERS_NAME_LEN], struct fault *fault)
{
	(void)where, (void)resource, (void)fault;
	check(ids[0] != NULL && policy->device_count >= 1 && policy->device_count <= gpus.count);
	for (unsigned i = 0; i < policy->device_count; i++)
		check(policy->device[i].memory_bytes >= 1 && policy->device[i].memory_bytes <= 4);
	memset(ret_name, 'a', CONTAINERS_NAME_LEN - 1);
	ret_name[CONTAINERS_NAME_LEN - 1] = '\0';
	return 0;
}

int containers_ready(const struct containers_places *where, const char *const *ids,
		     struct fault *fault)
{
	(void)where, (void)fault;
	check(ids[0] != NULL);
	for (; *ids; ids++)
		check(strlen(*ids) < DEVICES_ID_LEN);
	return 0;
}

/* In the place of names.c's: no kubelet is asked. */
void names_ask(struct names *names)
{
	(void)names;
}

void say(int level, const char *format, ...)
{
	(void)level, (void)format;
}

static void check_chosen(const struct resource *resource, struct pb_message container)
{
	bool seen[VGPU_DEVICES_MAX][CONFIG_REPLICAS_MAX] = {{false}};
	struct pb_field field;
	int more;

	while ((more = pb_next(&container, &field)) > 0) {
		char id[DEVICES_ID_LEN];
		unsigned gpu, replica;

		check(pb_is(&field, 1, PB_BYTES) && pb_string(&field, id, sizeof(id)));
		check(devices_parse(&resource->devices, id, &gpu, &replica));
		check(!seen[gpu][replica]);
		seen[gpu][replica] = true;
	}
	check(more == 0);
}

static void check_answer(const struct resource *resource, const char *path,
			 struct pb_message answer)
{
	bool chooses = strstr(path, "GetPreferredAllocation"), is_options = strstr(path, "Options");
	struct pb_field field;
	int more;

	while ((more = pb_next(&answer, &field)) > 0) {
		check(is_options || pb_is(&field, 1, PB_BYTES));
		if (chooses)
			check_chosen(resource, field.within);
	}
	check(more == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct resource resource = {.config = &config, .places = &places};
	struct bytes answer = {0};
	struct fault fault = {""};
	unsigned chosen = size ? data[0] : 0;
	const struct grpc_method *method = &resource_methods[chosen % 5];

	config.slice[0].placement = (enum config_placement)(chosen / 5 % 4);
	config.slice[0].single = chosen / 20 % 2;
	check(devices_find(&config.slice[0], &gpus, &resource.devices, NULL) == 0);
	if (size) {
		uint8_t *request = copy_input(data, size);
		enum grpc_status status;

		status = method->answer(&resource, (struct pb_message){request + 1, request + size},
					&answer, &fault);
		check((status == GRPC_OK) == (fault.text[0] == '\0'));
		if (status == GRPC_OK && answer.len)
			check_answer(&resource, method->path,
				     (struct pb_message){answer.data, answer.data + answer.len});
		free(request);
	}
	bytes_free(&answer);
	return 0;
}
