/*
 * A `vgpu run` has its slice's lock file flock'ed (state_dir.h). To try a lock that is held would
 * keep others from it for that moment: a slice would not be removed that should, or not be joined.
 * So /proc/locks is read first, once a look and only if it is asked for; it takes the kernel long
 * on a machine with many locks. A lock is known by its file's inode: the device that /proc/locks
 * names is not always the one that stat(2) does. So another file of that number may make a leftover
 * look idle, no more.
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

/* Inodes that are flock'ed, of this look. One thread. */
static unsigned long *inodes;
static unsigned count;
static bool has_read;
static bool tries;

void held_begin(bool may_try)
{
	tries = may_try;
	free(inodes);
	inodes = NULL;
	count = 0;
	has_read = false;
}

/* "1: FLOCK  ADVISORY  READ 123 00:1b:4567 0 EOF" */
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
 * The kernel writes /proc/locks page by page, and can miss a lock where others come or go in
 * between. So a lock that is not in the list is tried, which nobody notices if it is free.
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
