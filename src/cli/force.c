/*
 * Finds the processes that keep a slice alive by their file locks, which /proc/PID/fdinfo
 * shows. A process in the region has a lock on its slot's byte; a vgpu run has a lock on the
 * slice's lock file. A tenant can write any pid into a slot, so the pid only says which process
 * to look at. A process without the lock is never signalled.
 *
 * The kernel may give a pid to another process before the pid is used. So a pidfd is opened
 * first, then the process's lock is looked for, and the signal is sent to the pidfd. Linux
 * before 5.3 has no pidfd, and the signal is sent to the pid immediately after the lock was
 * seen.
 *
 * A vgpu run passes SIGTERM on to its command, and removes the slice when the command ends. A
 * vgpu run never gets SIGKILL, because its command would survive it.
 */
#include "force.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "guard.h"
#include "held.h"
#include "procs.h"
#include "region.h"
#include "state.h"

#define POLL_NS (20 * NS_PER_MS)

/* A lock that keeps the slice alive, and the process that may have it. */
struct keeper {
	int pid;                 /* in this pid namespace; 0: unknown */
	const char *kind, *type; /* as in fdinfo: "OFDLCK" or "FLOCK", "READ" or "WRITE" */
	uint64_t start;          /* offset in the file of the first locked byte */
	struct stat file;        /* the locked file */
};

/* The result of a visit of all keepers. */
struct keepers {
	unsigned count, signalled;
	int denied; /* pid of a process that may not be signalled; 0: none */
};

/* -- whether a process has a lock -------------------------------------------------------------- */

/* Whether the line of fdinfo is about the keeper's lock. Such a line is, for example,
 * "lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 17 17". */
static bool says_lock(const char *line, const struct keeper *keeper)
{
	unsigned long long start;
	char kind[16], type[16];

	return sscanf(line, "lock: %*d: %15s %*s %15s %*s %*s %llu", kind, type, &start) == 3 &&
	       strcmp(kind, keeper->kind) == 0 && strcmp(type, keeper->type) == 0 &&
	       start == keeper->start;
}

/* Whether the descriptor `fd` of the process is open on the keeper's file and has its lock. */
static bool fd_has_lock(int pid, const char *fd, const struct keeper *keeper)
{
	char path[64], line[256];
	bool found = false;
	struct stat st;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", pid, fd);
	if (stat(path, &st) < 0 || st.st_dev != keeper->file.st_dev ||
	    st.st_ino != keeper->file.st_ino)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.16s", pid, fd);
	info = fopen(path, "re");
	while (info && !found && fgets(line, sizeof(line), info))
		found = says_lock(line, keeper);
	if (info)
		fclose(info);
	return found;
}

/* Whether any descriptor of the keeper's process has the lock. */
static bool has_lock(const struct keeper *keeper)
{
	const struct dirent *entry;
	bool found = false;
	char path[32];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", keeper->pid);
	dir = opendir(path);
	while (dir && !found && (entry = readdir(dir)))
		found = entry->d_name[0] != '.' && fd_has_lock(keeper->pid, entry->d_name, keeper);
	if (dir)
		closedir(dir);
	return found;
}

/* Whether this user may not see the descriptors of the process. */
static bool is_hidden(int pid)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	return access(path, R_OK | X_OK) < 0 && errno == EACCES;
}

/* Sends the signal to the keeper's process. Returns 0; -ESRCH: the process does not have the
 * lock, or has ended; -EPERM: this user may not look at the process or signal it. */
static int signal_keeper(const struct keeper *keeper, int number)
{
	int fd = (int)syscall(SYS_pidfd_open, keeper->pid, 0), error = 0;

	if (!has_lock(keeper))
		error = is_hidden(keeper->pid) ? EPERM : ESRCH;
	else if (fd >= 0)
		error = syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) < 0 ? errno : 0;
	else
		error = kill(keeper->pid, number) < 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
	return -error;
}

/* Counts the keeper. Unless `number` is 0, also sends that signal to its process, if the
 * process is known and is not this one. */
static void visit(const struct keeper *keeper, int number, struct keepers *keepers)
{
	int error;

	keepers->count++;
	if (!number || keeper->pid <= 0 || keeper->pid == getpid())
		return;
	error = signal_keeper(keeper, number);
	if (error == -EPERM)
		keepers->denied = keeper->pid;
	keepers->signalled += !error;
}

/* -- the region -------------------------------------------------------------------------------- */

/* Visits each living process in the region. procs finds their pids in this pid namespace; NULL:
 * the processes are only counted. A region that cannot be read has no process. */
static void visit_region(const struct slices_one *slice, struct procs *procs, int number,
			 struct keepers *keepers)
{
	struct keeper keeper = {.kind = "OFDLCK", .type = "WRITE"};
	struct region region = REGION_CLOSED;

	guard_begin();
	if (region_inspect(slice->region_path, &region, NULL) == 0 &&
	    fstat(region.fd, &keeper.file) == 0)
		for (unsigned slot = 0; slot < VGPU_SLOTS_MAX; slot++) {
			const struct vgpu_hami_slot *at = &region.file->hami.slots[slot];
			uint64_t space = region.file->own.slots[slot].pid_namespace;

			if (__atomic_load_n(&at->status, __ATOMIC_ACQUIRE) == VGPU_SLOT_FREE ||
			    !region_slot_alive(&region, slot))
				continue;
			keeper.pid = procs ? procs_find(procs, space, at->pid) : 0;
			keeper.start = VGPU_SLOT_LOCK_OFFSET + slot;
			visit(&keeper, number, keepers);
		}
	region_close(&region);
	guard_end(); /* if the region was truncated, the processes so far are the result */
}

/* -- vgpu run ---------------------------------------------------------------------------------- */

/* Visits each vgpu run of the slice. The descriptors of all processes are looked at. /proc/locks
 * names processes as well, but the kernel writes that file page by page, so the file can miss a
 * lock, or show one twice. */
static void visit_runs(const struct slices_one *slice, int number, struct keepers *keepers)
{
	struct keeper keeper = {.kind = "FLOCK", .type = "READ"};
	const struct dirent *entry;
	char path[PATH_MAX];
	DIR *dir;

	if (slice->kind != SLICES_RUN)
		return;
	snprintf(path, sizeof(path), "%s/%s/" STATE_LOCK, slice->state_path, slice->name);
	dir = lstat(path, &keeper.file) == 0 ? opendir("/proc") : NULL;
	while (dir && (entry = readdir(dir))) {
		keeper.pid = (int)strtol(entry->d_name, NULL, 10); /* 0: no process's directory */
		if (keeper.pid > 0 && has_lock(&keeper))
			visit(&keeper, number, keepers);
	}
	if (dir)
		closedir(dir);
}

/* -- ending ------------------------------------------------------------------------------------ */

/* Whether any process keeps the slice alive. A vgpu run that this pid namespace does not show
 * is found by its lock (held.h). */
static bool is_kept(const struct slices_one *slice)
{
	struct keepers keepers = {.count = 0};

	visit_region(slice, NULL, 0, &keepers);
	held_begin(true);
	return keepers.count > 0 || (slice->kind == SLICES_RUN && held_by_run(slice));
}

unsigned force_count(const struct slices_one *slice)
{
	struct keepers keepers = {.count = 0};

	visit_region(slice, NULL, 0, &keepers);
	visit_runs(slice, 0, &keepers);
	return keepers.count ? keepers.count : is_kept(slice);
}

/* Waits until no process keeps the slice alive, for FORCE_PATIENCE_S at most. Returns how many
 * processes are left. */
static unsigned wait_for_end(const struct slices_one *slice)
{
	uint64_t deadline_ns = clock_now_ns() + FORCE_PATIENCE_S * NS_PER_S;
	struct timespec pause = {0, POLL_NS};

	while (is_kept(slice) && clock_now_ns() < deadline_ns)
		nanosleep(&pause, NULL);
	return force_count(slice);
}

int force_end(const struct slices_one *slice, unsigned *ret_ended, struct fault *fault)
{
	struct procs *procs = procs_new();
	struct keepers keepers = {.count = 0};
	unsigned left;

	if (!procs)
		return fault_set(fault, -ENOMEM, "out of memory");
	procs_begin(procs);
	visit_region(slice, procs, SIGTERM, &keepers);
	visit_runs(slice, SIGTERM, &keepers);
	*ret_ended = keepers.signalled;
	left = keepers.signalled > 0 ? wait_for_end(slice) : force_count(slice);
	if (left > 0 && !keepers.denied) {
		struct keepers again = {.count = 0};

		procs_begin(procs);
		visit_region(slice, procs, SIGKILL, &again);
		left = again.signalled > 0 ? wait_for_end(slice) : left;
	}
	procs_free(procs);
	if (keepers.denied)
		return fault_set(
			fault, -EPERM,
			"its process %d belongs to another user: run this as that user, or "
			"as root",
			keepers.denied);
	if (left > 0)
		return fault_set(fault, -EBUSY,
				 "%u process%s not end, or cannot be seen from here: vgpu ps "
				 "lists what is in it",
				 left, left == 1 ? " of it does" : "es of it do");
	return 0;
}
