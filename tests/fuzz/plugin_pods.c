/*
 * Fuzzes the kubelet's answer of pod resources, and the file of a pod's names that is made of it:
 * names that can be written are read back as they were.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "pod_resources.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_found(void *arg, const char *id, size_t len, const struct pod_names *names)
{
	const struct pb_message *answer = arg;
	char line[POD_LINE_LEN];
	const char *slash;

	check((const uint8_t *)id >= answer->at && (const uint8_t *)id + len <= answer->end);
	if (!pod_names_are_good(names))
		return;
	pod_line(names, line);
	slash = strchr(line, '/');
	check(slash && strchr(slash + 1, '/') && strlen(line) < POD_LINE_LEN);
	for (const char *at = line; *at; at++)
		check((*at >= 'a' && *at <= 'z') || (*at >= '-' && *at <= '9'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = copy_input(data, size);
	struct pb_message answer = {copy, copy + size};

	pod_resources_each(answer, POD_RESOURCES_DEVICES, check_found, &answer);
	pod_resources_each(answer, POD_RESOURCES_CDI, check_found, &answer);
	free(copy);
	return 0;
}
