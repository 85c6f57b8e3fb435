/*
 * One slice in the overview: its region, its processes, and the state that follows from both.
 *
 * A region is opened read-only and without its lock, so that neither a FIFO in its place nor a
 * stopped process can block the caller. It is read under guard (guard.h), because its tenant may
 * truncate it. The figures are copied, and the region is closed. Then /proc is searched for the
 * processes' pids and commands.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "clock.h"
#include "guard.h"
#include "held.h"
#include "overview_internal.h"
#include "procs.h"
#include "sys.h"

/* -- a region ---------------------------------------------------------------------------------- */

int overview_see(const char *path, struct sight *ret_sight, struct fault *fault)
{
	struct region region = REGION_CLOSED;
	int error;

	guard_begin();
	error = region_inspect(path, &region, fault);
	if (!error)
		sight_take(&region, ret_sight);
	region_close(&region);
	if (guard_end())
		return fault_set(fault, -EUCLEAN,
				 "the region %.300s was truncated just now: try again", path);
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

/* Keeps the pids of exiting processes in this process's pid namespace. */
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
	slice->looked_ns = sight->looked_ns;
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

bool overview_has_state(const struct overview_process *process, const char *state)
{
	return strcmp(process->seen.state, state) == 0;
}

static bool lives(const struct overview_process *process)
{
	return overview_has_state(process, "running") || overview_has_state(process, "paused");
}

bool overview_is_process(const struct overview_process *process, unsigned pid)
{
	return lives(process) && pid > 0 &&
	       ((unsigned)process->here == pid || (unsigned)process->seen.hostpid == pid);
}

static void name_process(struct procs *procs, struct overview_process *process)
{
	const struct sight_process *seen = &process->seen;

	process->here = procs_find(procs, seen->pid_namespace, seen->pid);
	/* A dead process of another pid namespace counts as dying until it has been watched for a
	 * while. If /proc shows all processes and not this one, it has ended. */
	if (overview_has_state(process, "dying") && !process->here && procs_sees_all(procs))
		process->seen.state = "dead";
	if (lives(process))
		procs_command(process->here, process->command, sizeof(process->command));
}

static void name_processes(struct procs *procs, struct overview_slice *slice)
{
	for (unsigned i = 0; i < slice->process_count; i++) {
		struct overview_process *process = &slice->process[i];

		name_process(procs, process);
		slice->running += overview_has_state(process, "running");
		slice->paused_count += overview_has_state(process, "paused");
		slice->dying += overview_has_state(process, "dying");
		slice->dead += overview_has_state(process, "dead");
	}
}

/* Whether a line of /proc/PID/maps (proc(5)) is of a mapping of the slice's region. */
static bool is_of_region(const char *line, const struct overview_slice *slice)
{
	unsigned major, minor;
	unsigned long long inode;

	return sscanf(line, "%*s %*s %*s %x:%x %llu", &major, &minor, &inode) == 3 &&
	       makedev(major, minor) == slice->file_device && inode == slice->file_inode;
}

bool overview_has_region(const struct overview_slice *slice, int pid)
{
	char path[48], *line = NULL;
	bool found = false;
	size_t room = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	while (maps && !found && getline(&line, &room, maps) >= 0)
		found = is_of_region(line, slice);
	free(line);
	if (maps)
		fclose(maps);
	return found;
}

/* -- a slice ----------------------------------------------------------------------------------- */

/* Whether there is no region: no file, or a file that begins with zeros, because the magic at its
 * begin is stored last. */
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

/* Calls overview_see. If there is no region, the function succeeds, and the sight is empty. An
 * error is checked by a second call: while another process makes the region, it may look
 * damaged. */
static int see_if_there(const char *path, struct sight *ret_sight, struct fault *fault)
{
	int error = overview_see(path, ret_sight, fault);

	if (!error)
		return 0;
	if (lacks_region(path)) {
		ret_sight->device_count = ret_sight->process_count = ret_sight->exiting_count = 0;
		return 0;
	}
	return overview_see(path, ret_sight, fault);
}

static enum overview_state state_without_process(const struct slices_one *one)
{
	if (one->kind != SLICES_RUN)
		return OVERVIEW_EMPTY;
	return held_by_run(one) ? OVERVIEW_IDLE : OVERVIEW_LEFTOVER;
}

int overview_look_at_slice(struct overview_looker *looker, struct overview_slice *slice)
{
	static struct sight_process processes[VGPU_SLOTS_MAX];
	static struct sight_exiting exiting[VGPU_SLOTS_MAX];
	struct sight sight = {.process = processes, .exiting = exiting};
	struct fault fault = {""};

	if (see_if_there(slice->one->region_path, &sight, &fault)) {
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

void overview_free_slice(struct overview_slice *slice)
{
	free(slice->why);
	free(slice->device);
	free(slice->process);
	free(slice->exiting);
}
