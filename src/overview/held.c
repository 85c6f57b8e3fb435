/*
 * A vgpu run holds its slice by a flock(2) on the slice's lock file (state_dir.h). A try of that
 * lock keeps other processes from it for a moment. So another vgpu run could fail to join the
 * slice, or to remove it. So /proc/locks is read before any lock is tried. It is read once in a
 * look, and only if a lock is asked for, because the kernel needs long for it on a machine with
 * many locks.
 *
 * A lock in /proc/locks is identified by its file's inode alone, because the device there is
 * not always that of stat(2). If another file has the same inode number, a leftover may seem to
 * be held by a vgpu run. There is no other harm.
 */
#include "held.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state_dir.h"
#include "sys.h"

/* The inodes of files with a flock, as this look found them. Only one thread uses these
 * variables. */
static unsigned long *inodes;
static unsigned count;
static bool has_read; /* /proc/locks was read in this look */
static bool tries;    /* locks may be tried in this look */

void held_begin(bool may_try)
{
	tries = may_try;
	free(inodes);
	inodes = NULL;
	count = 0;
	has_read = false;
}

/* Keeps the inode of a line of /proc/locks, if the line is about a flock. Such a line is, for
 * example, "1: FLOCK  ADVISORY  READ 123 00:1b:4567 0 EOF". */
static void keep(const char *line)
{
	unsigned long inode, *more;

	if (!strstr(line, " FLOCK ") ||
	    sscanf(line, "%*s %*s %*s %*s %*s %*x:%*x:%lu", &inode) != 1)
		return;
	more = realloc(inodes, (count + 1) * sizeof(*more));
	if (!more)
		return;
	inodes = more;
	inodes[count++] = inode;
}

static void read_locks(void)
{
	FILE *file = fopen("/proc/locks", "re");
	char line[256];

	has_read = true;
	while (file && fgets(line, sizeof(line), file))
		keep(line);
	if (file)
		fclose(file);
}

/*
 * Tries the lock. The kernel writes /proc/locks page by page, and can miss a lock if other
 * locks come or go meanwhile. So a lock that is missing there is tried. If it is free, as it
 * mostly is then, the try disturbs no other process.
 */
static bool is_locked(const char *path)
{
	int fd = sys_open_regular(path, O_RDONLY | O_NONBLOCK);
	bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;

	if (fd >= 0)
		close(fd);
	return locked;
}

bool held_by_run(const struct slices_one *one)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s/" STATE_LOCK, one->state_path, one->name);
	if (lstat(path, &st) < 0)
		return false;
	if (!has_read)
		read_locks();
	for (unsigned i = 0; i < count; i++)
		if (inodes[i] == st.st_ino)
			return true;
	return tries && is_locked(path);
}

bool held_by_none(const struct slices_one *one, unsigned living)
{
	if (one->kind != SLICES_RUN || living > 0)
		return false;
	held_begin(true);
	return !held_by_run(one);
}
