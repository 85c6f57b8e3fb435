/*
 * A name is looked for in all of this user's state directories. So a slice that was made in a
 * login session is found from ssh or cron, although XDG_RUNTIME_DIR is not set there. A slice
 * is made only if the request has limits or --unlimited, so that a mistyped name makes no
 * slice.
 *
 * No user joins another user's slice, not even root. The slice's owner could change its policy and
 * its region while root's program runs, and this user has no right to hold its lock.
 */
#include "run_slice.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "size.h"
#include "slices.h"

#define SHORT      4  /* a name of so many letters may have one wrong letter, a longer one two */
#define LISTED_MAX 12 /* names in a message */

/* -- a slice that has other limits ------------------------------------------------------------- */

/* Writes the slice's GPUs and limits into buf, for people, for example "GPU 0 with 8 GiB and 30
 * % of its time, GPU 1 without a memory limit". */
static void describe(const struct policy *policy, const struct gpus *all, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < all->count && at < len; i++) {
		int device = policy_find(policy, all->gpu[i].uuid);
		uint64_t bytes = device < 0 ? 0 : policy->device[device].memory_bytes;
		unsigned pct = device < 0 ? 0 : policy->device[device].cores_pct;
		char size[32], pcts[32], share[64] = "", time[32], burst[64] = "";

		if (device < 0)
			continue;
		if (bytes)
			size_format(bytes, size, sizeof(size));
		if (pct)
			snprintf(share, sizeof(share), " and %s %% of its time",
				 policy_cores_name(pct, policy->device[device].cores_most_pct, pcts,
						   sizeof(pcts)));
		if (policy->device[device].burst_ns)
			snprintf(burst, sizeof(burst), " (--burst %s)",
				 policy_burst_name(policy->device[device].burst_ns, time,
						   sizeof(time)));
		at += (size_t)snprintf(buf + at, len - at, "%sGPU %u with%s%s%s%s", at ? ", " : "",
				       i, bytes ? " " : "out a", bytes ? size : " memory limit",
				       share, burst);
	}
}

static bool is_limited(const struct policy *policy)
{
	for (unsigned i = 0; i < policy->device_count; i++)
		if (policy->device[i].memory_bytes || policy->device[i].cores_pct)
			return true;
	return false;
}

/* Whether both devices have the same compute quota. */
static bool same_cores(const struct policy_device *a, const struct policy_device *b)
{
	return a->cores_pct == b->cores_pct && a->cores_most_pct == b->cores_most_pct;
}

/* Whether the slice has all that the request gives. Options that were not given fit any slice.
 */
static bool fits(const struct run_request *request, const struct policy *wanted,
		 const struct policy *has)
{
	if (request->gpus && wanted->device_count != has->device_count)
		return false;
	if (request->oversubscribe && !has->oversubscribe)
		return false;
	if (request->gang_word && !policy_gang_equals(&request->gang, &has->gang))
		return false;
	if (request->group_word && (!has->has_group || has->group != request->group))
		return false;
	if (request->unlimited && is_limited(has))
		return false;
	for (unsigned i = 0; i < wanted->device_count; i++) {
		int device = policy_find(has, wanted->device[i].uuid);

		if (device < 0) {
			if (request->gpus)
				return false;
			continue; /* limits alone say nothing about which GPUs */
		}
		if (request->memory &&
		    has->device[device].memory_bytes != wanted->device[i].memory_bytes)
			return false;
		if (request->cores && !same_cores(&has->device[device], &wanted->device[i]))
			return false;
		if (request->burst && has->device[device].burst_ns != wanted->device[i].burst_ns)
			return false;
	}
	return true;
}

static int refuse_to_join(const struct state_slice *slice, const struct gpus *all)
{
	bool has_gang = slice->policy.gang.rule != POLICY_GANG_FOUND;
	char has[1024];

	describe(&slice->policy, all, has, sizeof(has));
	return cli_fail(
		CLI_FAILED,
		"the slice %s lives already and has %s%s%s%s: to join it, leave --memory, "
		"--cores, --burst, --gpus, --oversubscribe, --gang, --group and --unlimited "
		"out; for another slice, choose another name",
		slice->name, has, slice->policy.oversubscribe ? ", oversubscribed" : "",
		has_gang ? ", with --gang " : "",
		has_gang ? policy_gang_word(&slice->policy.gang) : "");
}

/* -- no such slice ----------------------------------------------------------------------------- */

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* The edit distance of two names: the least number of letters to insert, remove, replace, or
 * swap with their neighbour. Names have at most STATE_NAME_MAX letters. */
static unsigned distance(const char *from, const char *to)
{
	unsigned row[3][STATE_NAME_MAX + 1] = {{0}}; /* this row of the table and the two before */
	size_t from_len = strlen(from), to_len = strlen(to);

	for (size_t j = 0; j <= to_len; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= from_len; i++) {
		unsigned *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= to_len; j++) {
			now[j] = least(least(now[j - 1], last[j]) + 1,
				       last[j - 1] + (from[i - 1] != to[j - 1]));
			if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
				now[j] = least(now[j], before[j - 2] + 1);
		}
	}
	return row[from_len % 3][to_len];
}

/* Whether vgpu run of this user may join the slice. */
static bool is_joinable(const struct slices_one *one)
{
	return one->kind == SLICES_RUN && one->owner == geteuid() &&
	       strlen(one->name) <= STATE_NAME_MAX;
}

/* Returns the name of this user's slice that is most like `name`, or starts with it; NULL:
 * there is none that the user may have meant. */
static const char *nearest(const struct slices *slices, const char *name)
{
	unsigned best = strlen(name) > SHORT ? 3 : 2; /* 1 + the letters that may differ */
	const char *found = NULL;

	for (unsigned i = 0; i < slices->count; i++) {
		const char *other = slices->one[i].name;
		unsigned apart;

		if (!is_joinable(&slices->one[i]))
			continue;
		apart = strncmp(other, name, strlen(name)) == 0 ? 1 : distance(name, other);
		if (apart < best && apart < strlen(name)) {
			best = apart;
			found = other;
		}
	}
	return found;
}

/* Writes the names of this user's slices into buf, LISTED_MAX of them at most. */
static void list_names(const struct slices *slices, char *buf, size_t len)
{
	unsigned count = 0;
	size_t at = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < slices->count; i++)
		if (is_joinable(&slices->one[i]) && count++ < LISTED_MAX)
			at += (size_t)snprintf(buf + at, len - at, "%s%s", at ? ", " : "",
					       slices->one[i].name);
	if (count > LISTED_MAX)
		snprintf(buf + at, len - at, " and %u more (vgpu ps lists them)",
			 count - LISTED_MAX);
}

/* Says why vgpu run does not join that slice. */
static int refuse_foreign(const struct slices_one *one)
{
	char user[64];

	if (one->kind != SLICES_RUN)
		return cli_fail(CLI_FAILED,
				"the slice %s was not made by vgpu run, and vgpu run does not join "
				"it: choose another name and give --memory or --cores",
				one->name);
	return cli_fail(CLI_FAILED,
			"the slice %s is the user %s's, and only that user's vgpu run joins it: "
			"run this as that user, or give --memory or --cores for a slice of your "
			"own with that name",
			one->name, slices_user(one, user, sizeof(user)));
}

static int refuse_unknown(const struct slices *slices, const char *name)
{
	char names[LISTED_MAX * (STATE_NAME_MAX + 2) + 64];
	const char *meant = nearest(slices, name);

	list_names(slices, names, sizeof(names));
	return cli_fail(
		CLI_FAILED,
		"there is no slice \"%s\"%s%s%s: give --memory or --cores for a new one, or "
		"--unlimited for one without limits. %s%s",
		name, meant ? " (did you mean \"" : "", meant ? meant : "", meant ? "\"?)" : "",
		names[0] ? "This user's slices: " : "This user has no slice", names);
}

/* Says that no slice of this user has that name. */
static int refuse_missing(const char *name)
{
	const struct slices_one *foreign = NULL;
	struct slices slices;
	int status;

	if (slices_list(&slices, NULL))
		return cli_fail(CLI_FAILED,
				"there is no slice \"%s\": give --memory or --cores for a new one",
				name);
	for (unsigned i = 0; i < slices.count && !foreign; i++)
		if (strcmp(slices.one[i].name, name) == 0 && !is_joinable(&slices.one[i]))
			foreign = &slices.one[i];
	status = foreign ? refuse_foreign(foreign) : refuse_unknown(&slices, name);
	slices_free(&slices);
	return status;
}

/* -- making or joining ------------------------------------------------------------------------- */

/* Makes a new slice with a name of its own. A vgpu run in another pid namespace may have this
 * pid as well, so names are tried until one is free. */
static int take_unnamed(const struct state *state, const struct policy *wanted,
			struct state_slice *ret_slice, struct fault *fault)
{
	char name[STATE_NAME_MAX + 1];
	int error = -EEXIST;

	for (unsigned i = 0; error == -EEXIST; i++) {
		if (i == 0)
			snprintf(name, sizeof(name), "run-%d", (int)getpid());
		else
			snprintf(name, sizeof(name), "run-%d-%u", (int)getpid(), i + 1);
		error = state_slice_take(state, name, STATE_MAKE, wanted, ret_slice, fault);
	}
	return error;
}

/* Opens the state directory that has a slice of that name; if there is none, or name is NULL,
 * opens the usual one. */
static int open_home(const char *name, struct state *ret_state, struct fault *fault)
{
	char paths[STATE_OWN_MAX][STATE_PATH_MAX], path[PATH_MAX];
	unsigned count = name ? state_own_paths(paths) : 0;

	for (unsigned i = 0; i < count; i++) {
		if (snprintf(path, sizeof(path), "%s/%s/" STATE_POLICY, paths[i], name) <
			    (int)sizeof(path) &&
		    access(path, F_OK) == 0)
			return state_open_at(paths[i], ret_state, fault);
	}
	return state_open(ret_state, fault);
}

int run_slice_take(const struct run_request *request, const struct policy *wanted,
		   const struct gpus *all, struct state *ret_state, struct state_slice *ret_slice)
{
	struct fault fault = {""};
	int error;

	state_sweep_all();
	if (open_home(request->name, ret_state, &fault))
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (request->name)
		error = state_slice_take(ret_state, request->name,
					 request->makes ? STATE_JOIN_OR_MAKE : STATE_JOIN, wanted,
					 ret_slice, &fault);
	else
		error = take_unnamed(ret_state, wanted, ret_slice, &fault);
	if (error == -ENOENT && !request->makes && !fault.text[0])
		return refuse_missing(request->name);
	if (error)
		return cli_fail(CLI_FAILED, "%s", fault.text);
	if (!ret_slice->joined || fits(request, wanted, &ret_slice->policy))
		return 0;
	error = refuse_to_join(ret_slice, all);
	state_slice_leave(ret_state, ret_slice);
	return error;
}
