/*
 * NVML gives pids of the caller's pid namespace, and leaves out processes that are not in it (seen
 * with driver 580). A process does not know its pid in other namespaces. The kernel does: F_GETLK
 * translates the owner of a record lock. So each process keeps a record lock on the byte of its
 * slot.
 *
 * Record locks belong to the process, and are dropped when it closes any descriptor of the file. So
 * they are in a file of their own, next to the state file, which is never closed; both libraries of
 * a process may have it open. If an application closes all descriptors, it loses its lock, and is
 * then listed with its own pid, in its own namespace only.
 *
 * All functions are called under the state's mutex.
 */
#include "pids.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int file = -1;

static struct flock lock_of(short type, unsigned slot)
{
	return (struct flock){
		.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1};
}

int pids_file_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), high;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd < 0 ? -errno : fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (high < 0)
		high = -errno;
	close(fd);
	return high;
}

static void open_once(const char *state_path)
{
	char path[4096 + sizeof ".pids"];

	if (file >= 0)
		return;
	snprintf(path, sizeof path, "%s.pids", state_path);
	file = pids_file_open(path);
}

void pids_record(const char *state_path, unsigned slot)
{
	struct flock lock = lock_of(F_WRLCK, slot);

	open_once(state_path);
	if (file >= 0 && fcntl(file, F_SETLK, &lock))
		fprintf(stderr, "vgpu-sim: %s.pids cannot be locked\n", state_path);
}

uint64_t pids_space(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

unsigned pids_of(const char *state_path, unsigned slot, unsigned own, uint64_t space)
{
	struct flock lock = lock_of(F_WRLCK, slot);

	open_once(state_path);
	/* No other process has the lock. The slot is ours, or its owner has lost its lock or is
	 * dying. Its own pid is valid in its own namespace only. */
	if (file < 0 || fcntl(file, F_GETLK, &lock) || lock.l_type == F_UNLCK)
		return space == pids_space() ? own : 0;
	return lock.l_pid > 0 ? (unsigned)lock.l_pid : 0;
}

void pids_forked(void)
{
	if (file >= 0)
		close(file); /* the locks stay, as they are the parent's */
	file = -1;
}
