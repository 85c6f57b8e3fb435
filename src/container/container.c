/*
 * Making and removing slices for containers.
 *
 * Both are done with the slice's lock held. A lock counts only if its file is still at its path
 * once it is held, because removing a slice removes the file.
 *
 * Everything is made before its name is given out. A CDI specification (spec.c) is written last,
 * and a caller that mounts by itself does so afterwards. Killed on any line, the process leaves a
 * slice that the next container_make completes and container_remove removes. A policy that is there
 * already is changed file by file, each replaced at once (policy_write). The file of a GPU that the
 * slice has no more is removed last.
 *
 * The tenant may write the directory `shared`. So nothing in it is followed, and no mode or owner
 * in it is changed.
 */
#include "container.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "directory.h"
#include "env.h"
#include "file.h"
#include "slice.h"
#include "sys.h"

#define LOCK   "lock"
#define SHARED "shared"

#define PATIENCE_NS (10 * NS_PER_S)
#define RETRY_NS    (1 * NS_PER_MS)

#define SHARED_MODE 01777 /* users in a container are many, and remove no files of each other */

/* -- places ------------------------------------------------------------------------------------ */

int container_find_places(struct container_places *ret_places, struct fault *fault)
{
	const char *named = env_get("VGPU_CONTAINERS");

	*ret_places = (struct container_places){
		.policies = "/etc/vgpu/slices",
		.slices = "/run/vgpu-slices",
		.preload = "/etc/vgpu/ld.so.preload",
		.specs = "/etc/cdi",
		.tmpfiles = "/etc/tmpfiles.d",
	};
	if (!named)
		return 0;
	if (named[0] != '/' || strlen(named) > CONTAINER_DIR_LEN - 32)
		return fault_set(fault, -ENAMETOOLONG,
				 "VGPU_CONTAINERS is no absolute path, or too long: name another "
				 "directory");
	snprintf(ret_places->policies, CONTAINER_DIR_LEN, "%s/slices", named);
	snprintf(ret_places->slices, CONTAINER_DIR_LEN, "%s/run", named);
	snprintf(ret_places->preload, CONTAINER_DIR_LEN, "%s/ld.so.preload", named);
	snprintf(ret_places->specs, CONTAINER_DIR_LEN, "%s/cdi", named);
	snprintf(ret_places->tmpfiles, CONTAINER_DIR_LEN, "%s/tmpfiles.d", named);
	return 0;
}

static bool is_letter_or_digit(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool container_name_is_good(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > CONTAINER_NAME_MAX || !is_letter_or_digit(name[0]) ||
	    !is_letter_or_digit(name[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_letter_or_digit(name[i]) && !strchr("._-", name[i]))
			return false;
	return true;
}

/* ret_path: DIR/NAME, or DIR/NAME/FILE. */
static void join(const char *dir, const char *name, const char *file, char ret_path[PATH_MAX])
{
	snprintf(ret_path, PATH_MAX, "%s/%.63s%s%s", dir, name, file ? "/" : "", file ? file : "");
}

void container_policy_path(const struct container_places *places, const char *name,
			   char ret_path[PATH_MAX])
{
	join(places->policies, name, NULL, ret_path);
}

void container_region_path(const struct container_places *places, const char *name,
			   char ret_path[PATH_MAX])
{
	join(places->slices, name, SHARED "/region", ret_path);
}

void container_lock_path(const struct container_places *places, const char *name,
			 char ret_path[PATH_MAX])
{
	join(places->slices, name, LOCK, ret_path);
}

/* -- the lock ---------------------------------------------------------------------------------- */

static bool lock_counts(int lock, const char *path)
{
	struct stat ours, theirs;

	return fstat(lock, &ours) == 0 && lstat(path, &theirs) == 0 &&
	       ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

/* The descriptor of the lock, held; -EAGAIN: another process has it, or has removed it. */
static int try_lock(const char *path, int flags)
{
	int lock = sys_open(path, O_RDWR | O_NOFOLLOW | flags, 0600), error;

	if (lock < 0)
		return lock;
	error = sys_lock_byte(lock, 0);
	if (!error && !lock_counts(lock, path))
		error = -EAGAIN;
	if (error)
		sys_close(lock);
	return error ? error : lock;
}

/* The descriptor, or a negative errno. create: make the slice's directory and the lock, too. */
static int lock_slice(const struct container_places *places, const char *name, bool create,
		      struct fault *fault)
{
	uint64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
	char dir[PATH_MAX], path[PATH_MAX];
	int lock;

	join(places->slices, name, NULL, dir);
	container_lock_path(places, name, path);
	for (;;) {
		lock = create ? directory_make_all(dir, 0700, fault) : 0;
		if (lock)
			return lock;
		lock = try_lock(path, create ? O_CREAT : 0);
		if (lock != -EAGAIN && !(create && lock == -ENOENT))
			break;
		if (clock_now_ns() >= deadline_ns)
			return fault_set(fault, -ETIMEDOUT,
					 "another process changes the slice %s, and does not "
					 "finish: is it stopped? Continue or end it",
					 name);
		sys_sleep_ns(RETRY_NS);
	}
	if (lock < 0 && lock != -ENOENT)
		fault_set(fault, lock, "%.300s cannot be locked: %s", path, strerror(-lock));
	return lock;
}

/* -- making ------------------------------------------------------------------------------------ */

static int make_shared(const struct container_places *places, const struct container_slice *slice,
		       struct fault *fault)
{
	char shared[PATH_MAX];
	int error;

	join(places->slices, slice->name, SHARED, shared);
	error = directory_make(shared, SHARED_MODE, fault);
	if (!error && slice->turns)
		error = directory_make_all(slice->turns, SHARED_MODE, fault);
	if (!error && slice->gangs)
		error = directory_make_all(slice->gangs, 0700, fault);
	return error;
}

static int make_policy_locked(const struct container_places *places,
			      const struct container_slice *slice, struct fault *fault)
{
	struct policy policy = *slice->policy;
	char path[PATH_MAX];
	int error;

	snprintf(policy.region_path, sizeof(policy.region_path), CONTAINER_REGION);
	snprintf(policy.name, sizeof(policy.name), "%s", slice->name);
	container_policy_path(places, slice->name, path);
	error = directory_make_all(path, 0755, fault);
	if (!error)
		error = policy_write(path, &policy, fault);
	if (!error)
		directory_remove_files(path, &policy);
	return error;
}

static void tmpfiles_name(const char *name, char ret_name[CONTAINER_NAME_MAX + 16])
{
	snprintf(ret_name, CONTAINER_NAME_MAX + 16, "vgpu-%.63s.conf", name);
}

/* Writes a tmpfiles.d file, by which systemd makes the directories again when the machine starts.
 * Does nothing on a host without such a directory. */
static int make_tmpfiles(const struct container_places *places, const struct container_slice *slice,
			 struct fault *fault)
{
	char text[3 * PATH_MAX], name[CONTAINER_NAME_MAX + 16];
	struct stat gangs;
	size_t len;

	if (access(places->tmpfiles, F_OK) < 0)
		return 0;
	len = (size_t)snprintf(text, sizeof(text),
			       "d %s 0755 - - -\n"
			       "d %s/%s 0700 - - -\n"
			       "d %s/%s/" SHARED " %o - - -\n"
			       "f %s/%s/" LOCK " 0600 - - -\n",
			       places->slices, places->slices, slice->name, places->slices,
			       slice->name, SHARED_MODE, places->slices, slice->name);
	if (slice->turns)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "d %s %o - - -\n",
					slice->turns, SHARED_MODE);
	if (slice->socket)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "d %.*s 0755 - - -\n",
					(int)(strrchr(slice->socket, '/') - slice->socket),
					slice->socket);
	if (slice->gangs && stat(slice->gangs, &gangs) == 0)
		snprintf(text + len, sizeof(text) - len, "d %s 0700 %u %u -\n", slice->gangs,
			 (unsigned)gangs.st_uid, (unsigned)gangs.st_gid);
	tmpfiles_name(slice->name, name);
	return file_write(places->tmpfiles, name, text, fault);
}

/* The host's paths end up in lines of their own, and in flags of programs. */
static int check_paths(const struct container_slice *slice, struct fault *fault)
{
	const char *const paths[] = {slice->library, slice->turns, slice->gangs, slice->socket};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (paths[i] && (paths[i][0] != '/' || strpbrk(paths[i], " \t\n:,%\\\"'") ||
				 strlen(paths[i]) >= CONTAINER_DIR_LEN))
			return fault_set(fault, -EINVAL,
					 "%.300s cannot be mounted: take an absolute path without "
					 "blanks, colons, commas, quotes, \\ and %%",
					 paths[i]);
	return 0;
}

static int check_new_locked(const struct container_places *places,
			    const struct container_slice *slice, struct fault *fault)
{
	char path[PATH_MAX];

	container_policy_path(places, slice->name, path);
	if (!slice->must_be_new || access(path, F_OK) < 0)
		return 0;
	return fault_set(fault, -EEXIST,
			 "there is a slice %s for containers already: choose another name",
			 slice->name);
}

int container_make(const struct container_places *places, const struct container_slice *slice,
		   struct fault *fault)
{
	int error = check_paths(slice, fault), lock;

	if (error)
		return error;
	lock = lock_slice(places, slice->name, true, fault);
	if (lock < 0)
		return lock;
	error = check_new_locked(places, slice, fault);
	if (!error)
		error = make_shared(places, slice, fault);
	if (!error)
		error = directory_write_file(places->preload, CONTAINER_LIBRARY "\n", fault);
	if (!error)
		error = make_policy_locked(places, slice, fault);
	if (!error)
		error = make_tmpfiles(places, slice, fault);
	sys_close(lock);
	return error;
}

/* -- removing ---------------------------------------------------------------------------------- */

/* Files that the tenant has put into the directory are removed as well, except directories that are
 * not empty: vgpu makes no such directory. */
static int remove_shared(const struct container_places *places, const char *name,
			 struct fault *fault)
{
	char path[PATH_MAX];

	join(places->slices, name, SHARED, path);
	directory_remove_files(path, NULL);
	if (rmdir(path) == 0 || errno == ENOENT)
		return 0;
	return fault_set(fault, -errno, "%.300s cannot be removed: %s", path, strerror(errno));
}

static int is_foreign(void *arg, const char *name)
{
	(void)arg;
	return strcmp(name, LOCK) != 0 && strcmp(name, SHARED) != 0;
}

/* The slice's directory, once its lock is gone. Another process may have made a lock in it at once:
 * the directory is that process' then, and stays. */
static int remove_directory(const struct container_places *places, const char *name,
			    struct fault *fault)
{
	char path[PATH_MAX];
	int error;

	join(places->slices, name, NULL, path);
	error = rmdir(path) < 0 ? -errno : 0;
	if (error == -ENOENT ||
	    (error == -ENOTEMPTY && sys_list_directory(path, is_foreign, NULL) <= 0))
		return 0;
	return error ? fault_set(fault, error, "%.300s cannot be removed: %s", path,
				 strerror(-error))
		     : 0;
}

/* The policy goes first: without it, no program starts in the slice. */
static int remove_locked(const struct container_places *places, const char *name,
			 struct fault *fault)
{
	char path[PATH_MAX], file[CONTAINER_NAME_MAX + 16];
	int error;

	container_policy_path(places, name, path);
	directory_remove_files(path, NULL);
	if (rmdir(path) < 0 && errno != ENOENT)
		return fault_set(fault, -errno, "%.300s cannot be removed: %s", path,
				 strerror(errno));
	tmpfiles_name(name, file);
	join(places->tmpfiles, "", file, path);
	unlink(path);
	error = remove_shared(places, name, fault);
	if (error)
		return error;
	container_lock_path(places, name, path);
	unlink(path);
	return remove_directory(places, name, fault);
}

static bool is_there(const struct container_places *places, const char *name)
{
	char path[PATH_MAX];

	container_policy_path(places, name, path);
	if (access(path, F_OK) == 0)
		return true;
	join(places->slices, name, NULL, path);
	return access(path, F_OK) == 0;
}

int container_remove(const struct container_places *places, const char *name, struct fault *fault)
{
	int lock, error;

	if (!container_name_is_good(name) || !is_there(places, name))
		return -ENOENT;
	lock = lock_slice(places, name, true, fault);
	if (lock < 0)
		return lock;
	error = remove_locked(places, name, fault);
	sys_close(lock);
	return error;
}

/* -- what a container gets --------------------------------------------------------------------- */

unsigned container_mounts(const struct container_places *places,
			  const struct container_slice *slice,
			  struct container_mount ret_mounts[CONTAINER_MOUNTS_MAX])
{
	struct container_mount *mount = ret_mounts;

	*mount = (struct container_mount){.container = CONTAINER_LIBRARY, .holds_code = true};
	snprintf(mount++->host, PATH_MAX, "%s", slice->library);
	*mount = (struct container_mount){.container = CONTAINER_PRELOAD};
	snprintf(mount++->host, PATH_MAX, "%s", places->preload);
	*mount = (struct container_mount){.container = SLICE_POLICY_DIR};
	container_policy_path(places, slice->name, mount++->host);
	*mount = (struct container_mount){.container = CONTAINER_REGION_DIR, .writable = true};
	join(places->slices, slice->name, SHARED, mount++->host);
	if (slice->turns) {
		*mount = (struct container_mount){.container = SLICE_TURNS_MOUNT, .writable = true};
		snprintf(mount++->host, PATH_MAX, "%s", slice->turns);
	}
	if (slice->gangs) {
		*mount = (struct container_mount){.container = SLICE_GANGS_MOUNT, .writable = true};
		snprintf(mount++->host, PATH_MAX, "%s", slice->gangs);
	}
	if (slice->socket) { /* its directory, where a vgpud that starts again makes another */
		*mount = (struct container_mount){.container = SLICE_SOCKET_DIR};
		snprintf(mount++->host, PATH_MAX, "%.*s",
			 (int)(strrchr(slice->socket, '/') - slice->socket), slice->socket);
	}
	return (unsigned)(mount - ret_mounts);
}

struct each {
	int (*each)(void *arg, const char *name);
	void *arg;
};

static int each_name(void *arg, const char *name)
{
	const struct each *each = arg;

	return container_name_is_good(name) ? each->each(each->arg, name) : 0;
}

int container_each(const struct container_places *places, int (*each)(void *arg, const char *name),
		   void *arg)
{
	struct each all = {each, arg};
	int result = sys_list_directory(places->policies, each_name, &all);

	return result == -ENOENT ? 0 : result;
}
