/*
 * Writing policies: the text that policy.c reads as the same policy. A value that a line cannot
 * hold is refused.
 */
#include "policy_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "size.h"

/* The size as size_parse reads it, without rounding. */
static void print_size(uint64_t bytes, char *buf, size_t len)
{
	if (bytes % GIB == 0)
		snprintf(buf, len, "%lluG", (unsigned long long)(bytes / GIB));
	else if (bytes % MIB == 0)
		snprintf(buf, len, "%llum", (unsigned long long)(bytes / MIB));
	else
		snprintf(buf, len, "%llu", (unsigned long long)bytes);
}

static int write_device(const char *dir, const struct policy *policy, unsigned device,
			struct fault *fault)
{
	char text[128], size[32] = POLICY_UNLIMITED, cores[32], burst[32];
	int len;

	if (policy->device[device].memory_bytes)
		print_size(policy->device[device].memory_bytes, size, sizeof(size));
	len = snprintf(text, sizeof(text), "memory = %s\n", size);
	if (policy->device[device].cores_pct)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "cores = %s\n",
				policy_cores_name(policy->device[device].cores_pct,
						  policy->device[device].cores_most_pct, cores,
						  sizeof(cores)));
	if (policy->device[device].burst_ns)
		snprintf(text + len, sizeof(text) - (size_t)len, "burst = %s\n",
			 policy_burst_name(policy->device[device].burst_ns, burst, sizeof(burst)));
	return file_write(dir, policy->device[device].uuid, text, fault);
}

static int write_slice(const char *dir, const struct policy *policy, struct fault *fault)
{
	char text[POLICY_FILE_MAX];
	int len = 0;

	text[0] = '\0';
	if (policy->region_path[0])
		len = snprintf(text, sizeof(text), "region = %s\n", policy->region_path);
	if (policy->name[0])
		len += snprintf(text + len, sizeof(text) - (size_t)len, "name = %s\n",
				policy->name);
	if (policy->oversubscribe)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "oversubscribe = yes\n");
	if (policy->has_group)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "group = %u\n",
				policy->group);
	if (policy->gang.rule != POLICY_GANG_FOUND)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "gang = %s\n",
				policy_gang_word(&policy->gang));
	if (len == 0)
		snprintf(text, sizeof(text), "# nothing\n"); /* an empty file is refused */
	return file_write(dir, POLICY_SLICE_FILE, text, fault);
}

/* Whether reading would give the same: a line break, a comment or an outer blank would not. */
static bool survives_reading(const char *value)
{
	char line[POLICY_PATH_MAX];
	size_t len = strlen(value);

	if (len >= sizeof(line) || strchr(value, '\n'))
		return false;
	memcpy(line, value, len + 1);
	policy_cut_comment(line);
	return strcmp(policy_trim(line), value) == 0;
}

int policy_write(const char *dir, const struct policy *policy, struct fault *fault)
{
	int error;

	if (!survives_reading(policy->region_path) || !survives_reading(policy->name))
		return fault_set(fault, -EINVAL,
				 "\"%.300s\" cannot stand in a policy: take a path without line "
				 "breaks and without \" #\"",
				 policy->region_path);
	error = write_slice(dir, policy, fault);
	for (unsigned i = 0; !error && i < policy->device_count; i++)
		error = write_device(dir, policy, i, fault);
	return error;
}
