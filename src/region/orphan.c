/*
 * A region that is about to be made although its predecessor is in use: its file was deleted, or
 * emptied, while processes of the slice run. What they hold would be in nobody's ledger, so the new
 * one is refused for as long as they live.
 *
 * How it works. Of a file that was emptied, the slots' bytes are still locked. Of one that was
 * deleted, the living have the mapping, and /proc names it with " (deleted)" behind its path. To
 * read the maps of a process takes some 30 us, of a big one up to a millisecond, and /proc/locks
 * may take seconds on a busy machine; so this is done only when a region is made, which is once in
 * a slice's life, if /proc/locks shows that there is somebody in any region at all, and before the
 * byte is taken that others who start wait for.
 *
 * What it is not: sure. Processes of other users and other pid namespaces, a /proc that is not to
 * be read, or a file whose path was relative, are not seen; they themselves notice, and get no more
 * memory (watch.c). And a file of that path in another mount namespace is taken for ours.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "fields.h"
#include "region_internal.h"
#include "sys.h"

#define BEFORE    " "
#define DELETED   " (deleted)\n"
#define PATH_MOST 4096

/* -- /proc/locks: "1: OFDLCK ADVISORY  WRITE -1 08:01:1234 2015232 2015232" a line ------------- */

static bool is_of_a_slot(const char *line)
{
	uint64_t first = field_number(line, 6);

	return strstr(line, " OFDLCK ") && first >= VGPU_SLOT_LOCK_OFFSET &&
	       first < VGPU_SLOT_LOCK_OFFSET + VGPU_SLOTS_MAX;
}

/* Whether some process is in some region; true where that is not to be learnt. */
static bool any_slot_is_locked(void)
{
	char buf[4096 + 1], *line, *end;
	int fd = sys_open("/proc/locks", O_RDONLY, 0);
	bool found = fd < 0;
	size_t kept = 0;
	long len = 0;

	while (!found && (len = sys_read(fd, buf + kept, sizeof(buf) - 1 - kept)) > 0) {
		buf[kept + (size_t)len] = '\0';
		for (line = buf; !found && (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			found = is_of_a_slot(line);
		}
		kept = strlen(line);
		memmove(buf, line, kept);
	}
	if (fd >= 0)
		sys_close(fd);
	return found || len < 0;
}

/* -- /proc/pid/maps --------------------------------------------------------------------------- */

/* Looks for the mapping's line in a text that comes in pieces. */
struct search {
	char wanted[sizeof(BEFORE) + PATH_MOST + sizeof(DELETED)];
	size_t len;
	int pid, found_pid;
};

static bool maps_file(const struct search *search, int fd)
{
	char buf[2 * sizeof(search->wanted)];
	size_t kept = 0;
	long len;

	while ((len = sys_read(fd, buf + kept, sizeof(buf) - kept)) > 0) {
		size_t have = kept + (size_t)len;

		if (memmem(buf, have, search->wanted, search->len))
			return true;
		kept = have < search->len ? have : search->len - 1;
		memmove(buf, buf + have - kept, kept);
	}
	return false;
}

/* For sys_list_directory: stops at the first that has it. */
static int look_at_process(void *arg, const char *name)
{
	struct search *search = arg;
	char path[64];
	int fd, pid = 0;

	for (const char *c = name; *c; c++) {
		if (*c < '0' || *c > '9' || c - name > 8) /* more is no pid */
			return 0;
		pid = pid * 10 + (*c - '0');
	}
	if (pid == search->pid)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	fd = sys_open(path, O_RDONLY, 0);
	if (fd < 0)
		return 0;
	if (maps_file(search, fd))
		search->found_pid = pid;
	sys_close(fd);
	return search->found_pid != 0;
}

static int find_user_of_deleted(const char *path)
{
	struct search search = {.pid = sys_getpid()};
	int len;

	if (path[0] != '/')
		return 0;
	len = snprintf(search.wanted, sizeof(search.wanted), BEFORE "%s" DELETED, path);
	if (len < 0 || (size_t)len >= sizeof(search.wanted))
		return 0;
	search.len = (size_t)len;
	sys_list_directory("/proc", look_at_process, &search);
	return search.found_pid;
}

int region_check_deleted(const char *path, struct fault *fault)
{
	int pid = any_slot_is_locked() ? find_user_of_deleted(path) : 0;

	if (!pid)
		return 0;
	return fault_set(fault, -EBUSY,
			 "region %s was deleted while process %d uses it: end that process first",
			 path, pid);
}

int region_check_emptied(const char *path, int fd, struct fault *fault)
{
	if (sys_bytes_are_locked(fd, VGPU_SLOT_LOCK_OFFSET, VGPU_SLOTS_MAX) != 1)
		return 0;
	return fault_set(
		fault, -EBUSY,
		"region %s was emptied while processes of the slice use it: end them first", path);
}
