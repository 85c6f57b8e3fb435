/*
 * Makes and removes slices while other processes do the same.
 *
 * Both are done with the slice's lock held exclusively. Each user of the slice holds the lock
 * shared. Because removing a slice removes the lock's file, a lock counts only if its file is still
 * at its path once the lock is held. So:
 *
 *   - A process that gets the exclusive lock has the slice to itself. It makes the slice, or
 *     removes it if no process is in its region.
 *   - A process that does not get it waits for a shared lock. Then the slice is whole, or it is
 *     gone and the process begins again.
 *   - To change an exclusive lock into a shared one leaves a gap, in which another process may
 *     remove or replace the slice. So the process checks the slice again after the change.
 *
 * The policy is written last and removed first, by a rename. So if the process is killed on any
 * line, a directory with a policy is a whole slice, and one without a policy is a leftover. The
 * lock file is removed last: a directory without a lock file is empty, or was never a slice.
 */
#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gang_file.h"
#include "guard.h"
#include "region.h"
#include "trace_file.h"

#define POLICY_NEW "policy.new"
#define POLICY_OLD "policy.old"

#define RETRY_NS 1000000

/* A slice's directory and its lock file, both open. */
struct opened {
	const struct state *state;
	const char *name;
	int dir;
	int lock;
};

static mode_t directory_mode(void)
{
	return geteuid() == 0 ? 0755 : 0700;
}

/* -- the directory ----------------------------------------------------------------------------- */

/* Checks that no other user can put a policy into the directory. */
static int check_directory(int fd, const char *path, struct fault *fault)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return fault_set(fault, -errno, "the state directory %.300s: %s", path,
				 strerror(errno));
	if (st.st_uid != geteuid())
		return fault_set(fault, -EPERM,
				 "the state directory %.300s is another user's: set VGPU_STATE to "
				 "a directory of your own",
				 path);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return fault_set(fault, -EPERM,
				 "others may write in the state directory %.300s: chmod it to "
				 "0755, or set VGPU_STATE to another",
				 path);
	return 0;
}

int state_open_at(const char *path, struct state *ret_state, struct fault *fault)
{
	char absolute[PATH_MAX];
	int fd, error;

	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fault_set(fault, -errno,
				 "the state directory %.300s cannot be used (%s): set VGPU_STATE "
				 "to a directory of your own",
				 path, strerror(errno));
	error = check_directory(fd, path, fault);
	if (!error && (!realpath(path, absolute) || strlen(absolute) >= STATE_PATH_MAX))
		error = fault_set(fault, -ENAMETOOLONG,
				  "the state directory %.300s has no usable absolute path: set "
				  "VGPU_STATE to another",
				  path);
	if (error) {
		close(fd);
		return error;
	}
	ret_state->fd = fd;
	memcpy(ret_state->path, absolute, strlen(absolute) + 1);
	return 0;
}

int state_open(struct state *ret_state, struct fault *fault)
{
	char path[STATE_PATH_MAX];

	if (!state_path(path))
		return fault_set(
			fault, -ENAMETOOLONG,
			"the state directory's path is too long: set VGPU_STATE to another");
	if (mkdir(path, directory_mode()) == 0)
		chmod(path, directory_mode()); /* whatever the umask */
	return state_open_at(path, ret_state, fault);
}

static int make_directory(const char *state_path, const char *name, mode_t mode,
			  struct fault *fault)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", state_path, name);
	if (mkdir(path, mode) == 0)
		chmod(path, mode); /* whatever the umask */
	else if (errno != EEXIST)
		return fault_set(fault, -errno, "%.300s cannot be made: %s", path, strerror(errno));
	return 0;
}

int state_make_gangs(const char *state_path, struct fault *fault)
{
	return make_directory(state_path, STATE_GANGS, directory_mode(), fault);
}

int state_make_turns(const char *state_path, struct fault *fault)
{
	return make_directory(state_path, STATE_TURNS, 0700, fault);
}

/* -- one slice --------------------------------------------------------------------------------- */

static void path_in(const struct opened *slice, const char *file, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/%.63s/%.16s", slice->state->path, slice->name, file);
}

static void close_slice(struct opened *slice)
{
	if (slice->lock >= 0)
		close(slice->lock);
	if (slice->dir >= 0)
		close(slice->dir);
}

static int open_directory(struct opened *slice)
{
	slice->lock = -1;
	slice->dir = openat(slice->state->fd, slice->name,
			    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return slice->dir < 0 ? -errno : 0;
}

static int open_lock(struct opened *slice, int flags)
{
	struct stat st;

	if (fstatat(slice->dir, STATE_LOCK, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
		return -ENXIO; /* opening a device or a pipe may have effects */
	slice->lock = openat(slice->dir, STATE_LOCK, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
	return slice->lock < 0 ? -errno : 0;
}

static int lock_file(int fd, int operation)
{
	while (flock(fd, operation) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* Whether the lock file that is held is still the one at its path. */
static bool lock_counts(const struct opened *slice)
{
	char path[STATE_NAME_MAX + 8];
	struct stat ours, theirs;

	snprintf(path, sizeof(path), "%.63s/" STATE_LOCK, slice->name);
	return fstat(slice->lock, &ours) == 0 &&
	       fstatat(slice->state->fd, path, &theirs, AT_SYMLINK_NOFOLLOW) == 0 &&
	       ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

static bool is_whole(const struct opened *slice)
{
	struct stat st;

	return fstatat(slice->dir, STATE_POLICY, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether processes are in the slice's region: 1, 0, or a negative errno if that is unknown. */
static int has_living(const struct opened *slice, struct fault *fault)
{
	struct region region = REGION_CLOSED;
	char path[PATH_MAX];
	int result;

	if (!is_whole(slice))
		return 0;
	path_in(slice, STATE_REGION, path);
	guard_begin();
	result = region_view(path, &region, fault);
	if (result == 0)
		result = region_living(&region) > 0;
	region_close(&region);
	if (guard_end())
		return fault_set(fault, -EUCLEAN,
				 "the region %.300s was truncated just now: try again", path);
	return result == -ENOENT ? 0 : result;
}

/* Removes the files of a directory whose names begin with the prefix. */
static void remove_files(int parent, const char *name, const char *prefix)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir)))
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
			unlinkat(fd, entry->d_name, 0);
	closedir(dir);
}

static void remove_directory(int parent, const char *name)
{
	remove_files(parent, name, "");
	unlinkat(parent, name, AT_REMOVEDIR);
}

/* Removes all files but the lock. The caller holds the lock exclusively. */
static void empty_slice_locked(const struct opened *slice)
{
	remove_directory(slice->dir, POLICY_OLD);
	renameat(slice->dir, STATE_POLICY, slice->dir, POLICY_OLD);
	remove_directory(slice->dir, POLICY_OLD);
	remove_directory(slice->dir, POLICY_NEW);
	unlinkat(slice->dir, STATE_REGION, 0);
	remove_files(slice->dir, ".", STATE_REGION TRACE_SUFFIX); /* its processes wrote them */
}

static void remove_slice_locked(const struct opened *slice)
{
	empty_slice_locked(slice);
	unlinkat(slice->dir, STATE_LOCK, 0);
	unlinkat(slice->state->fd, slice->name, AT_REMOVEDIR);
}

/* -- making a slice ---------------------------------------------------------------------------- */

static int make_region(const char *path, const struct policy *policy, struct fault *fault)
{
	struct region region = REGION_CLOSED;
	struct region_setup setup;
	int error;

	memset(&setup, 0, sizeof(setup));
	setup.device_count = policy->device_count;
	setup.priority = 1;
	setup.has_group = policy->has_group;
	setup.group = policy->group;
	for (unsigned i = 0; i < policy->device_count; i++) {
		memcpy(setup.device[i].uuid, policy->device[i].uuid, VGPU_UUID_LEN);
		setup.device[i].memory_bytes = policy->device[i].memory_bytes;
		setup.device[i].cores_pct = policy->device[i].cores_pct;
		setup.device[i].cores_most_pct = policy->device[i].cores_most_pct;
		setup.device[i].burst_ns = policy->device[i].burst_ns;
	}
	guard_begin();
	error = region_open(path, &setup, &region, fault);
	region_close(&region);
	if (guard_end())
		return fault_set(fault, -EUCLEAN,
				 "the region %.300s was truncated just now: try again", path);
	return error;
}

static int make_policy(const struct opened *slice, const struct policy *policy, struct fault *fault)
{
	char path[PATH_MAX];
	int error;

	path_in(slice, POLICY_NEW, path);
	if (mkdir(path, directory_mode()) < 0 || chmod(path, directory_mode()) < 0)
		return fault_set(fault, -errno, "%.300s cannot be made: %s", path, strerror(errno));
	error = policy_write(path, policy, fault);
	if (!error && renameat(slice->dir, POLICY_NEW, slice->dir, STATE_POLICY) < 0)
		error = fault_set(fault, -errno, "%.300s cannot be renamed: %s", path,
				  strerror(errno));
	return error;
}

static int make_slice_locked(const struct opened *slice, const struct policy *wanted,
			     struct fault *fault)
{
	struct policy policy = *wanted;
	int error;

	empty_slice_locked(slice);
	fchmod(slice->dir, directory_mode());
	path_in(slice, STATE_REGION, policy.region_path);
	snprintf(policy.name, sizeof(policy.name), "%s", slice->name);
	error = make_region(policy.region_path, &policy, fault);
	if (!error)
		error = make_policy(slice, &policy, fault);
	if (error)
		remove_slice_locked(slice);
	return error;
}

/* Makes the slice, unless processes of an earlier `vgpu run` are in it. Held exclusively. */
static int renew_locked(const struct opened *slice, enum state_taking taking,
			const struct policy *wanted, bool *ret_made, struct fault *fault)
{
	int living = has_living(slice, fault);

	if (living < 0)
		return living;
	*ret_made = !living;
	if (living)
		return taking == STATE_MAKE ? -EEXIST : 0;
	return taking == STATE_JOIN ? -ENOENT : make_slice_locked(slice, wanted, fault);
}

static int hold_failed(const struct opened *slice, int error, struct fault *fault)
{
	return fault_set(fault, error, "the slice %s cannot be locked in %.300s: %s", slice->name,
			 slice->state->path, strerror(-error));
}

/* Takes the lock, shared, of a slice that is whole. -EAGAIN: the slice has changed; begin again. */
static int hold(struct opened *slice, enum state_taking taking, const struct policy *wanted,
		bool *ret_made, struct fault *fault)
{
	int error = lock_file(slice->lock, LOCK_EX | LOCK_NB);

	*ret_made = false;
	if (error == -EWOULDBLOCK) {
		if (taking == STATE_MAKE)
			return -EEXIST;
	} else if (error) {
		return hold_failed(slice, error, fault);
	} else {
		if (!lock_counts(slice))
			return -EAGAIN;
		error = renew_locked(slice, taking, wanted, ret_made, fault);
		if (error)
			return error;
	}
	error = lock_file(slice->lock, LOCK_SH);
	if (error)
		return hold_failed(slice, error, fault);
	return lock_counts(slice) && is_whole(slice) ? 0 : -EAGAIN;
}

/* Opens the slice's directory and lock file. Makes them, unless the slice is only to be joined. */
static int open_to_hold(struct opened *slice, enum state_taking taking, struct fault *fault)
{
	bool makes = taking != STATE_JOIN;
	int error;

	slice->dir = slice->lock = -1;
	if (makes && mkdirat(slice->state->fd, slice->name, directory_mode()) < 0 &&
	    errno != EEXIST)
		return fault_set(fault, -errno, "no slice can be made in %.300s: %s",
				 slice->state->path, strerror(errno));
	error = open_directory(slice);
	if (!error)
		error = open_lock(slice, makes ? O_CREAT : 0);
	if (error == -ENOENT) /* with `makes`: another process has just removed the directory */
		return makes ? -EAGAIN : -ENOENT;
	if (!error)
		return 0;
	if (makes)
		unlinkat(slice->state->fd, slice->name, AT_REMOVEDIR); /* only if it is empty */
	return hold_failed(slice, error, fault);
}

static int take_once(struct opened *slice, enum state_taking taking, const struct policy *wanted,
		     struct state_slice *ret_slice, struct fault *fault)
{
	bool made = false;
	int error = open_to_hold(slice, taking, fault);

	if (!error)
		error = hold(slice, taking, wanted, &made, fault);
	if (error)
		return error;
	path_in(slice, STATE_POLICY, ret_slice->policy_path);
	path_in(slice, STATE_REGION, ret_slice->region_path);
	error = policy_read(ret_slice->policy_path, &ret_slice->policy, fault);
	if (error)
		return error;
	snprintf(ret_slice->name, sizeof(ret_slice->name), "%s", slice->name);
	ret_slice->joined = !made;
	ret_slice->lock = slice->lock;
	slice->lock = -1;
	return 0;
}

int state_slice_take(const struct state *state, const char *name, enum state_taking taking,
		     const struct policy *wanted, struct state_slice *ret_slice,
		     struct fault *fault)
{
	struct timespec pause = {0, RETRY_NS};

	for (;;) {
		struct opened slice = {state, name, -1, -1};
		int error = take_once(&slice, taking, wanted, ret_slice, fault);

		close_slice(&slice);
		if (error != -EAGAIN)
			return error;
		nanosleep(&pause, NULL);
	}
}

/* -- removing ---------------------------------------------------------------------------------- */

int state_slice_remove(const struct state *state, const char *name, struct fault *fault)
{
	struct opened slice = {state, name, -1, -1};
	int error = open_directory(&slice);

	if (!error)
		error = open_lock(&slice, 0);
	if (error == -ENOENT && slice.dir >= 0)
		unlinkat(state->fd, name, AT_REMOVEDIR); /* only if it is empty */
	else if (error)
		fault_set(fault, error, "it cannot be opened: %s", strerror(-error));
	if (error) {
		close_slice(&slice);
		return error == -ENOENT && slice.dir >= 0 ? 0 : error;
	}
	if (lock_file(slice.lock, LOCK_EX | LOCK_NB) != 0 || !lock_counts(&slice))
		error = fault_set(
			fault, -EBUSY,
			"a vgpu run has it: end its command first, or use vgpu rm --force");
	else
		error = has_living(&slice, fault);
	if (error == 0)
		remove_slice_locked(&slice);
	else if (error > 0)
		error = fault_set(fault, -EBUSY,
				  "processes are in it: end them first, or use vgpu rm --force");
	close_slice(&slice);
	return error;
}

void state_slice_leave(const struct state *state, struct state_slice *slice)
{
	close(slice->lock);
	slice->lock = -1;
	state_slice_remove(state, slice->name, NULL);
}

void state_sweep_all(void)
{
	char paths[STATE_OWN_MAX][STATE_PATH_MAX];
	unsigned count = state_own_paths(paths);

	for (unsigned i = 0; i < count; i++) {
		struct state state;

		if (state_open_at(paths[i], &state, NULL) == 0) {
			state_sweep(&state);
			close(state.fd);
		}
	}
}

static void sweep_gangs(const struct state *state)
{
	int fd = openat(state->fd, STATE_GANGS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	char path[PATH_MAX];

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/" STATE_GANGS "/%.64s", state->path,
			 entry->d_name);
		if (entry->d_name[0] != '.')
			gang_file_sweep(path);
	}
	closedir(dir);
}

void state_sweep(const struct state *state)
{
	int fd = openat(state->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir)))
		if (state_name_is_good(entry->d_name))
			state_slice_remove(state, entry->d_name, NULL);
	closedir(dir);
	sweep_gangs(state);
}
