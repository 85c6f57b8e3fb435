/*
 * Orphans: regions that processes still use although their file was deleted, renamed or emptied. If
 * a new region were made at such a path, the memory of these processes would be in no ledger. So
 * the new region is refused as long as they live.
 *
 * How it works.
 *
 *     the file was   the region is found by
 *     emptied        the slots' bytes, which are still locked
 *     deleted        the mappings of living processes, whose path in /proc ends with " (deleted)"
 *     renamed        the mappings, which have the new path; own.path says where the file was
 *
 * Reading the maps of a process takes some 30 us, of a big one up to a millisecond, and /proc/locks
 * may take seconds on a busy machine. So this is done only when a region is made, which is once in
 * a slice's life. The maps are read only if /proc/locks shows a process in any region. It is done
 * before the byte is taken for which other openers wait.
 *
 * What it is not: complete. It does not see processes of other users and other pid namespaces, nor
 * files whose path was relative, and nothing if /proc cannot be read. Such processes notice the
 * loss themselves, and get no more memory (watch.c). A file of that path in another mount namespace
 * is taken for ours.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "fields.h"
#include "region_internal.h"
#include "sys.h"

#define DELETED   " (deleted)"
#define PATH_MOST 4096

/* -- /proc/locks: "1: OFDLCK ADVISORY  WRITE -1 08:01:1234 2015232 2015232" a line ------------- */

static bool is_of_a_slot(const char *line)
{
	uint64_t first = field_number(line, 6);

	return strstr(line, " OFDLCK ") && first >= VGPU_SLOT_LOCK_OFFSET &&
	       first < VGPU_SLOT_LOCK_OFFSET + VGPU_SLOTS_MAX;
}

/* Whether any process has a slot in any region; true if that cannot be found out. */
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

/* -- /proc/pid/maps: "7f1000000000-7f1000200000 rw-s 00000000 08:01 1234    /path" a line -------
 */

#define PATH_FIELD 5
#define LINE_MOST  (PATH_MOST + 128)

struct search {
	const char *path;
	uint64_t hash; /* region_path_hash of the path */
	int pid, found_pid;
	char renamed_to[PATH_MOST]; /* "": the file of found_pid was deleted */
};

static uint64_t hex(const char **at)
{
	uint64_t number = 0;

	for (;; (*at)++) {
		if (**at >= '0' && **at <= '9')
			number = number << 4 | (uint64_t)(**at - '0');
		else if (**at >= 'a' && **at <= 'f')
			number = number << 4 | (uint64_t)(**at - 'a' + 10);
		else
			return number;
	}
}

/* Whether the line is a mapping as a process in a region has it. */
static bool maps_a_region(const char *line)
{
	const char *at = line, *rights = field_at(line, 1);
	uint64_t start = hex(&at), end = *at == '-' ? (at++, hex(&at)) : 0;

	return end - start == sizeof(struct vgpu_region_file) && rights &&
	       strncmp(rights, "rw-s", 4) == 0;
}

/* Whether the file is a region that was made at the search's path. */
static bool was_made_there(const char *path, const struct search *search)
{
	struct vgpu_region_own own;
	size_t len = offsetof(struct vgpu_region_own, spare);
	struct stat st;
	int fd;

	if (sys_stat(path, &st) != 0 || !S_ISREG(st.st_mode))
		return false;
	fd = sys_open(path, REGION_OPEN_FLAGS(false), 0);
	if (fd < 0)
		return false;
	if (sys_read_at(fd, &own, len, VGPU_REGION_OFFSET) != (long)len)
		own.magic = 0;
	sys_close(fd);
	return own.magic == VGPU_REGION_MAGIC && own.path == search->hash;
}

/* Whether the line, without its line feed, is of a file that was at the search's path. */
static bool is_wanted(struct search *search, const char *line)
{
	const char *path = maps_a_region(line) ? field_at(line, PATH_FIELD) : NULL;
	size_t len = strlen(search->path);

	if (!path || path[0] != '/')
		return false;
	if (strncmp(path, search->path, len) == 0 && strcmp(path + len, DELETED) == 0)
		return true;
	if (strcmp(path, search->path) == 0 || !was_made_there(path, search))
		return false;
	snprintf(search->renamed_to, sizeof(search->renamed_to), "%s", path);
	return true;
}

/* A line that is too long is not of a region. */
static bool maps_file(struct search *search, int fd)
{
	char buf[LINE_MOST + 1], *line, *end;
	size_t kept = 0;
	bool found = false;
	long len;

	while (!found && (len = sys_read(fd, buf + kept, sizeof(buf) - 1 - kept)) > 0) {
		buf[kept + (size_t)len] = '\0';
		for (line = buf; !found && (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			found = is_wanted(search, line);
		}
		kept = strlen(line);
		if (kept == sizeof(buf) - 1)
			kept = 0;
		memmove(buf, line, kept);
	}
	return found;
}

/* For sys_list_directory: stops at the first process that has the file. */
static int look_at_process(void *arg, const char *name)
{
	struct search *search = arg;
	char path[64];
	int fd, pid = 0;

	for (const char *c = name; *c; c++) {
		if (*c < '0' || *c > '9' || c - name > 8) /* more digits are no pid */
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

int region_check_deleted(const char *path, struct fault *fault)
{
	struct search search = {.path = path, .hash = region_path_hash(path), .pid = sys_getpid()};

	if (path[0] == '/' && any_slot_is_locked())
		sys_list_directory("/proc", look_at_process, &search);
	if (!search.found_pid)
		return 0;
	if (search.renamed_to[0])
		return fault_set(fault, -EBUSY,
				 "region %s was renamed to %s while process %d uses it: end that "
				 "process first",
				 path, search.renamed_to, search.found_pid);
	return fault_set(fault, -EBUSY,
			 "region %s was deleted while process %d uses it: end that process first",
			 path, search.found_pid);
}

int region_check_emptied(const char *path, int fd, struct fault *fault)
{
	if (sys_bytes_are_locked(fd, VGPU_SLOT_LOCK_OFFSET, VGPU_SLOTS_MAX) != 1)
		return 0;
	return fault_set(
		fault, -EBUSY,
		"region %s was emptied while processes of the slice use it: end them first", path);
}
