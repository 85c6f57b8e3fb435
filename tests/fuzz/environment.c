/*
 * Fuzzes the component slice over an environment: HAMi's variables, the policy that VGPU_POLICY
 * names, and CUDA_VISIBLE_DEVICES. What comes of it must be a slice within bounds, or a refusal in
 * words; and above all a quota must never get lost on the way: each memory limit is compared with
 * what strtold makes of its text.
 *
 * The input is an environment as /proc/<pid>/environ has it: NAME=value, a NUL behind each. A few
 * names are not the library's but say what is around it:
 *
 *     POLICY=wide        the policy at the well-known place: a directory of environment/policy
 *     HAMI=one           HAMi's directory of regions: a directory of environment/hami
 *     REGION=policy      the well-known region: a file in environment; none such, no region
 *     ORDER=-210         the machine: for each of the policy's GPUs its place, "-" for none
 *
 * VGPU_POLICY is the name of a directory of environment/policy as well.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "slice_internal.h"
#include "visible.h"

#define MEMORY_LIMIT  "CUDA_DEVICE_MEMORY_LIMIT"
#define SM_LIMIT      "CUDA_DEVICE_SM_LIMIT"
#define SHARED_CACHE  "CUDA_DEVICE_MEMORY_SHARED_CACHE"
#define VARIABLES_MAX 96
#define PATH_LEN      512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* -- the environment --------------------------------------------------------------------------- */

static char text[65536], policy_variable[PATH_LEN];
static char *variables[VARIABLES_MAX + 1];

/* What a name has in there, or NULL. */
static const char *get(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* DATA/what/name; a name that could lead elsewhere is one of no file. */
static const char *in_data(const char *what, const char *name, char path[PATH_LEN])
{
	bool fits = name && strlen(name) < 64 && !strpbrk(name, "/.");

	snprintf(path, PATH_LEN, FUZZ_DATA "/%s/%s", what, fits ? name : "none");
	return path;
}

static void set_environment(const uint8_t *data, size_t size)
{
	static const char named[] = "VGPU_POLICY=";
	unsigned count = 0;
	char path[PATH_LEN];

	if (size > sizeof(text) - 1)
		size = sizeof(text) - 1;
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	for (char *at = text; at < text + size && count < VARIABLES_MAX; at += strlen(at) + 1)
		variables[count++] = at;
	variables[count] = NULL;
	environ = variables;
	for (unsigned i = 0; i < count; i++)
		if (strncmp(variables[i], named, strlen(named)) == 0 &&
		    variables[i][strlen(named)]) {
			snprintf(policy_variable, sizeof(policy_variable), "%s%s", named,
				 in_data("policy", variables[i] + strlen(named), path));
			variables[i] = policy_variable;
		}
}

/* -- the limits -------------------------------------------------------------------------------- */

/* The variable that says what the GPU with that index may have, by its value; NULL for none. */
static const char *limit_text(const char *name, unsigned index)
{
	char indexed[64];
	const char *value;

	snprintf(indexed, sizeof(indexed), "%s_%u", name, index);
	value = get(indexed);
	return value ? value : get(name);
}

/* What was accepted as a size: it is made of what sizes are made of, nothing gets lost but a
 * thousandth of the unit, nothing is added, and only a zero is no limit. */
static void check_size(const char *value, uint64_t bytes)
{
	static const char units[] = "bkmgt";
	bool zero = !strpbrk(value, "123456789");
	long double written, unit = 1;
	char *end;

	must(strspn(value, " \t\r\n0123456789.kmgtKMGTiBb") == strlen(value));
	must((bytes == 0) == zero);
	written = strtold(value, &end);
	must(end != value);
	end += strspn(end, " \t\r\n");
	for (unsigned i = 0; *end && i < 5; i++) /* "b" or nothing for 1 */
		if ((*end | ' ') == units[i])
			unit = (long double)((uint64_t)1 << 10 * i);
	must((long double)bytes <= written * unit + 1);
	must((long double)bytes >= (written - 0.001L) * unit - 1);
}

/* A share is what was written, rounded down; only a written 0, and 100 and more, are none. */
static void check_share(const char *value, unsigned cores)
{
	long whole = strtol(value, NULL, 10);

	must(strspn(value, " \t\r\n0123456789.%") == strlen(value));
	if (cores)
		must(whole == (long)cores || (whole == 0 && cores == 1));
	else
		must(whole >= 100 || !strpbrk(value, "123456789"));
}

static void check_limits(const struct slice_env *env)
{
	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++) {
		const char *memory = limit_text(MEMORY_LIMIT, i), *sm = limit_text(SM_LIMIT, i);
		unsigned cores = env->cores_pct[i];

		if (memory)
			check_size(memory, env->memory_bytes[i]);
		else
			must(env->memory_bytes[i] == 0);
		must(cores < 100);
		if (sm)
			check_share(sm, cores);
		else
			must(cores == 0);
	}
	must(env->visible_count <= VGPU_DEVICES_MAX);
	for (unsigned i = 0; i < env->visible_count; i++)
		must(memchr(env->visible[i], '\0', VGPU_UUID_LEN) &&
		     slice_is_uuid(env->visible[i]));
	must(env->priority == 0 || env->priority == 1);
	must(env->oversubscribe >= -1 && env->oversubscribe <= 1);
}

/* The least of the environment's memory limits that may be meant for a GPU whose index nobody
 * knows: 0 for none. */
static uint64_t strictest(const struct slice_env *env)
{
	uint64_t least = 0;

	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++)
		if (env->memory_bytes[i] && (!least || env->memory_bytes[i] < least))
			least = env->memory_bytes[i];
	return least;
}

/* What holds for one GPU is no more than the policy and the environment say. */
static void check_gpu(const struct slice *slice, const char *uuid, int index)
{
	uint64_t memory, limit = strictest(&slice->env);
	struct slice_limits limits = {.env_pct = 101};
	int device = policy_find(&slice->policy, uuid);

	if (!slice_limits(slice, uuid, index, &limits)) {
		must(slice->has_policy && device < 0 && limits.env_pct == 101);
		must(!slice_shows(slice, uuid));
		return;
	}
	memory = slice_memory(&limits, 0, 0);
	must(slice_policy_cores(&limits) < 100 && limits.env_pct < 100);
	must(!slice->has_policy || device >= 0);
	if (device >= 0 && slice->policy.device[device].memory_bytes)
		must(memory && memory <= slice->policy.device[device].memory_bytes);
	if (index >= 0 && slice->env.visible_count == 0)
		limit = slice->env.memory_bytes[index];
	else if (slice->env.visible_count > 0)
		return; /* by its place in the list, which is slice.c's own business */
	if (limit)
		must(memory && memory <= limit);
}

/* -- the slice --------------------------------------------------------------------------------- */

static void check_policy(const struct policy *policy)
{
	must(policy->device_count > 0 && policy->device_count <= VGPU_DEVICES_MAX);
	for (unsigned i = 0; i < policy->device_count; i++)
		must(slice_is_uuid(policy->device[i].uuid));
}

static void check_slice(const struct slice *slice)
{
	static const char *const uuids[] = {"GPU-51300000-0000-4000-8000-00000000000a",
					    "GPU-51300000-0000-4000-8000-00000000000b",
					    "GPU-51300000-0000-4000-8000-00000000000c",
					    "MIG-51300000-0000-4000-8000-00000000000d"};

	must(slice->has_policy == (get("VGPU_POLICY") || slice->policy.device_count > 0));
	if (slice->has_policy)
		check_policy(&slice->policy);
	check_limits(&slice->env);
	must(slice->configured || !(slice->has_policy || strictest(&slice->env)));
	must(memchr(slice->region_path, '\0', sizeof(slice->region_path)) != NULL);
	must(slice->region_path[0] && slice->region_from);
	if (get(SHARED_CACHE) && !slice->policy.region_path[0])
		must(strcmp(get(SHARED_CACHE), slice->region_path) == 0 ||
		     (slice->configured && (get("HAMI") || get("REGION"))));
	if (slice->has_policy && !slice->policy.oversubscribe)
		must(!slice->oversubscribe);
	slice_needs_order(slice);
	must(slice_narrows(slice) == (slice->has_policy || slice->env.visible_count > 0));
	for (unsigned u = 0; u < 4; u++)
		for (int index = -1; index < VGPU_DEVICES_MAX; index++)
			check_gpu(slice, uuids[u], index);
}

/* -- what the driver is told ------------------------------------------------------------------- */

static void read_order(const struct policy *policy, struct visible_order *ret_order)
{
	const char *order = get("ORDER");

	memset(ret_order, 0, sizeof(*ret_order));
	for (unsigned i = 0; i < policy->device_count; i++) {
		int place = order && *order >= '0' && *order <= '9' ? *order - '0' : -1;

		ret_order->place[i] = place;
		if (place >= (int)ret_order->gpu_count)
			ret_order->gpu_count = (unsigned)place + 1;
		if (order && *order)
			order++;
	}
}

/* The list names the policy's GPUs alone, whole. */
static void check_list(const struct policy *policy, char *list)
{
	unsigned count = 0;

	must(memchr(list, '\0', VISIBLE_LIST_LEN) != NULL);
	for (char *at = list, *end; *list && at; at = end) {
		end = strchr(at, ',');
		if (end)
			*end++ = '\0';
		must(policy_find(policy, at) >= 0);
		must(++count <= policy->device_count + 1); /* one may be there twice */
	}
}

static void check_visible(const struct policy *policy)
{
	const char *asked = getenv("CUDA_VISIBLE_DEVICES");
	static char list[VISIBLE_LIST_LEN];
	struct visible_order order;

	read_order(policy, &order);
	visible_needs_order(policy, asked);
	memset(list, 'x', sizeof(list));
	if (visible_compose(policy, asked, &order, list))
		check_list(policy, list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct slice slice, before;
	char policy[PATH_LEN], hami[PATH_LEN], region[PATH_LEN];
	struct slice_paths paths;
	struct fault fault = {""};
	int error;

	set_environment(data, size);
	paths.policy_dir = in_data("policy", get("POLICY"), policy);
	paths.region_hami_dir = in_data("hami", get("HAMI"), hami);
	paths.region_default = in_data(".", get("REGION"), region);
	memset(&slice, 0x5a, sizeof(slice));
	memcpy(&before, &slice, sizeof(slice));
	error = slice_load_from(&paths, &slice, &fault);
	must((error == 0) == (fault.text[0] == '\0'));
	must(!strchr(fault.text, '\n') && error <= 0);
	if (error) {
		must(memcmp(&slice, &before, sizeof(slice)) == 0);
		return 0;
	}
	check_slice(&slice);
	if (slice.has_policy)
		check_visible(&slice.policy);
	return 0;
}
