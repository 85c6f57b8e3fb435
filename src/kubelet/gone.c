/*
 * Entries that are to be removed lie in DIR/.gone, which only root may enter, under random
 * names. If a directory there has subdirectories, these are moved to .gone too, each under a
 * name of its own. So no tree is descended, its depth does not matter, and two descriptors are
 * enough. If a round ends early or is killed, the next round continues with what is left in
 * .gone.
 *
 * A process that still has such a directory open may fill it again. That costs a round no more
 * than its budget.
 */
#include "gone.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define GONE     ".gone"
#define NAME_LEN 33 /* 32 digits and a NUL */

/* Moves an entry of the directory dir to the directory gone. Returns 0 or a negative errno. */
static int move(int dir, const char *name, int gone)
{
	uint64_t random[2];
	char to[NAME_LEN];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -EIO;
	snprintf(to, sizeof(to), "%016llx%016llx", (unsigned long long)random[0],
		 (unsigned long long)random[1]);
	return renameat(dir, name, gone, to) < 0 ? -errno : 0;
}

static int open_directory(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool gone_move(int dir, const char *name)
{
	int gone, error;

	if (mkdirat(dir, GONE, 0700) < 0 && errno != EEXIST)
		return false;
	gone = open_directory(dir, GONE);
	if (gone < 0)
		return false;
	error = move(dir, name, gone);
	close(gone);
	return !error || error == -ENOENT;
}

static bool remove_now(int dir, const char *name)
{
	return unlinkat(dir, name, 0) == 0 || unlinkat(dir, name, AT_REMOVEDIR) == 0;
}

typedef void act_on_entry(int dir, const char *name, int gone, unsigned *budget);

/* Calls act for the entries of the directory fd while there is a budget. */
static void each_entry(int fd, act_on_entry *act, int gone, unsigned *budget)
{
	int own = fd < 0 ? -1 : open_directory(fd, ".");
	DIR *dir = own < 0 ? NULL : fdopendir(own);
	const struct dirent *entry;

	if (!dir) {
		if (own >= 0)
			close(own);
		return;
	}
	while (*budget > 0 && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
			--*budget;
			act(fd, entry->d_name, gone, budget);
		}
	closedir(dir);
}

/* Removes an entry of a directory in gone, or moves it to gone if it is a directory with
 * entries. */
static void remove_or_move(int dir, const char *name, int gone, unsigned *budget)
{
	(void)budget;
	if (!remove_now(dir, name) && (errno == ENOTEMPTY || errno == EEXIST))
		move(dir, name, gone);
}

/* Removes an entry of gone; a directory is emptied first. */
static void remove_or_empty(int dir, const char *name, int gone, unsigned *budget)
{
	int fd;

	if (remove_now(dir, name))
		return;
	fd = open_directory(dir, name);
	each_entry(fd, remove_or_move, gone, budget);
	if (fd >= 0)
		close(fd);
	unlinkat(dir, name, AT_REMOVEDIR);
}

/* A listing may lack entries that are moved to gone while it is read, so gone is listed
 * repeatedly. */
bool gone_remove(int dir, unsigned *budget)
{
	int gone = open_directory(dir, GONE);
	unsigned before;
	bool empty;

	if (gone < 0)
		return errno == ENOENT;
	do {
		before = *budget;
		each_entry(gone, remove_or_empty, gone, budget);
		empty = unlinkat(dir, GONE, AT_REMOVEDIR) == 0;
	} while (!empty && *budget < before);
	close(gone);
	return empty;
}
