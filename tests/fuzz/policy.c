/*
 * Fuzzes policy_parse: two files of a policy, cut from the input by a NUL each as name, text, name,
 * text. What it accepts must keep what policy.h promises, and what it refuses must have a reason.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
	if (!holds)
		abort();
}

/* The next part of the input as a string of its own, so that a read beyond its end is seen. */
static char *next_part(const uint8_t **data, size_t *size)
{
	const uint8_t *end = *size ? memchr(*data, '\0', *size) : NULL;
	size_t len = end ? (size_t)(end - *data) : *size, used = end ? len + 1 : len;
	char *part = malloc(len + 1);

	check(part != NULL);
	if (len)
		memcpy(part, *data, len);
	part[len] = '\0';
	*data += used;
	*size -= used;
	return part;
}

static void check_policy(const struct policy *policy)
{
	check(policy->device_count <= VGPU_DEVICES_MAX);
	for (unsigned i = 0; i < policy->device_count; i++) {
		const char *uuid = policy->device[i].uuid;

		check(memchr(uuid, '\0', VGPU_UUID_LEN) != NULL && uuid[0] != '\0');
		check(i == 0 || strcmp(policy->device[i - 1].uuid, uuid) < 0);
		check(policy->device[i].cores_pct <= 100);
		check(policy->device[i].burst_ns <= VGPU_BURST_MAX_NS);
		check(policy->device[i].memory_bytes <= (uint64_t)1 << 63);
		check(policy_find(policy, uuid) == (int)i);
	}
	check(memchr(policy->region_path, '\0', sizeof(policy->region_path)) != NULL);
	check(policy->region_path[0] == '/' || policy->region_path[0] == '\0');
	check(memchr(policy->name, '\0', sizeof(policy->name)) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct policy policy;

	memset(&policy, 0, sizeof(policy));
	for (int i = 0; i < 2; i++) {
		char *name = next_part(&data, &size), *text = next_part(&data, &size);
		struct fault fault = {""};
		int error = policy_parse(name, text, &policy, &fault);

		if (error == 0) {
			check(fault.text[0] == '\0');
			check_policy(&policy);
		} else {
			check(error == -EINVAL && fault.text[0] != '\0');
		}
		free(name);
		free(text);
		if (error)
			break;
	}
	return 0;
}
