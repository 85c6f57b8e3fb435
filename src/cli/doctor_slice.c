/*
 * The slice that this process is in, if it is in one. The checks are of its policies and the users
 * that can change them, its region, and the directory in which vgpu run keeps slices. Nothing is
 * made and nothing repaired: the region is looked at as vgpu inspect does, and a directory by a
 * file without a name.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "doctor.h"
#include "env.h"
#include "guard.h"
#include "region.h"
#include "size.h"
#include "state.h"
#include "sys.h"

#define POLICY_VARIABLE "VGPU_POLICY"

/* -- policies ---------------------------------------------------------------------------------- */

/* Whether this user may write it, or may give himself the right to. */
static bool may_change(const char *path)
{
	struct statvfs fs;
	struct stat st;

	if (access(path, W_OK) == 0)
		return true;
	return stat(path, &st) == 0 && st.st_uid == geteuid() && statvfs(path, &fs) == 0 &&
	       !(fs.f_flag & ST_RDONLY);
}

static bool may_change_policy(const char *dir, const struct policy *policy)
{
	char path[PATH_MAX];

	if (may_change(dir))
		return true;
	for (unsigned i = 0; i < policy->device_count; i++)
		if (snprintf(path, sizeof(path), "%s/%s", dir, policy->device[i].uuid) <
			    (int)sizeof(path) &&
		    may_change(path))
			return true;
	return false;
}

static bool machine_has(const struct doctor *doctor, const char *uuid)
{
	if (gpus_by_uuid(&doctor->gpus, uuid))
		return true;
	for (unsigned i = 0; i < doctor->gpus.count; i++)
		for (unsigned j = 0; j < doctor->driver.modes[i].instance_count; j++)
			if (strcmp(doctor->driver.modes[i].instance[j], uuid) == 0)
				return true;
	return false;
}

/* Whether something is wrong with the GPUs that it lists. */
static bool say_gpus(struct doctor *doctor, const char *dir, const struct policy *policy)
{
	const char *missing = NULL;
	unsigned count = 0;

	for (unsigned i = 0; doctor->has_gpus && i < policy->device_count; i++)
		if (!machine_has(doctor, policy->device[i].uuid)) {
			missing = policy->device[i].uuid;
			count++;
		}
	if (!count)
		return false;
	doctor_found(doctor, count == policy->device_count ? DOCTOR_FAIL : DOCTOR_WARN,
		     "%s lists %s%s, which this machine has not", dir, missing,
		     count > 1 ? " and others" : "");
	doctor_advise(doctor, "Name its files by the UUIDs that nvidia-smi -L lists%s",
		      count == policy->device_count ? ": programs here see no GPU" : "");
	return true;
}

/* Root of the machine itself can change everything, and is no tenant. */
static bool is_tenant(void)
{
	return geteuid() != 0 || doctor_in_namespace("pid") || doctor_in_namespace("user");
}

static void say_policy(struct doctor *doctor, const char *dir, bool is_fixed)
{
	struct fault fault = {""};
	struct policy policy;
	int error = policy_read(dir, &policy, &fault);

	if (error == -ENOENT && is_fixed)
		return;
	doctor->policy_is_bad |= error != 0;
	if (error == -ENOENT) {
		doctor_found(doctor, DOCTOR_FAIL, POLICY_VARIABLE " names %s, which is not there",
			     dir);
		doctor_advise(doctor, "Start the program again with vgpu run: the slice has ended, "
				      "and CUDA is refused to what is left of it");
	} else if (error) {
		doctor_found(doctor, DOCTOR_FAIL, "%s", fault.text);
		doctor_advise(doctor, "Until that is mended, CUDA is refused to every program in "
				      "this slice");
	} else if (say_gpus(doctor, dir, &policy)) {
		return;
	} else if (may_change_policy(dir, &policy) && is_fixed && is_tenant()) {
		doctor_found(doctor, DOCTOR_WARN, "this user may change %s, and lift its limits",
			     dir);
		doctor_advise(doctor, "Mount it read-only, or make it another user's");
	} else if (may_change_policy(dir, &policy) && !is_fixed && is_tenant()) {
		doctor_found(doctor, DOCTOR_NOTE, "this user may change %s, and lift its limits",
			     dir);
		doctor_advise(doctor, "Know that this is always so where the user who runs vgpu "
				      "run runs the program; vgpu-run(1) says how to hold "
				      "somebody who means harm");
	} else {
		doctor_found(doctor, DOCTOR_OK, "%s, of %u GPU%s", dir, policy.device_count,
			     policy.device_count == 1 ? "" : "s");
	}
}

static void check_policy(struct doctor *doctor)
{
	const char *named = env_get(POLICY_VARIABLE);
	unsigned before = doctor->count;

	say_policy(doctor, SLICE_POLICY_DIR, true);
	if (named)
		say_policy(doctor, named, false);
	if (doctor->count == before)
		doctor_found(doctor, DOCTOR_OK, "there is none here");
}

static void check_slice(struct doctor *doctor)
{
	if (!doctor->has_slice && doctor->policy_is_bad)
		return;
	if (!doctor->has_slice) {
		doctor_found(doctor, DOCTOR_FAIL, "%s", doctor->slice_fault.text);
		doctor_advise(doctor, "Until that is mended, CUDA is refused to every program in "
				      "this slice");
	} else if (!doctor->slice.configured) {
		doctor_found(doctor, DOCTOR_OK,
			     "this is in no slice: nothing limits programs here");
	} else if (doctor_is_limited(doctor)) {
		doctor_found(doctor, DOCTOR_OK, "this is in a slice, by %s",
			     doctor->slice.has_policy ? "a policy" : "HAMi's variables");
	} else {
		doctor_found(doctor, DOCTOR_OK,
			     "this is in a slice, with the limits that its "
			     "region has");
	}
}

/* -- the region -------------------------------------------------------------------------------- */

/* File systems of other machines: neither locks nor mappings are what they are on one. */
static const char *remote_name(const char *path)
{
	static const struct {
		unsigned long type; /* linux/magic.h has some of them */
		const char *name;
	} remote[] = {{0x6969, "NFS"},      {0xff534d42, "CIFS"}, {0xfe534d42, "SMB"},
		      {0x01021997, "9p"},   {0x00c36400, "Ceph"}, {0x0bd00bd0, "Lustre"},
		      {0x47504653, "GPFS"}, {0x65735546, "FUSE"}, {0x5346414f, "AFS"}};
	struct statfs fs;

	if (statfs(path, &fs) < 0)
		return NULL;
	for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++)
		if (((unsigned long)fs.f_type & 0xffffffff) == remote[i].type)
			return remote[i].name;
	return NULL;
}

static bool say_remote(struct doctor *doctor, const char *path)
{
	const char *name = remote_name(path);

	if (!name)
		return false;
	doctor_found(doctor, DOCTOR_WARN, "%s is on a file system of the kind %s", path, name);
	doctor_advise(doctor, "Let the region lie on a local one, such as tmpfs: its locks and its "
			      "mapping must be of one machine");
	return true;
}

/* Whether a file with the locks that a region needs can be made there: 0 or a negative errno. */
static int try_directory(const char *dir)
{
	int fd = sys_open(dir, O_RDWR | O_TMPFILE, 0600), error;

	if (fd == -EOPNOTSUPP || fd == -EISDIR) /* NFS and others have no such files */
		return access(dir, W_OK) == 0 ? 0 : -errno;
	if (fd < 0)
		return fd;
	error = sys_lock_byte(fd, 0);
	sys_close(fd);
	return error;
}

/* There is no region yet, and the first program of the slice makes it. */
static void say_place(struct doctor *doctor, const char *path)
{
	char copy[PATH_MAX], size[32];
	struct statvfs fs;
	const char *dir;
	int error;

	snprintf(copy, sizeof(copy), "%s", path);
	dir = dirname(copy);
	error = try_directory(dir);
	if (error) {
		doctor_found(doctor, DOCTOR_FAIL, "the region %s cannot be made: %s", path,
			     strerror(-error));
		doctor_advise(doctor,
			      "Make %s a directory that the slice's programs may write, on "
			      "a file system with locks",
			      dir);
	} else if (statvfs(dir, &fs) == 0 &&
		   (uint64_t)fs.f_bavail * fs.f_frsize < sizeof(struct vgpu_region_file)) {
		doctor_found(doctor, DOCTOR_FAIL,
			     "the region %s cannot be made: the file system is full", path);
		doctor_advise(doctor, "Make room in %s: a region takes %s", dir,
			      size_format(sizeof(struct vgpu_region_file), size, sizeof(size)));
	} else if (!say_remote(doctor, dir)) {
		doctor_found(doctor, DOCTOR_OK, "%s, which the first program to use CUDA makes",
			     path);
	}
}

struct wrong {
	unsigned count;
	struct fault first;
};

static void keep_first(void *arg, const char *line)
{
	struct wrong *wrong = arg;

	if (wrong->count++ == 0)
		fault_set(&wrong->first, 0, "%s", line);
}

static void say_whole(struct doctor *doctor, const char *path, struct region *region)
{
	struct wrong wrong = {0, {""}};
	unsigned living = region_living(region);

	if (region_check(region, keep_first, &wrong) > 0) {
		doctor_found(doctor, DOCTOR_WARN, "%s is not whole (%s)", path, wrong.first.text);
		doctor_advise(doctor,
			      "See vgpu inspect %s: a dead process's lock mends itself; "
			      "else somebody wrote the file, and it should be removed when "
			      "nobody uses it",
			      path);
	} else {
		doctor_found(doctor, DOCTOR_OK, "%s is whole, with %u process%s", path, living,
			     living == 1 ? "" : "es");
	}
}

static void say_region(struct doctor *doctor, const char *path, const struct stat *st)
{
	bool has_group = doctor->slice.has_policy && doctor->slice.policy.has_group;
	struct region region = REGION_CLOSED;
	struct fault fault = {""};

	if (region_inspect(path, &region, &fault)) {
		doctor_found(doctor, DOCTOR_FAIL, "%s", fault.text);
		doctor_advise(doctor, "Until that is mended, CUDA is refused to every program in "
				      "this slice");
		return;
	}
	if (access(path, W_OK) != 0) {
		doctor_found(doctor, DOCTOR_FAIL, "this user may not write the region %s (%s)",
			     path, strerror(errno));
		doctor_advise(doctor, "Give it the mode 0666, on a file system that can be "
				      "written: programs of this user are refused CUDA");
	} else if ((st->st_mode & 0666) != 0666 && !has_group) {
		doctor_found(doctor, DOCTOR_WARN,
			     "not every user may write the region %s (mode "
			     "%04o)",
			     path, (unsigned)(st->st_mode & 07777));
		doctor_advise(doctor, "Give it the mode 0666, as it had at first, or programs of "
				      "other users in this slice are refused CUDA");
	} else if (!say_remote(doctor, path)) {
		say_whole(doctor, path, &region);
	}
	region_close(&region);
}

/* Others may truncate it meanwhile. */
static void look_at_region(struct doctor *doctor, const char *path, const struct stat *st)
{
	guard_begin();
	say_region(doctor, path, st);
	if (guard_end())
		doctor_found(doctor, DOCTOR_FAIL, "%s was truncated just now", path);
}

static void check_region(struct doctor *doctor)
{
	const char *path = doctor->slice.region_path;
	struct stat st;

	if (!doctor->has_slice)
		return;
	if (!doctor->slice.configured)
		doctor_found(doctor, DOCTOR_OK, "none is needed, as this is in no slice");
	else if (lstat(path, &st) < 0 || (S_ISREG(st.st_mode) && st.st_size == 0))
		say_place(doctor, path);
	else
		look_at_region(doctor, path, &st);
}

/* -- turns ------------------------------------------------------------------------------------- */

/* Another user's file in the directory, that this user may not write: NULL, or its GPU. */
static const char *locked_out(const struct doctor *doctor, const char *dir)
{
	char path[PATH_MAX];

	for (unsigned i = 0; doctor->has_gpus && i < doctor->gpus.count; i++)
		if (snprintf(path, sizeof(path), "%s/%s", dir, doctor->gpus.gpu[i].uuid) <
			    (int)sizeof(path) &&
		    access(path, F_OK) == 0 && access(path, R_OK | W_OK) != 0)
			return doctor->gpus.gpu[i].uuid;
	return NULL;
}

static void say_turns(struct doctor *doctor, const char *dir)
{
	const char *gpu = locked_out(doctor, dir);

	if (access(dir, W_OK | X_OK) != 0) {
		doctor_found(doctor, DOCTOR_NOTE,
			     "off: there is no vgpud, and %s, where slices take turns, cannot be "
			     "used: %s",
			     dir, strerror(errno));
		doctor_advise(
			doctor,
			"Start vgpud, or mount its socket. Or make or mount a directory there "
			"that the slices may write, or set VGPU_TURNS to one: slices that use a "
			"GPU at the same time get "
			"less than their compute limits without. Whoever may write it can "
			"end the programs that take turns");
	} else if (gpu) {
		doctor_found(doctor, DOCTOR_WARN, "off for a GPU: this user may not write %s/%s",
			     dir, gpu);
		doctor_advise(doctor, "Give the file the mode 0666");
	} else {
		doctor_found(doctor, DOCTOR_OK, "on: slices take turns by files in %s", dir);
	}
}

/* Whether vgpud listens there. */
static bool has_vgpud(const char *socket)
{
	int fd = sys_connect(socket);

	if (fd >= 0)
		sys_close(fd);
	return fd >= 0 || fd == -EAGAIN;
}

static void check_turns(struct doctor *doctor)
{
	if (!doctor->has_slice)
		return;
	if (has_vgpud(slice_socket_path()))
		doctor_found(doctor, DOCTOR_OK, "on: vgpud hands out their files at %s",
			     slice_socket_path());
	else if (doctor->slice.configured)
		say_turns(doctor, slice_turns_path());
	else if (env_get("VGPU_TURNS"))
		say_turns(doctor, env_get("VGPU_TURNS"));
	else
		doctor_found(doctor, DOCTOR_OK, "vgpu run makes a directory for them");
}

/* -- where slices are kept --------------------------------------------------------------------- */

static void say_no_state(struct doctor *doctor, const char *path)
{
	char copy[STATE_PATH_MAX];
	const char *dir;

	snprintf(copy, sizeof(copy), "%s", path);
	dir = dirname(copy);
	if (access(dir, W_OK | X_OK) == 0) {
		doctor_found(doctor, DOCTOR_OK, "%s, which vgpu run makes", path);
		return;
	}
	doctor_found(doctor, DOCTOR_FAIL, "the state directory %s cannot be made: %s: %s", path,
		     dir, strerror(errno));
	doctor_advise(doctor, "Set VGPU_STATE to a directory of your own; vgpu run makes no slice "
			      "until then");
}

static void check_state(struct doctor *doctor)
{
	struct fault fault = {""};
	char path[STATE_PATH_MAX];
	struct state state;
	struct stat st;

	if (env_get(POLICY_VARIABLE)) {
		doctor_found(doctor, DOCTOR_OK, "none is needed: slices do not nest");
		return;
	}
	if (state_path(path) && lstat(path, &st) < 0 && errno == ENOENT) {
		say_no_state(doctor, path);
		return;
	}
	if (state_open(&state, &fault)) {
		doctor_found(doctor, DOCTOR_FAIL, "%s", fault.text);
		doctor_advise(doctor, "Until then, vgpu run makes no slice");
		return;
	}
	close(state.fd);
	if (access(state.path, W_OK | X_OK) != 0) {
		doctor_found(doctor, DOCTOR_FAIL, "%s cannot be written: %s", state.path,
			     strerror(errno));
		doctor_advise(doctor, "Set VGPU_STATE to a directory that can; vgpu run makes no "
				      "slice until then");
		return;
	}
	doctor_found(doctor, DOCTOR_OK, "%s", state.path);
}

const struct doctor_check doctor_slice[] = {
	{"policy", check_policy}, {"slice", check_slice}, {"region", check_region},
	{"turns", check_turns},   {"state", check_state}, {NULL, NULL},
};
