/*
 * A look takes time: a process may come to a GPU after the look at its region and before the
 * question to NVML. A process that exits leaves its slot before the GPU is free of it. So a
 * finding counts only after several consecutive looks.
 *
 * A process is known by its pid and the time at which it started. It is ended through a
 * descriptor (pidfd_open(2)) that was opened before that time was read, so no later process of
 * that pid is signalled. The audit ends processes only on the host, where NVML's pids are
 * valid.
 */
#include "audit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "policy.h"
#include "procs.h"
#include "size.h"
#include "slice.h"

#define OUTSIDE_LOOKS 3 /* consecutive looks before an event reports it */
#define EXCESS_LOOKS  5
#define LIFTED_LOOKS  3
#define KILL_NS       (10 * NS_PER_S) /* SIGKILL follows SIGTERM after this time */

#define PF_EXITING 0x4                      /* linux/sched.h */
enum { STAT_FLAGS = 9, STAT_STARTED = 22 }; /* proc(5) */

enum reason { OUTSIDE, EXCESS };

struct audit_process {
	enum reason reason;
	unsigned pid;
	uint64_t started; /* clock ticks since boot; 0: not known, so the process is never ended */
	unsigned looks;   /* consecutive looks that found it */
	bool found;       /* at this look */
	bool told;
	uint64_t since_ns,
		asked_ns; /* when it was first found, and when SIGTERM was sent; 0: never */
	bool killed;
};

/* -- processes --------------------------------------------------------------------------------- */

/* A field of /proc/PID/stat as a number, counted from 1; 0 where there is none. Field 2, the
 * name, may hold any character, and ends with the last ")". */
static uint64_t stat_field(unsigned pid, int wanted)
{
	char path[48], stat[1024] = "";
	const char *at;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (!fgets(stat, sizeof(stat), file))
		*stat = '\0';
	fclose(file);
	at = strrchr(stat, ')');
	for (int field = 2; at && field < wanted; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

static uint64_t started_at(unsigned pid)
{
	return stat_field(pid, STAT_STARTED);
}

static bool is_exiting(unsigned pid)
{
	return stat_field(pid, STAT_FLAGS) & PF_EXITING;
}

/* Whether the process runs a program that may be on a GPU without a slice. The files are
 * compared, not the paths, as the process decides what its path looks like. */
static bool is_allowed(const struct config *config, unsigned pid)
{
	struct stat running, allowed;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%u/exe", pid);
	if (stat(path, &running) < 0)
		return false;
	for (char **at = config->audit_allow; at && *at; at++)
		if (stat(*at, &allowed) == 0 && allowed.st_dev == running.st_dev &&
		    allowed.st_ino == running.st_ino)
			return true;
	return false;
}

static struct audit_process *find(struct audit *audit, enum reason reason, unsigned pid,
				  uint64_t started)
{
	for (unsigned i = 0; i < audit->count; i++) {
		struct audit_process *process = &audit->process[i];

		if (process->reason == reason && process->pid == pid && process->started == started)
			return process;
	}
	return NULL;
}

/* Adds a finding at this look. Returns the process, or NULL without memory. */
static struct audit_process *note(struct audit *audit, enum reason reason, unsigned pid,
				  bool is_host)
{
	uint64_t started = is_host ? started_at(pid) : 0;
	struct audit_process *process = find(audit, reason, pid, started), *more;

	if (!process) {
		more = realloc(audit->process, (audit->count + 1) * sizeof(*more));
		if (!more)
			return NULL;
		audit->process = more;
		process = &more[audit->count++];
		*process = (struct audit_process){.reason = reason,
						  .pid = pid,
						  .started = started,
						  .since_ns = clock_now_ns()};
	}
	process->looks += !process->found; /* once a look, though it may be on several GPUs */
	process->found = true;
	return process;
}

static void forget_others(struct audit *audit)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < audit->count; i++)
		if (audit->process[i].found)
			audit->process[kept++] = audit->process[i];
	audit->count = kept;
	for (unsigned i = 0; i < kept; i++)
		audit->process[i].found = false;
}

/* -- ending them ------------------------------------------------------------------------------- */

static int signal_process(const struct audit_process *process, int number)
{
	int fd = (int)syscall(SYS_pidfd_open, process->pid, 0), error = 0;

	if (fd < 0)
		return -errno;
	if (started_at(process->pid) != process->started)
		error = -ESRCH;
	else if (syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) < 0)
		error = -errno;
	close(fd);
	return error;
}

static void end(struct audit_process *process, int number, struct events *events)
{
	struct json_object *event = event_of(NULL, NULL);
	int error = signal_process(process, number);
	const char *name = number == SIGTERM ? "SIGTERM" : "SIGKILL";
	char command[OVERVIEW_COMMAND_LEN];

	procs_command((int)process->pid, command, sizeof(command));
	event_add_number(event, "pid", process->pid);
	event_add_text(event, "command", command);
	event_add_text(event, "signal", name);
	event_add_text(event, "reason",
		       process->reason == OUTSIDE ? "process_outside" : "slice_excess");
	if (error)
		event_add_text(event, "error", strerror(-error));
	events_tell(events, EVENT_ENDED, event, "process %u (%s) %s %s, because %s%s%s",
		    process->pid, command, error ? "was to be sent" : "was sent", name,
		    process->reason == OUTSIDE ? "it is on a GPU without a slice"
					       : "its slice holds more than its ledger has",
		    error ? "; sending it failed: " : "", error ? strerror(-error) : "");
}

static void end_if_due(struct audit_process *process, const struct config *config,
		       struct events *events)
{
	bool wanted =
		process->reason == OUTSIDE ? config->audit_end_outside : config->audit_end_excess;
	uint64_t now_ns = clock_now_ns();

	if (!wanted || !process->started || process->pid <= 1 || process->killed ||
	    process->pid == (unsigned)getpid() ||
	    now_ns - process->since_ns < config->audit_grace_s * NS_PER_S)
		return;
	if (!process->asked_ns) {
		process->asked_ns = now_ns;
		end(process, SIGTERM, events);
	} else if (now_ns - process->asked_ns >= KILL_NS) {
		process->killed = true;
		end(process, SIGKILL, events);
	}
}

/* -- processes in no slice --------------------------------------------------------------------- */

static void tell_outside(const struct overview *overview, const struct overview_stranger *stranger,
			 struct events *events)
{
	const struct usage_gpu *gpu = &overview->usage.gpu[stranger->gpu];
	struct json_object *event = event_of(NULL, gpu->uuid);
	bool known = stranger->seen.bytes != USAGE_UNKNOWN_BYTES;
	char size[32];

	event_add_number(event, "pid", stranger->seen.pid);
	if (*stranger->command)
		event_add_text(event, "command", stranger->command);
	if (known)
		event_add_number(event, "memory_used_bytes", stranger->seen.bytes);
	events_tell(events, EVENT_OUTSIDE, event,
		    "process %u (%s) is on GPU %u without a slice, and holds %s of it",
		    stranger->seen.pid, *stranger->command ? stranger->command : "?", gpu->index,
		    known ? size_format(stranger->seen.bytes, size, sizeof(size)) : "some memory");
}

static void look_outside(struct audit *audit, const struct config *config,
			 const struct overview *overview, bool is_host, struct events *events)
{
	for (unsigned i = 0; i < overview->stranger_count; i++) {
		const struct overview_stranger *stranger = &overview->stranger[i];
		struct audit_process *process;

		if (is_host &&
		    (is_allowed(config, stranger->seen.pid) || is_exiting(stranger->seen.pid)))
			continue;
		process = note(audit, OUTSIDE, stranger->seen.pid, is_host);
		if (process && process->looks == OUTSIDE_LOOKS && !process->told) {
			process->told = true;
			tell_outside(overview, stranger, events);
		}
	}
}

/* -- slices that hold more --------------------------------------------------------------------- */

/* The bytes that NVML counts for a process on a GPU; 0 where NVML does not tell. */
static uint64_t nvml_bytes(const struct usage_gpu *gpu, const struct overview_process *process)
{
	for (unsigned i = 0; i < gpu->process_count; i++)
		if (gpu->process[i].bytes != USAGE_UNKNOWN_BYTES &&
		    overview_is_process(process, gpu->process[i].pid))
			return gpu->process[i].bytes;
	return 0;
}

/* The part of the ledger's charge, in bytes, that NVML counts too: all but `offset`. */
static uint64_t ledger_bytes(const struct sight_held *held)
{
	return held->context + held->module + held->data;
}

/* The bytes that NVML counts for all processes of the slice above the ledger. The sum is
 * compared, as memory that processes share is charged to one of them. *ret_most is the process
 * that exceeds its charge by most, or NULL. */
static uint64_t excess_of(const struct overview_slice *slice, unsigned device,
			  const struct usage_gpu *gpu, const struct overview_process **ret_most)
{
	uint64_t counted = 0, charged = 0, most = 0;

	*ret_most = NULL;
	for (unsigned i = 0; i < slice->process_count; i++) {
		const struct overview_process *process = &slice->process[i];
		uint64_t bytes = nvml_bytes(gpu, process);
		uint64_t ledger = ledger_bytes(&process->seen.held[device]);

		counted += bytes;
		charged += ledger;
		if (bytes > ledger && bytes - ledger > most) {
			most = bytes - ledger;
			*ret_most = process;
		}
	}
	return counted > charged ? counted - charged : 0;
}

static void tell_excess(const struct overview_slice *slice, const struct overview_device *device,
			const struct overview_process *most, uint64_t excess_bytes,
			struct events *events)
{
	struct json_object *event = event_of(slice->one, device->seen.uuid);
	char size[32];

	event_add_number(event, "excess_bytes", excess_bytes);
	event_add_number(event, "memory_used_bytes", device->seen.used_bytes);
	if (most) {
		event_add_number(event, "pid", (uint64_t)most->seen.pid);
		event_add_text(event, "command", most->command);
	}
	events_tell(events, EVENT_EXCESS, event,
		    "slice %s holds %s of %s more than its ledger has, process %d (%s) most of it",
		    slice->one->name, size_format(excess_bytes, size, sizeof(size)),
		    device->seen.uuid, most ? most->seen.pid : 0, most ? most->command : "?");
}

static void look_excess(struct audit *audit, const struct config *config,
			const struct overview_slice *slice, unsigned index,
			const struct usage_gpu *gpu, bool is_host, struct track_device *track,
			struct events *events)
{
	const struct overview_process *most;

	track->excess_bytes = excess_of(slice, index, gpu, &most);
	if (track->excess_bytes <= config->audit_excess_bytes) {
		track->excess_looks = 0;
		return;
	}
	track->excess_looks++;
	if (track->excess_looks == EXCESS_LOOKS)
		tell_excess(slice, &slice->device[index], most, track->excess_bytes, events);
	if (track->excess_looks >= EXCESS_LOOKS && most && most->here > 0 &&
	    overview_has_region(slice, most->here))
		note(audit, EXCESS, (unsigned)most->here, is_host);
}

/* -- policies ---------------------------------------------------------------------------------- */

/* The upper bound of a compute limit in percent, below 100; 0: no limit. */
static unsigned most_pct(unsigned pct, unsigned cores_most_pct)
{
	return slice_cores_most(pct, cores_most_pct) % 100;
}

/* Reads the policy again if its directory has changed. That is enough, as a policy's files are
 * renamed into place. */
static void read_policy(const struct overview_slice *slice, struct track_slice *track)
{
	static struct policy policy; /* static as it is large; vgpud has one thread */
	struct stat st;

	if (stat(slice->one->policy_path, &st) < 0 ||
	    (track->policy_time.tv_sec == st.st_mtim.tv_sec &&
	     track->policy_time.tv_nsec == st.st_mtim.tv_nsec && track->policy_inode == st.st_ino))
		return;
	if (policy_read(slice->one->policy_path, &policy, NULL))
		return;
	track->policy_time = st.st_mtim;
	track->policy_inode = st.st_ino;
	for (unsigned d = 0; d < track->device_count; d++) {
		struct track_device *device = &track->device[d];

		device->policy_bytes = device->policy_pct = device->policy_most_pct = 0;
		for (unsigned p = 0; p < policy.device_count; p++)
			if (strcmp(policy.device[p].uuid, slice->device[d].seen.uuid) == 0) {
				device->policy_bytes = policy.device[p].memory_bytes;
				device->policy_pct = policy.device[p].cores_pct % 100;
				device->policy_most_pct = most_pct(policy.device[p].cores_pct,
								   policy.device[p].cores_most_pct);
			}
	}
}

/* Whether a limit in the region is less strict than the policy's. 0 means no limit. */
static bool is_above(uint64_t region, uint64_t policy)
{
	return policy && (!region || region > policy);
}

static bool is_lifted(const struct overview_slice *slice, const struct track_slice *track)
{
	for (unsigned d = 0; d < slice->device_count; d++) {
		const struct sight_device *seen = &slice->device[d].seen;

		if (is_above(seen->limit_bytes, track->device[d].policy_bytes) ||
		    is_above(seen->cores_pct, track->device[d].policy_pct) ||
		    is_above(most_pct(seen->cores_pct, seen->cores_most_pct),
			     track->device[d].policy_most_pct))
			return true;
	}
	return false;
}

static void look_lifted(const struct overview_slice *slice, struct track_slice *track,
			struct events *events)
{
	if (!slice->one->policy_path)
		return;
	read_policy(slice, track); /* in any state, as turns_check.c needs it too */
	if (slice->state != OVERVIEW_RUNNING)
		return;
	track->lifted_looks = is_lifted(slice, track) ? track->lifted_looks + 1 : 0;
	track->policy_lifted = track->lifted_looks >= LIFTED_LOOKS;
	if (track->lifted_looks == LIFTED_LOOKS)
		events_tell(
			events, EVENT_LIFTED, event_of(slice->one, NULL),
			"the region of slice %s has limits above those of its policy: a program "
			"has written them; the policy holds, and vgpu set writes both",
			slice->one->name);
}

/* -- all --------------------------------------------------------------------------------------- */

void audit_look(struct audit *audit, const struct config *config, const struct overview *overview,
		struct procs *procs, struct track *track, struct events *events)
{
	bool is_host = procs_is_host(procs);

	look_outside(audit, config, overview, is_host, events);
	for (unsigned i = 0; i < overview->count; i++) {
		const struct overview_slice *slice = &overview->slice[i];

		look_lifted(slice, &track->slice[i], events);
		for (unsigned d = 0; d < slice->device_count; d++)
			if (slice->device[d].gpu >= 0)
				look_excess(audit, config, slice, d,
					    &overview->usage.gpu[slice->device[d].gpu], is_host,
					    &track->slice[i].device[d], events);
	}
	for (unsigned i = 0; i < audit->count; i++)
		if (audit->process[i].found)
			end_if_due(&audit->process[i], config, events);
	forget_others(audit);
}

void audit_close(struct audit *audit)
{
	free(audit->process);
	*audit = (struct audit){0, NULL};
}
