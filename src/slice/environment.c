/*
 * HAMi's environment, as its device plugin sets it in a container.
 *
 * A variable is unset, or right, or an error; an empty one counts as unset. Nothing is read where
 * the environment is not to be trusted (base/env.h): the policy and the region stand alone then.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "env.h"
#include "size.h"
#include "slice_internal.h"

#define MEMORY_LIMIT    "CUDA_DEVICE_MEMORY_LIMIT"
#define SM_LIMIT        "CUDA_DEVICE_SM_LIMIT"
#define TASK_PRIORITY   "CUDA_TASK_PRIORITY"
#define VISIBLE_DEVICES "NVIDIA_VISIBLE_DEVICES"
#define OVERSUBSCRIBE   "CUDA_OVERSUBSCRIBE"
#define CORES_POLICY    "GPU_CORE_UTILIZATION_POLICY"

#define PRIORITY_HIGH 0
#define PRIORITY_LOW  1

const char *slice_quote(const char *value, char buf[SLICE_QUOTED_LEN])
{
	static const char more[] = "...";
	size_t len = strlen(value), room = SLICE_QUOTED_LEN - sizeof(more);

	if (len > room) {
		len = room;
		memcpy(buf + len, more, sizeof(more));
	} else {
		buf[len] = '\0';
	}
	for (size_t i = 0; i < len; i++)
		buf[i] = (unsigned char)value[i] < ' ' || value[i] == 0x7f ? '?' : value[i];
	return buf;
}

bool slice_is_uuid(const char *text)
{
	return (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0) && text[4] != '\0';
}

int slice_word(const char *text)
{
	static const char *const words[] = {"no", "yes", "false", "true", "0", "1"};

	for (int i = 0; i < 6; i++)
		if (strcasecmp(text, words[i]) == 0)
			return i % 2;
	return -1;
}

/* Takes a variable's value; where it is not set, the value is left as it is. */
typedef int take_fn(const char *name, void *ret_value, struct fault *fault);

static int take_memory(const char *name, void *ret_value, struct fault *fault)
{
	const char *value = env_get(name);
	char quoted[SLICE_QUOTED_LEN];

	if (value && size_parse(value, ret_value))
		return fault_set(fault, -EINVAL,
				 "%s is \"%s\", which is no size: write bytes or a number with "
				 "k, m or g, such as 8192m",
				 name, slice_quote(value, quoted));
	return 0;
}

static int take_cores(const char *name, void *ret_value, struct fault *fault)
{
	const char *value = env_get(name);
	char quoted[SLICE_QUOTED_LEN];
	uint64_t pct;

	if (!value)
		return 0;
	if (percent_parse(value, INT_MAX, &pct))
		return fault_set(fault, -EINVAL,
				 "%s is \"%s\", which is no percentage: write a number from 1 to "
				 "99, such as 50 or 50%%, or 0 for no limit",
				 name, slice_quote(value, quoted));
	*(unsigned *)ret_value = pct >= 100 ? 0 : (unsigned)pct;
	return 0;
}

/* A limit for each GPU, in values of size bytes: NAME_<i>, or NAME where that is not set. */
static int take_all(const char *name, take_fn *take, void *values, size_t size, struct fault *fault)
{
	char *value = values;
	char indexed[64];
	int error = take(name, value, fault);

	for (unsigned i = 1; !error && i < VGPU_DEVICES_MAX; i++)
		memcpy(value + i * size, value, size);
	for (unsigned i = 0; !error && i < VGPU_DEVICES_MAX; i++) {
		snprintf(indexed, sizeof(indexed), "%s_%u", name, i);
		error = take(indexed, value + i * size, fault);
	}
	return error;
}

static int take_priority(struct slice_env *env, struct fault *fault)
{
	const char *value = env_get(TASK_PRIORITY);
	char quoted[SLICE_QUOTED_LEN];
	uint64_t priority = PRIORITY_LOW;

	if (value && (number_parse(value, INT_MAX, &priority) || priority > PRIORITY_LOW))
		return fault_set(fault, -EINVAL,
				 TASK_PRIORITY " is \"%s\", which is no priority: write 0 for "
					       "high or 1 for low",
				 slice_quote(value, quoted));
	env->priority = (int)priority;
	return 0;
}

/* By name, or by the number that HAMi has for it. */
static int take_cores_policy(struct slice_env *env, struct fault *fault)
{
	static const struct {
		const char *name, *number;
		enum slice_cores cores;
	} policies[] = {{"default", "0", SLICE_CORES_DEFAULT},
			{"force", "1", SLICE_CORES_FORCE},
			{"disable", "2", SLICE_CORES_DISABLE}};
	const char *value = env_get(CORES_POLICY);
	char quoted[SLICE_QUOTED_LEN];

	env->cores = SLICE_CORES_DEFAULT;
	if (!value)
		return 0;
	for (size_t i = 0; i < sizeof(policies) / sizeof(*policies); i++)
		if (!strcasecmp(value, policies[i].name) || !strcmp(value, policies[i].number)) {
			env->cores = policies[i].cores;
			return 0;
		}
	return fault_set(fault, -EINVAL, CORES_POLICY " is \"%s\": write default, force or disable",
			 slice_quote(value, quoted));
}

static int take_oversubscribe(struct slice_env *env, struct fault *fault)
{
	const char *value = env_get(OVERSUBSCRIBE);
	char quoted[SLICE_QUOTED_LEN];

	env->oversubscribe = value ? slice_word(value) : -1;
	if (value && env->oversubscribe < 0)
		return fault_set(fault, -EINVAL, OVERSUBSCRIBE " is \"%s\": write true or false",
				 slice_quote(value, quoted));
	return 0;
}

/*
 * NVIDIA_VISIBLE_DEVICES, if UUIDs are all that it lists. It is the container runtime's variable,
 * so whatever else it holds ("all", "0,1", "void") is no error: there are no UUIDs then. Those
 * beyond VGPU_DEVICES_MAX have no variables of their own and are left out.
 */
static void take_visible(struct slice_env *env)
{
	const char *at = env_get(VISIBLE_DEVICES);
	unsigned count = 0;

	for (; at; at = *at == ',' ? at + 1 : NULL) {
		size_t len = strcspn(at, ",");

		if (!slice_is_uuid(at) || len < 5 || len >= VGPU_UUID_LEN) {
			memset(env->visible, 0, sizeof(env->visible));
			return;
		}
		if (count < VGPU_DEVICES_MAX)
			memcpy(env->visible[count++], at, len);
		at += len;
	}
	env->visible_count = count;
}

int environment_read(struct slice_env *ret_env, struct fault *fault)
{
	struct slice_env env;
	int error;

	memset(&env, 0, sizeof(env));
	error = take_all(MEMORY_LIMIT, take_memory, env.memory_bytes, sizeof(env.memory_bytes[0]),
			 fault);
	if (!error)
		error = take_all(SM_LIMIT, take_cores, env.cores_pct, sizeof(env.cores_pct[0]),
				 fault);
	if (!error)
		error = take_priority(&env, fault);
	if (!error)
		error = take_cores_policy(&env, fault);
	if (!error)
		error = take_oversubscribe(&env, fault);
	if (error)
		return error;
	take_visible(&env);
	*ret_env = env;
	return 0;
}
