/*
 * The machine at one look: directories of slices are listed, each slice is looked at (look.c), and
 * NVML is asked for the GPUs. Then the two are brought together: which GPU a slice's device is, and
 * which processes on a GPU belong to no slice.
 */
#include "overview_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "departed.h"
#include "env.h"
#include "held.h"
#include "least_turns.h"
#include "pod_cgroup.h"
#include "pod_logs.h"
#include "procs.h"
#include "tenants.h"

#define PODS_NS (5 * NS_PER_S) /* from one search of control groups to the next */

/* -- freeing ----------------------------------------------------------------------------------- */

void overview_free(struct overview *overview)
{
	for (unsigned i = 0; i < overview->count; i++)
		overview_free_slice(&overview->slice[i]);
	free(overview->slice);
	free(overview->stranger);
	usage_free(&overview->usage);
	slices_free(&overview->slices);
	memset(overview, 0, sizeof(*overview));
}

const char *overview_state_name(enum overview_state state)
{
	static const char *const names[] = {"running", "idle", "empty", "leftover", "unreadable"};

	return names[state];
}

/* -- GPUs -------------------------------------------------------------------------------------- */

static int find_gpu(const struct usage *usage, const char *uuid)
{
	for (unsigned i = 0; i < usage->gpu_count; i++)
		if (strcmp(usage->gpu[i].uuid, uuid) == 0)
			return (int)i;
	return -1;
}

static bool has_process(const struct overview_slice *slice, unsigned pid)
{
	for (unsigned i = 0; i < slice->process_count; i++)
		if (overview_is_process(&slice->process[i], pid))
			return true;
	return false;
}

static void add_nvml_time(const struct overview_slice *slice, struct overview_device *device,
			  const struct usage_gpu *gpu)
{
	int sum = 0;

	for (unsigned i = 0; i < gpu->process_count; i++)
		if (gpu->process[i].busy_pct > 0 && has_process(slice, gpu->process[i].pid))
			sum += gpu->process[i].busy_pct;
	device->cores_used_pct = sum < 100 ? sum : 100;
	device->counter = OVERVIEW_NVML;
}

static void find_gpus(struct overview *overview)
{
	for (unsigned i = 0; i < overview->count; i++)
		for (unsigned d = 0; d < overview->slice[i].device_count; d++) {
			const struct overview_slice *slice = &overview->slice[i];
			struct overview_device *device = &slice->device[d];

			device->gpu = find_gpu(&overview->usage, device->seen.uuid);
			if (device->gpu >= 0 && slice->state == OVERVIEW_RUNNING &&
			    !overview_is_counted(slice, device) &&
			    overview->usage.gpu[device->gpu].knows_busy)
				add_nvml_time(slice, device, &overview->usage.gpu[device->gpu]);
		}
}

/* -- strangers --------------------------------------------------------------------------------- */

static int by_number(const void *left, const void *right)
{
	const unsigned *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

/* Stores the pids of the slice's processes, also of exiting ones. Returns their number: at most two
 * for each process. */
static size_t add_pids(const struct overview_slice *slice, unsigned *pids)
{
	size_t count = 0;

	for (unsigned i = 0; i < slice->process_count; i++) {
		if (overview_has_state(&slice->process[i], "dead"))
			continue;
		pids[count++] = (unsigned)slice->process[i].here;
		pids[count++] = (unsigned)slice->process[i].seen.hostpid;
	}
	for (unsigned i = 0; i < slice->exiting_count; i++)
		pids[count++] = (unsigned)slice->exiting[i];
	return count;
}

/* The sorted pids of all processes of the slices in the overview; NULL without memory. */
static unsigned *list_pids(const struct overview *overview, size_t *ret_count)
{
	size_t most = 1, count = 0;
	unsigned *pids;

	for (unsigned i = 0; i < overview->count; i++)
		most += 2 * (size_t)overview->slice[i].process_count +
			overview->slice[i].exiting_count;
	pids = calloc(most, sizeof(*pids));
	for (unsigned i = 0; pids && i < overview->count; i++)
		count += add_pids(&overview->slice[i], pids + count);
	if (pids)
		qsort(pids, count, sizeof(*pids), by_number);
	*ret_count = count;
	return pids;
}

static bool add_stranger(struct overview *overview, unsigned gpu, const struct usage_process *seen,
			 bool named)
{
	struct overview_stranger *more = realloc(
		overview->stranger, (overview->stranger_count + 1) * sizeof(*overview->stranger));

	if (!more)
		return false;
	overview->stranger = more;
	more += overview->stranger_count++;
	*more = (struct overview_stranger){.gpu = gpu, .seen = *seen};
	if (named)
		procs_command((int)seen->pid, more->command, sizeof(more->command));
	return true;
}

/* Finds the processes on GPUs that are in no slice. They have commands only on the host: elsewhere,
 * NVML's pid may be another process's. */
static int find_strangers(const struct overview_looker *looker, struct overview *overview)
{
	bool named = procs_is_host(looker->procs);
	size_t count;
	unsigned *pids = list_pids(overview, &count);
	bool going = pids != NULL;

	for (unsigned g = 0; going && g < overview->usage.gpu_count; g++) {
		const struct usage_gpu *gpu = &overview->usage.gpu[g];

		for (unsigned i = 0; going && i < gpu->process_count; i++)
			if (!bsearch(&gpu->process[i].pid, pids, count, sizeof(*pids), by_number))
				going = add_stranger(overview, g, &gpu->process[i], named);
	}
	free(pids);
	return going ? 0 : -ENOMEM;
}

/* -- all --------------------------------------------------------------------------------------- */

int overview_open(struct overview_looker *looker, char **name, struct fault *fault)
{
	looker->name = name;
	looker->usage = usage_open(&looker->no_usage);
	looker->procs = procs_new();
	if (!looker->procs) {
		overview_close(looker);
		return fault_set(fault, -ENOMEM, "there is no memory to look at the slices");
	}
	return 0;
}

void overview_close(struct overview_looker *looker)
{
	usage_close(looker->usage);
	procs_free(looker->procs);
	memset(looker, 0, sizeof(*looker));
}

/* Chooses the slices to look at, by their indices, because the list moves as it grows. */
static int choose(const struct overview_looker *looker, struct overview *overview,
		  bool **ret_chosen, struct fault *fault)
{
	unsigned most = overview->slices.count;
	bool *chosen;

	for (char **name = looker->name; *name; name++)
		most++; /* a region's path may not be in the list yet */
	chosen = calloc(most + 1, sizeof(*chosen));
	if (!chosen)
		return fault_set(fault, -ENOMEM, "there is no memory for a list of the slices");
	for (char **name = looker->name; *name; name++) {
		const struct slices_one *one;
		int error = slices_find(&overview->slices, *name, &one, fault);

		if (error) {
			free(chosen);
			return error;
		}
		chosen[one - overview->slices.one] = true;
	}
	*ret_chosen = chosen;
	return 0;
}

static int by_slice(const void *left, const void *right)
{
	const struct overview_slice *a = left, *b = right;

	return slices_compare(a->one, b->one);
}

/* Whether the slice is another user's, and only a group may read it. It is left out, as directories
 * are that cannot be read. */
static bool is_foreign(const struct overview_slice *slice)
{
	return slice->state == OVERVIEW_UNREADABLE && slice->one->owner != geteuid() &&
	       access(slice->one->region_path, R_OK) != 0 && errno == EACCES;
}

static void forget_slice(struct overview_slice *slice)
{
	overview_free_slice(slice);
	memset(slice, 0, sizeof(*slice));
}

/* 0 or -ENOMEM. */
static int look_at_one(struct overview_looker *looker, struct overview *overview,
		       struct tenants *tenants, unsigned index)
{
	struct overview_slice *slice = &overview->slice[overview->count];
	int error;

	slice->one = &overview->slices.one[index];
	if (!tenants_admit(tenants, slice->one, looker->most_of_tenant)) {
		overview->left_out++;
		return 0;
	}
	overview->count++;
	error = overview_look_at_slice(looker, slice);
	if (!*looker->name && is_foreign(slice)) {
		forget_slice(slice);
		overview->count--;
	}
	return error;
}

static int look_at_slices(struct overview_looker *looker, struct overview *overview,
			  struct fault *fault)
{
	struct tenants tenants = {0, NULL};
	bool *chosen = NULL;
	int error = choose(looker, overview, &chosen, fault);

	if (error)
		return error;
	overview->slice = calloc(overview->slices.count + 1, sizeof(*overview->slice));
	if (!overview->slice)
		error = -ENOMEM;
	for (unsigned i = 0; !error && i < overview->slices.count; i++)
		if (!*looker->name || chosen[i])
			error = look_at_one(looker, overview, &tenants, i);
	tenants_free(&tenants);
	free(chosen);
	for (unsigned i = 1; i < overview->count; i++)
		overview->many_users =
			overview->many_users ||
			overview->slice[i].one->owner != overview->slice[0].one->owner;
	if (overview->count > 0) /* regions that were named by their path are at the list's end */
		qsort(overview->slice, overview->count, sizeof(*overview->slice), by_slice);
	return error ? fault_set(fault, error, "there is no memory to look at the slices") : 0;
}

/* One of the kubelet's directories. */
static const char *find_place(const char *given, const char *variable, const char *usual)
{
	const char *named = env_get(variable);

	if (given)
		return given;
	return named ? named : usual;
}

static void search_control_groups(struct overview_looker *looker, struct overview *overview)
{
	uint64_t now_ns = clock_now_ns();

	if (looker->pods_ns && now_ns - looker->pods_ns < PODS_NS)
		return;
	looker->pods_ns = now_ns;
	pod_cgroup_name(overview,
			find_place(looker->pod_links, "VGPU_CONTAINER_LOGS", POD_CGROUP_LINKS_DIR));
}

int overview_take(struct overview_looker *looker, struct overview *ret_overview,
		  struct fault *fault)
{
	struct overview overview = {.count = 0};
	int error = slices_list(&overview.slices, fault);

	pod_logs_name(&overview.slices,
		      find_place(looker->pod_logs, "VGPU_POD_LOGS", POD_LOGS_DIR));
	procs_begin(looker->procs);
	held_begin(!looker->only_reads);
	if (!error)
		error = look_at_slices(looker, &overview, fault);
	if (!error)
		search_control_groups(looker, &overview);
	if (!error && looker->usage)
		usage_take(looker->usage, &overview.usage);
	least_turns_read(&overview.usage);
	find_gpus(&overview);
	departed_settle(&overview, looker->procs);
	if (!error && !*looker->name && find_strangers(looker, &overview))
		error = fault_set(fault, -ENOMEM, "there is no memory to look at the GPUs");
	if (error) {
		overview_free(&overview);
		return error;
	}
	*ret_overview = overview;
	return 0;
}
