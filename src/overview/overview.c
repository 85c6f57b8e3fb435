/*
 * How it looks. Directories are listed; each region is opened read-only, without its lock, so that
 * neither a FIFO in its place nor a stopped process can hold us up, and looked at under guard
 * (guard.h), because others may truncate it. What is seen is copied, and the region closed. Then
 * /proc is asked for pids and commands, and NVML for what it knows.
 */
#include "overview_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "departed.h"
#include "guard.h"
#include "held.h"
#include "least_turns.h"
#include "procs.h"
#include "sys.h"
#include "tenants.h"

/* -- freeing ----------------------------------------------------------------------------------- */

static void free_slice(struct overview_slice *slice)
{
	free(slice->why);
	free(slice->device);
	free(slice->process);
	free(slice->exiting);
}

void overview_free(struct overview *overview)
{
	for (unsigned i = 0; i < overview->count; i++)
		free_slice(&overview->slice[i]);
	free(overview->slice);
	free(overview->stranger);
	usage_free(&overview->usage);
	slices_free(&overview->slices);
	memset(overview, 0, sizeof(*overview));
}

/* -- a region ---------------------------------------------------------------------------------- */

int overview_see(const char *path, struct sight *ret_sight, uint64_t *ret_looked_ns,
		 struct fault *fault)
{
	struct region region = REGION_CLOSED;
	int error;

	guard_begin();
	error = region_inspect(path, &region, fault);
	*ret_looked_ns = clock_now_ns();
	if (!error)
		sight_take(&region, ret_sight);
	region_close(&region);
	if (guard_end())
		return fault_set(fault, -EUCLEAN, "region %.300s was truncated just now", path);
	return error;
}

static uint64_t added(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static void add_held(struct sight_held *sum, const struct sight_held *held)
{
	sum->context = added(sum->context, held->context);
	sum->module = added(sum->module, held->module);
	sum->data = added(sum->data, held->data);
	sum->offset = added(sum->offset, held->offset);
	sum->total = added(sum->total, held->total);
}

static bool keep_devices(const struct sight *sight, struct overview_slice *slice)
{
	slice->device = calloc(sight->device_count + 1, sizeof(*slice->device));
	if (!slice->device)
		return false;
	slice->device_count = sight->device_count;
	for (unsigned i = 0; i < sight->device_count; i++) {
		struct overview_device *device = &slice->device[i];

		device->seen = sight->device[i];
		device->gpu = -1;
		device->cores_used_pct = device->throttled_pct = device->turn_waited_pct = -1;
		for (unsigned p = 0; p < sight->process_count; p++)
			add_held(&device->held, &sight->process[p].held[i]);
	}
	return true;
}

static bool keep_processes(const struct sight *sight, struct overview_slice *slice)
{
	slice->process = calloc(sight->process_count + 1, sizeof(*slice->process));
	if (!slice->process)
		return false;
	slice->process_count = sight->process_count;
	for (unsigned i = 0; i < sight->process_count; i++)
		slice->process[i].seen = sight->process[i];
	return true;
}

/* By the pids that /proc has for them. */
static bool keep_exiting(const struct sight *sight, struct procs *procs,
			 struct overview_slice *slice)
{
	slice->exiting = calloc(sight->exiting_count + 1, sizeof(*slice->exiting));
	if (!slice->exiting)
		return false;
	slice->exiting_count = sight->exiting_count;
	for (unsigned i = 0; i < sight->exiting_count; i++)
		slice->exiting[i] =
			procs_find(procs, sight->exiting[i].pid_namespace, sight->exiting[i].pid);
	return true;
}

static bool keep(const struct sight *sight, struct overview_slice *slice)
{
	slice->key = sight->key;
	slice->file_device = sight->file_device;
	slice->file_inode = sight->file_inode;
	slice->paused = sight->paused;
	slice->blocked = sight->blocked;
	slice->lifted = sight->lifted;
	slice->gang = sight->gang;
	slice->launched_s = sight->launched_s > 0 ? sight->launched_s : 0;
	return keep_devices(sight, slice) && keep_processes(sight, slice);
}

/* -- processes --------------------------------------------------------------------------------- */

static bool has_state(const struct overview_process *process, const char *state)
{
	return strcmp(process->seen.state, state) == 0;
}

static bool lives(const struct overview_process *process)
{
	return has_state(process, "running") || has_state(process, "paused");
}

static void name_process(struct procs *procs, struct overview_process *process)
{
	const struct sight_process *seen = &process->seen;

	process->here = procs_find(procs, seen->pid_namespace, seen->pid);
	/* Of another pid namespace, the dead count as dying until they have been watched for a
	 * while; but whoever is in none has ended. */
	if (has_state(process, "dying") && !process->here && procs_sees_all(procs))
		process->seen.state = "dead";
	if (lives(process))
		procs_command(process->here, process->command, sizeof(process->command));
}

static void name_processes(struct procs *procs, struct overview_slice *slice)
{
	for (unsigned i = 0; i < slice->process_count; i++) {
		struct overview_process *process = &slice->process[i];

		name_process(procs, process);
		slice->running += has_state(process, "running");
		slice->paused_count += has_state(process, "paused");
		slice->dying += has_state(process, "dying");
		slice->dead += has_state(process, "dead");
	}
}

/* -- a slice ----------------------------------------------------------------------------------- */

/* Whether there is no region yet, or any more: no file, or one of zeros at its beginning, where the
 * magic is stored last. */
static bool lacks_region(const char *path)
{
	int fd = sys_open_regular(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	uint64_t start = 0;
	struct stat st;
	bool lacks;

	if (fd < 0)
		return fd == -ENOENT;
	lacks = fstat(fd, &st) == 0 && st.st_size <= (off_t)sizeof(struct vgpu_region_file) &&
		pread(fd, &start, sizeof(start), 0) >= 0 && start == 0;
	close(fd);
	return lacks;
}

/* The same as overview_see, but nothing where there is no region; one that is being made just now
 * may look like something else for a moment. */
static int see_if_there(const char *path, struct sight *ret_sight, uint64_t *ret_looked_ns,
			struct fault *fault)
{
	int error = overview_see(path, ret_sight, ret_looked_ns, fault);

	if (!error)
		return 0;
	if (lacks_region(path)) {
		ret_sight->device_count = ret_sight->process_count = ret_sight->exiting_count = 0;
		return 0;
	}
	return overview_see(path, ret_sight, ret_looked_ns, fault);
}

static enum overview_state state_without_process(const struct slices_one *one)
{
	if (one->kind != SLICES_RUN)
		return OVERVIEW_EMPTY;
	return held_by_run(one) ? OVERVIEW_IDLE : OVERVIEW_LEFTOVER;
}

/* -ENOMEM. */
static int look_at_slice(struct overview_looker *looker, struct overview_slice *slice)
{
	static struct sight_process processes[VGPU_SLOTS_MAX];
	static struct sight_exiting exiting[VGPU_SLOTS_MAX];
	struct sight sight = {.process = processes, .exiting = exiting};
	struct fault fault = {""};

	if (see_if_there(slice->one->region_path, &sight, &slice->looked_ns, &fault)) {
		slice->state = OVERVIEW_UNREADABLE;
		slice->why = strdup(fault.text);
		return slice->why ? 0 : -ENOMEM;
	}
	if (!keep(&sight, slice) || !keep_exiting(&sight, looker->procs, slice))
		return -ENOMEM;
	name_processes(looker->procs, slice);
	slice->state = slice->running + slice->paused_count > 0 ? OVERVIEW_RUNNING
								: state_without_process(slice->one);
	return 0;
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

bool overview_is_process(const struct overview_process *process, unsigned pid)
{
	return lives(process) && pid > 0 &&
	       ((unsigned)process->here == pid || (unsigned)process->seen.hostpid == pid);
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

/* Those of a slice's processes, also of such as exit. How many: at most two of each. */
static size_t add_pids(const struct overview_slice *slice, unsigned *pids)
{
	size_t count = 0;

	for (unsigned i = 0; i < slice->process_count; i++) {
		if (has_state(&slice->process[i], "dead"))
			continue;
		pids[count++] = (unsigned)slice->process[i].here;
		pids[count++] = (unsigned)slice->process[i].seen.hostpid;
	}
	for (unsigned i = 0; i < slice->exiting_count; i++)
		pids[count++] = (unsigned)slice->exiting[i];
	return count;
}

/* The pids of all shown slices' processes, sorted: *ret_count of them. */
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

/* Elsewhere than on the host, a pid of NVML's may be another process's here. */
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

/* Which slices to look at: by their places, as the list moves while it grows. */
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

/* Whether it is another user's, who lets only the members of a group look at it. It is passed over
 * as a directory is that cannot be read. */
static bool is_foreign(const struct overview_slice *slice)
{
	return slice->state == OVERVIEW_UNREADABLE && slice->one->owner != geteuid() &&
	       access(slice->one->region_path, R_OK) != 0 && errno == EACCES;
}

static void forget_slice(struct overview_slice *slice)
{
	free_slice(slice);
	memset(slice, 0, sizeof(*slice));
}

/* -ENOMEM. */
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
	error = look_at_slice(looker, slice);
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

int overview_take(struct overview_looker *looker, struct overview *ret_overview,
		  struct fault *fault)
{
	struct overview overview = {.count = 0};
	int error = slices_list(&overview.slices, fault);

	procs_begin(looker->procs);
	held_begin(!looker->only_reads);
	if (!error)
		error = look_at_slices(looker, &overview, fault);
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
