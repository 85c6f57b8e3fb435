/*
 * The slice of this process, from its policies and its environment.
 *
 * What always holds: a value counts only if it makes the slice smaller. Of two policies the GPUs
 * that both list are in the slice, with the smaller of each limit. The environment then lowers
 * those. A value that is not understood refuses the slice. A file that cannot be looked at counts
 * as present.
 *
 * The policy names the region. If the tenant could choose it, each of the tenant's processes could
 * count for itself. Without a policy, the tenant can: a region that the environment names is a
 * ledger of its own, with limits of its own.
 */
#include "slice.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "env.h"
#include "hash.h"
#include "slice_internal.h"
#include "sys.h"

#define POLICY_VARIABLE "VGPU_POLICY"
#define GANGS_VARIABLE  "VGPU_GANGS"
#define TURNS_VARIABLE  "VGPU_TURNS"
#define SOCKET_VARIABLE "VGPU_SOCKET"
#define REGION_VARIABLE "CUDA_DEVICE_MEMORY_SHARED_CACHE"
#define REGION_SUFFIX   ".cache"

#define FRESH_NS (100 * NS_PER_MS)

/* -- policies ---------------------------------------------------------------------------------- */

/* A limit of 30-100 and one of 50 are one of 30-50. */
static void narrow_cores(struct policy_device *device, const struct policy_device *other)
{
	unsigned most_pct = (unsigned)slice_stricter(
		slice_cores_most(device->cores_pct, device->cores_most_pct),
		slice_cores_most(other->cores_pct, other->cores_most_pct));

	device->cores_pct = (unsigned)slice_stricter(device->cores_pct, other->cores_pct);
	device->cores_most_pct = most_pct > device->cores_pct ? most_pct : 0;
}

/* Narrows policy to what other allows as well. Its own region, name, group and word on gangs go
 * first. */
static void narrow(struct policy *policy, const struct policy *other)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < policy->device_count; i++) {
		int j = policy_find(other, policy->device[i].uuid);

		if (j < 0)
			continue;
		policy->device[kept] = policy->device[i];
		policy->device[kept].memory_bytes = slice_stricter(policy->device[i].memory_bytes,
								   other->device[j].memory_bytes);
		narrow_cores(&policy->device[kept], &other->device[j]);
		policy->device[kept].burst_ns =
			slice_stricter(policy->device[i].burst_ns, other->device[j].burst_ns);
		kept++;
	}
	policy->device_count = kept;
	policy->oversubscribe = policy->oversubscribe && other->oversubscribe;
	if (policy->gang.rule == POLICY_GANG_FOUND)
		policy->gang = other->gang;
	if (!policy->has_group) {
		policy->has_group = other->has_group;
		policy->group = other->group;
	}
	if (!policy->region_path[0])
		memcpy(policy->region_path, other->region_path, sizeof(policy->region_path));
	if (!policy->name[0])
		memcpy(policy->name, other->name, sizeof(policy->name));
}

/* The policy that VGPU_POLICY names, into one that may be there already. */
static int add_named_policy(const char *dir, struct policy *policy, bool *has_policy,
			    struct fault *fault)
{
	static struct policy named; /* not on the stack, which may be a small thread's */
	int error = policy_read(dir, &named, fault);

	if (error == -ENOENT)
		return fault_set(fault, error,
				 POLICY_VARIABLE " names %.300s, which is not there: its slice has "
						 "ended; start the program again with vgpu run",
				 dir);
	if (error)
		return error;
	if (!*has_policy) {
		*policy = named;
		*has_policy = true;
		return 0;
	}
	narrow(policy, &named);
	if (policy->device_count == 0)
		return fault_set(fault, -EINVAL,
				 "no GPU is left: the policy in %.300s lists none of those that "
				 "this container has",
				 dir);
	return 0;
}

/* ret_has_own: there is one in dir. */
static int read_policies(const char *dir, const char *named, struct policy *policy,
			 bool *ret_has_own, bool *ret_has_policy, struct fault *fault)
{
	int error = policy_read(dir, policy, fault);

	if (error && error != -ENOENT)
		return error;
	*ret_has_own = *ret_has_policy = error == 0;
	return named && *named ? add_named_policy(named, policy, ret_has_policy, fault) : 0;
}

static int remember(char to[SLICE_PATH_LEN], const char *from, struct fault *fault)
{
	size_t len = from ? strlen(from) : 0;

	if (len >= SLICE_PATH_LEN)
		return fault_set(fault, -EINVAL,
				 POLICY_VARIABLE " is longer than a path can be: write the "
						 "policy's directory");
	memcpy(to, from ? from : "", len + 1);
	return 0;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return sys_stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The path that the environment names; else the path that is mounted into the container; else the
 * host's. */
static const char *choose(const char *variable, const char *mounted, const char *on_host)
{
	const char *named = env_get(variable);

	if (named)
		return named;
	return is_directory(mounted) ? mounted : on_host;
}

/* A directory that cannot be is no reason to refuse the slice, which is a gang by itself then. */
static void find_gangs(struct slice *slice)
{
	snprintf(slice->gangs_dir, sizeof(slice->gangs_dir), "%s",
		 choose(GANGS_VARIABLE, SLICE_GANGS_MOUNT, SLICE_GANGS_DIR));
}

/* -- a policy that changes --------------------------------------------------------------------- */

/* Times of files are those of the last tick, some ms ago. So a file that has just been written may
 * change once more and keep its time: until it is older, each look finds another stamp. */
static void stamp_file(uint64_t *stamp, const char *path)
{
	uint64_t now_ns = clock_wall_ns(), written_ns;
	struct stat st;

	if (sys_stat(path, &st) != 0)
		return;
	written_ns = (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
	if (now_ns - written_ns + FRESH_NS < 2 * FRESH_NS)
		*stamp = hash_add(*stamp, now_ns);
	*stamp = hash_add(*stamp, (uint64_t)st.st_ino ^ (uint64_t)st.st_size << 40);
	*stamp = hash_add(*stamp, (uint64_t)st.st_mtim.tv_sec);
	*stamp = hash_add(*stamp, (uint64_t)st.st_mtim.tv_nsec);
}

/* Of a file that is written in place, its directory's time tells nothing. */
static void stamp_policy(uint64_t *stamp, const char *dir, const struct policy *policy)
{
	char path[SLICE_PATH_LEN + VGPU_UUID_LEN + 2];

	if (!*dir)
		return;
	stamp_file(stamp, dir);
	for (unsigned i = 0; i < policy->device_count; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, policy->device[i].uuid);
		stamp_file(stamp, path);
	}
	snprintf(path, sizeof(path), "%s/slice", dir);
	stamp_file(stamp, path);
}

uint64_t slice_policy_stamp(const struct slice *slice)
{
	uint64_t stamp = HASH_START;

	if (!slice->has_policy)
		return 0;
	stamp_policy(&stamp, slice->policy_dir, &slice->policy);
	stamp_policy(&stamp, slice->policy_named, &slice->policy);
	return stamp;
}

const char *slice_policy_place(const struct slice *slice)
{
	return slice->has_own_policy ? slice->policy_dir : slice->policy_named;
}

int slice_read_policy(const struct slice *slice, struct policy *ret_policy, struct fault *fault)
{
	static struct policy policy;
	bool has_own, has_policy;
	int error = read_policies(slice->policy_dir, slice->policy_named, &policy, &has_own,
				  &has_policy, fault);

	if (!error && (!has_policy || (slice->has_own_policy && !has_own)))
		error = fault_set(fault, -ENOENT, "the slice's policy in %.300s is gone",
				  slice->policy_dir);
	if (error)
		return error;
	*ret_policy = policy;
	return 0;
}

/* -- the region -------------------------------------------------------------------------------- */

/* Whether something is at path, or may be: only a clear no is one. */
static bool may_exist(const char *path)
{
	struct stat st;
	int error = sys_stat(path, &st);

	return error != -ENOENT && error != -ENOTDIR;
}

/* The *.cache files of a directory. */
struct caches {
	unsigned count;
	char name[256];
};

static int count_cache(void *arg, const char *name)
{
	struct caches *caches = arg;
	size_t len = strlen(name), suffix = strlen(REGION_SUFFIX);

	if (len > suffix && name[0] != '.' && strcmp(name + len - suffix, REGION_SUFFIX) == 0 &&
	    caches->count++ == 0)
		snprintf(caches->name, sizeof(caches->name), "%s", name);
	return 0;
}

/*
 * The region that HAMi gave this container: path stays as it is where there is none. Of several we
 * cannot know which is ours, and a tenant could add one to be rid of its limits: refuse.
 */
static int find_hami_region(const char *dir, char *path, size_t len, struct fault *fault)
{
	struct caches caches = {0, ""};
	int error = sys_list_directory(dir, count_cache, &caches);

	if (error == -ENOENT || error == -ENOTDIR)
		return 0;
	if (error)
		return fault_set(fault, error,
				 "%s, where this container's region would be, cannot be read: %s",
				 dir, strerror(-error));
	if (caches.count > 1)
		return fault_set(fault, -EINVAL,
				 "%s has %u regions, and nothing says which is this container's: "
				 "set " REGION_VARIABLE " to its path",
				 dir, caches.count);
	if (caches.count == 1)
		snprintf(path, len, "%s/%s", dir, caches.name);
	return 0;
}

/* Whether path is that of a file in the directory. */
static bool is_in(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && path[len] == '/' && !strchr(path + len + 1, '/');
}

static bool has_limit(const struct slice_env *env)
{
	for (unsigned i = 0; i < VGPU_DEVICES_MAX; i++)
		if (env->memory_bytes[i] || env->cores_pct[i])
			return true;
	return false;
}

/* Whether the path that the environment names hides the region at a well-known path. It does not
 * where there is nothing, and nothing that limits would be made. */
static bool hides_default(const struct slice *slice, const char *named, const char *by_default)
{
	return slice->has_policy || has_limit(&slice->env) || may_exist(named) ||
	       !may_exist(by_default);
}

/* The policy's; else HAMi's own, which the environment may only choose among; else the
 * environment's or the default. */
static int find_region(const struct slice_paths *paths, struct slice *slice, struct fault *fault)
{
	const char *named = env_get(REGION_VARIABLE);
	char *path = slice->region_path;
	size_t len = sizeof(slice->region_path);
	int error = 0;

	if (slice->policy.region_path[0]) {
		memcpy(path, slice->policy.region_path, sizeof(slice->policy.region_path));
		slice->region_from = "the policy's";
		return 0;
	}
	if (named && strlen(named) >= len)
		return fault_set(fault, -EINVAL,
				 REGION_VARIABLE " is longer than a path can be: write the "
						 "path of this container's region");
	path[0] = '\0';
	slice->region_from = "the default, " REGION_VARIABLE " names another";
	if (!named || !is_in(named, paths->region_hami_dir))
		error = find_hami_region(paths->region_hami_dir, path, len, fault);
	if (error || path[0])
		return error;
	if (named && hides_default(slice, named, paths->region_default)) {
		memcpy(path, named, strlen(named) + 1);
		slice->region_from = REGION_VARIABLE "'s";
	} else {
		snprintf(path, len, "%s", paths->region_default);
	}
	return 0;
}

const char *slice_turns_path(void)
{
	return choose(TURNS_VARIABLE, SLICE_TURNS_MOUNT, SLICE_TURNS_DIR);
}

/* Without a directory in which the process may make files, its slice takes no turns. */
static void find_turns(struct slice *slice)
{
	const char *path = slice_turns_path();

	if (strlen(path) < SLICE_PATH_LEN && is_directory(path) && sys_may_write(path) == 0)
		snprintf(slice->turns_dir, sizeof(slice->turns_dir), "%s", path);
}

const char *slice_socket_path(void)
{
	const char *named = env_get(SOCKET_VARIABLE);

	return named ? named : SLICE_SOCKET;
}

static void find_socket(struct slice *slice)
{
	const char *path = slice_socket_path();

	if (strlen(path) < SLICE_PATH_LEN)
		snprintf(slice->socket, sizeof(slice->socket), "%s", path);
}

/* -- the whole --------------------------------------------------------------------------------- */

/* A policy has to allow it, and the environment can do without. */
static bool may_oversubscribe(const struct slice *loaded)
{
	if (!loaded->has_policy)
		return loaded->env.oversubscribe == 1;
	return loaded->policy.oversubscribe && loaded->env.oversubscribe != 0;
}

int slice_load_from(const struct slice_paths *paths, struct slice *ret_slice, struct fault *fault)
{
	static struct slice slice; /* likewise */
	int error;

	memset(&slice, 0, sizeof(slice));
	error = environment_read(&slice.env, fault);
	if (!error)
		error = remember(slice.policy_dir, paths->policy_dir, fault);
	if (!error)
		error = remember(slice.policy_named, env_get(POLICY_VARIABLE), fault);
	if (!error)
		error = read_policies(slice.policy_dir, slice.policy_named, &slice.policy,
				      &slice.has_own_policy, &slice.has_policy, fault);
	if (!error)
		error = find_region(paths, &slice, fault);
	if (error)
		return error;
	slice.configured =
		slice.has_policy || has_limit(&slice.env) || may_exist(slice.region_path);
	slice.oversubscribe = may_oversubscribe(&slice);
	find_gangs(&slice);
	find_turns(&slice);
	find_socket(&slice);
	*ret_slice = slice;
	return 0;
}

int slice_load(const char *policy_dir, struct slice *ret_slice, struct fault *fault)
{
	struct slice_paths paths = {policy_dir ? policy_dir : SLICE_POLICY_DIR,
				    SLICE_REGION_DEFAULT, SLICE_REGION_HAMI_DIR};

	return slice_load_from(&paths, ret_slice, fault);
}

bool slice_needs_order(const struct slice *slice)
{
	const struct slice_env *env = &slice->env;

	if (env->visible_count > 0)
		return false;
	for (unsigned i = 1; i < VGPU_DEVICES_MAX; i++)
		if (env->memory_bytes[i] != env->memory_bytes[0] ||
		    env->cores_pct[i] != env->cores_pct[0])
			return true;
	return false;
}

/* The GPU's place in the environment's own order, or -1: a full UUID there, or how one starts. */
static int find_visible(const struct slice_env *env, const char *uuid)
{
	for (unsigned i = 0; i < env->visible_count; i++)
		if (strncmp(uuid, env->visible[i], strlen(env->visible[i])) == 0)
			return (int)i;
	return -1;
}

/* The environment's limits of the GPU, by its place in the order that they are numbered in. */
static void env_limits(const struct slice_env *env, const char *uuid, int index,
		       uint64_t *ret_memory_bytes, unsigned *ret_cores_pct)
{
	uint64_t memory = 0, cores = 0;

	if (env->visible_count > 0)
		index = find_visible(env, uuid);
	for (int i = 0; i < VGPU_DEVICES_MAX; i++) {
		if (index >= 0 && index < VGPU_DEVICES_MAX && i != index)
			continue;
		memory = slice_stricter(memory, env->memory_bytes[i]);
		cores = slice_stricter(cores, env->cores_pct[i]);
	}
	*ret_memory_bytes = memory;
	*ret_cores_pct = cores >= 100 ? 0 : (unsigned)cores;
}

bool slice_limits(const struct slice *slice, const char *uuid, int index,
		  struct slice_limits *ret_limits)
{
	int device = slice->has_policy ? policy_find(&slice->policy, uuid) : -1;

	if (slice->has_policy && device < 0)
		return false;
	env_limits(&slice->env, uuid, index, &ret_limits->env_bytes, &ret_limits->env_pct);
	ret_limits->policy = device < 0 ? NULL : &slice->policy.device[device];
	return true;
}

unsigned slice_policy_cores(const struct slice_limits *limits)
{
	unsigned pct = 0;

	if (limits->policy)
		pct = __atomic_load_n(&limits->policy->cores_pct, __ATOMIC_RELAXED);
	return pct >= 100 ? 0 : pct;
}

unsigned slice_policy_cores_most(const struct slice_limits *limits)
{
	if (!limits->policy)
		return 0;
	return __atomic_load_n(&limits->policy->cores_most_pct, __ATOMIC_RELAXED);
}

uint64_t slice_policy_burst(const struct slice_limits *limits)
{
	return limits->policy ? __atomic_load_n(&limits->policy->burst_ns, __ATOMIC_RELAXED) : 0;
}

uint64_t slice_memory(const struct slice_limits *limits, uint64_t region_first, uint64_t region)
{
	uint64_t env = limits->env_bytes, policy = 0;

	if (region && region_first && env >= region_first)
		env = 0; /* it is in the region, which may say something else by now */
	if (limits->policy)
		policy = __atomic_load_n(&limits->policy->memory_bytes, __ATOMIC_RELAXED);
	return slice_stricter(policy, slice_stricter(region, env));
}

/* Stores the name byte by byte, because other threads may read it meanwhile. At worst they see a
 * part of the new name, and the caller passes the whole name on afterwards. */
static void renew_gang(struct policy_gang *gang, const struct policy_gang *from)
{
	for (unsigned i = 0; i <= POLICY_GANG_MAX; i++)
		__atomic_store_n(&gang->name[i], from->name[i], __ATOMIC_RELAXED);
	__atomic_store_n(&gang->rule, from->rule, __ATOMIC_RELEASE);
}

struct policy_gang slice_gang(const struct slice *slice)
{
	struct policy_gang gang = {.name = ""};

	/* Pairs with renew_gang's release. */
	gang.rule = __atomic_load_n(&slice->policy.gang.rule, __ATOMIC_ACQUIRE);
	for (unsigned i = 0; i <= POLICY_GANG_MAX; i++)
		gang.name[i] = __atomic_load_n(&slice->policy.gang.name[i], __ATOMIC_RELAXED);
	gang.name[POLICY_GANG_MAX] = '\0';
	return gang;
}

void slice_renew(struct slice *slice, const struct policy *policy)
{
	for (unsigned i = 0; i < slice->policy.device_count; i++) {
		int at = policy_find(policy, slice->policy.device[i].uuid);

		if (at < 0)
			continue;
		__atomic_store_n(&slice->policy.device[i].memory_bytes,
				 policy->device[at].memory_bytes, __ATOMIC_RELAXED);
		__atomic_store_n(&slice->policy.device[i].cores_pct, policy->device[at].cores_pct,
				 __ATOMIC_RELAXED);
		__atomic_store_n(&slice->policy.device[i].cores_most_pct,
				 policy->device[at].cores_most_pct, __ATOMIC_RELAXED);
		__atomic_store_n(&slice->policy.device[i].burst_ns, policy->device[at].burst_ns,
				 __ATOMIC_RELAXED);
	}
	renew_gang(&slice->policy.gang, &policy->gang);
}

bool slice_narrows(const struct slice *slice)
{
	return slice->has_policy || slice->env.visible_count > 0;
}

bool slice_shows(const struct slice *slice, const char *uuid)
{
	if (slice->has_policy)
		return policy_find(&slice->policy, uuid) >= 0;
	return slice->env.visible_count == 0 || find_visible(&slice->env, uuid) >= 0;
}
