#include "spaces.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIPPED               77
#define INITIAL_PID_NAMESPACE 0xeffffffcu /* inode of /proc/self/ns/pid there, by Linux's ABI */

static int outside = -1; /* the caller's own pid namespace, between begin and end */

static void must(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "namespaces: %s: %s\n", what, strerror(errno));
	_exit(1);
}

bool space_is_host(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == INITIAL_PID_NAMESPACE;
}

void space_begin(void)
{
	outside = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	must(outside >= 0, "/proc/self/ns/pid");
	must(unshare(CLONE_NEWPID) == 0, "a pid namespace");
}

void space_end(void)
{
	must(setns(outside, CLONE_NEWPID) == 0, "back to the own pid namespace");
	close(outside);
	outside = -1;
}

static bool has_own_mounts(void)
{
	return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

void space_own_mounts(void)
{
	must(has_own_mounts(), "mounts of the process's own");
}

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), error = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		error = -errno;
	close(fd);
	return error;
}

int space_become_root(void)
{
	unsigned uid = geteuid(), gid = getegid();
	char users[32], groups[32];
	int error;

	snprintf(users, sizeof(users), "0 %u 1", uid);
	snprintf(groups, sizeof(groups), "0 %u 1", gid);
	if (unshare(CLONE_NEWUSER) != 0)
		return -errno;
	write_text("/proc/self/setgroups", "deny"); /* kernels before 3.19 have no such file */
	error = write_text("/proc/self/uid_map", users);
	return error ? error : write_text("/proc/self/gid_map", groups);
}

/* -- what cannot be done here ------------------------------------------------------------------ */

static int wait_for(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Whether a child of that user can do it. A namespace may have no such user: then it is this one.
 */
static bool a_child_can(bool (*act)(void), uid_t uid)
{
	pid_t pid = fork();

	if (pid == 0) {
		bool became = (setresgid(uid, uid, uid) == 0 || errno == EINVAL) &&
			      (setresuid(uid, uid, uid) == 0 || errno == EINVAL);

		prctl(PR_SET_DUMPABLE, 1); /* lost with the user, and with it its own /proc */
		_exit(became && act() ? 0 : 1);
	}
	return pid > 0 && wait_for(pid) == 0;
}

const char *space_mounts_obstacle(void)
{
	return a_child_can(has_own_mounts, geteuid())
		       ? NULL
		       : "a process cannot have mounts of its own: the root directory is no mount "
			 "point, as in a chroot, or mount namespaces are not permitted";
}

/* The program itself, and the files that the loader preloads into it. */
static bool can_read_the_build(void)
{
	const char *preload = getenv("LD_PRELOAD");
	char *paths = strdup(preload ? preload : "");
	bool good = paths && access("/proc/self/exe", R_OK | X_OK) == 0;
	char *rest;

	for (char *path = good ? strtok_r(paths, ": ", &rest) : NULL; path;
	     path = strtok_r(NULL, ": ", &rest))
		good = good && access(path, R_OK) == 0;
	free(paths);
	return good;
}

const char *space_user_obstacle(uid_t uid)
{
	return a_child_can(can_read_the_build, uid)
		       ? NULL
		       : "another user cannot read the build directory, or one above it";
}

static bool can_become_root(void)
{
	return space_become_root() == 0;
}

const char *space_root_obstacle(uid_t uid)
{
	return a_child_can(can_become_root, uid)
		       ? NULL
		       : "an ordinary user cannot make a user namespace: it is not permitted, or "
			 "this is a chroot";
}

/* -- the program ------------------------------------------------------------------------------ */

/* What is needed later, tried in a child. 0, or an errno. */
static int try_namespaces(bool as_root)
{
	pid_t pid = fork();

	if (pid == 0) {
		int error = as_root ? 0 : -space_become_root();

		if (!error && unshare(CLONE_NEWPID | CLONE_NEWNS) != 0)
			error = errno;
		_exit(error);
	}
	return pid < 0 ? errno : wait_for(pid);
}

/* The child is pid 1 where the test takes place, the parent passes on how it went. */
static int play_in_own(int (*play)(int argc, char **argv), int argc, char **argv)
{
	pid_t pid;

	must(space_become_root() == 0, "a user namespace");
	space_own_mounts();
	must(unshare(CLONE_NEWPID) == 0, "a pid namespace");
	pid = fork();
	must(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(play(argc, argv));
	}
	return wait_for(pid);
}

int spaces_main(int (*play)(int argc, char **argv), int argc, char **argv)
{
	int error;

	if (try_namespaces(true) == 0)
		return play(argc, argv);
	error = try_namespaces(false);
	if (error == 0)
		return play_in_own(play, argc, argv);
	printf("skipped: pid namespaces cannot be made here: %s\n", strerror(error));
	return SKIPPED;
}
