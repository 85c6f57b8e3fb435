/*
 * A container's directory is made as .new-NAME, and renamed when it is whole.
 *
 * The kubelet keeps the answer to Allocate for as long as a pod lives, and mounts from it whenever
 * a container of the pod starts, also after the node did. So a directory must outlive all processes
 * of its container, and the state directory lies where it outlives the machine's. Init containers
 * get the devices of their pod's containers, by an Allocate of their own right before. A kubelet
 * that was just started does not know its pods yet. So a container is gone only if
 *
 *   it is grace_s old, and no pod has had any of its devices for grace_s; or
 *   another one, which was made grace_s or more after it, has one of its devices;
 *
 * and neither does a process live in its region, nor has one that /proc shows the directory
 * mounted. The time of day may be set, so a record has a number, which is higher than those of all
 * earlier ones, and the time since the machine's start. Between two starts, grace_s is over. What
 * is removed is first moved away in one step (gone.h), as all below a region's directory may be the
 * tenant's doing; ENTRIES_MAX files are then removed in a round at most.
 *
 * containerd makes a directory of whatever it is to mount and does not find. So the library that
 * containers get is a copy beside the policies, which no package removes; and a region's directory
 * is given its mode at a start even if it is there.
 */
#include "containers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "gone.h"
#include "guard.h"
#include "library.h"
#include "region.h"

#define RECORD      "record"
#define BOOT_LEN    37 /* of the ID of a start, with a NUL */
#define NEW         ".new-"
#define RECORD_MAX  ((size_t)256 * 1024)
#define ENTRIES_MAX 4096

/* -- records ----------------------------------------------------------------------------------- */

static uint64_t uptime_s(void)
{
	return clock_now_ns() / NS_PER_S;
}

/* Which start of the machine this is. */
static void read_boot(char boot[BOOT_LEN])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, boot, BOOT_LEN - 1);

	boot[len > 0 ? len : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

struct record {
	char name[CONTAINERS_NAME_LEN];
	uint64_t number;     /* above those of all that were there when it was made */
	uint64_t made_s;     /* when, since the start of the machine */
	char boot[BOOT_LEN]; /* which start: the kernel's ID of it, "" where that is not known */
	char *text;          /* of the file */
	char *ids;           /* its IDs, a line each */
};

struct records {
	unsigned count;
	struct record *record;
};

static void free_records(struct records *records)
{
	for (unsigned i = 0; i < records->count; i++)
		free(records->record[i].text);
	free(records->record);
}

static char *read_text(int state, const char *name)
{
	char path[CONTAINERS_NAME_LEN + sizeof("/" RECORD)], *text = NULL;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "%s/" RECORD, name);
	fd = openat(state, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return NULL;
	text = malloc(RECORD_MAX + 1);
	len = text ? read(fd, text, RECORD_MAX) : -1;
	close(fd);
	if (len < 0) {
		free(text);
		return NULL;
	}
	text[len] = '\0';
	return text;
}

/* One whose record is not to be read stays. */
static bool read_record(int state, const char *name, struct record *ret_record)
{
	struct record record = {.text = read_text(state, name)};
	char *end, *resource = record.text ? strchr(record.text, '\n') : NULL;

	record.ids = resource ? strchr(resource + 1, '\n') : NULL;
	if (!record.ids) {
		free(record.text);
		return false;
	}
	record.number = strtoull(record.text, &end, 10);
	record.made_s = *end == ' ' ? strtoull(end, &end, 10) : 0;
	if (*end == ' ')
		snprintf(record.boot, sizeof(record.boot), "%.*s", (int)strcspn(end + 1, "\n"),
			 end + 1);
	snprintf(record.name, sizeof(record.name), "%s", name);
	*ret_record = record;
	return true;
}

static int add_record(int state, const char *name, struct records *records)
{
	struct record *more =
		realloc(records->record, (records->count + 1) * sizeof(*records->record));

	if (!more)
		return -ENOMEM;
	records->record = more;
	if (read_record(state, name, &records->record[records->count]))
		records->count++;
	return 0;
}

static bool is_name(const char *name)
{
	return strlen(name) == CONTAINERS_NAME_LEN - 1 &&
	       strspn(name, "0123456789abcdef") == CONTAINERS_NAME_LEN - 1;
}

/* Calls each for every name in the directory, until it returns an error. */
static int list(int parent, int (*each)(int parent, const char *name, const void *arg),
		const void *arg)
{
	int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
	const struct dirent *entry;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		error = -errno;
		if (fd >= 0)
			close(fd);
		return error;
	}
	while (!error && (entry = readdir(dir)))
		error = each(parent, entry->d_name, arg);
	closedir(dir);
	return error;
}

static int keep_record(int parent, const char *name, const void *records)
{
	return is_name(name) ? add_record(parent, name, *(struct records *const *)records) : 0;
}

static int open_directory(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* A number above those of all records. */
static int next_number(const char *path, uint64_t *ret_number)
{
	struct records records = {0}, *const kept = &records;
	int state = open_directory(path), error = state < 0 ? state : 0;
	uint64_t last = 0;

	if (!error)
		error = list(state, keep_record, &kept);
	for (unsigned i = 0; i < records.count; i++)
		if (records.record[i].number > last)
			last = records.record[i].number;
	free_records(&records);
	if (state >= 0)
		close(state);
	if (!error)
		*ret_number = last + 1;
	return error;
}

/* -- making ------------------------------------------------------------------------------------ */

static int fail(struct fault *fault, int error, const char *verb, const char *path)
{
	return fault_set(fault, error, "cannot %s %.300s: %s", verb, path, strerror(-error));
}

/* Makes the directory and those above it, mode 0755. The path leaves room for names. */
static int make_directories(const char *path)
{
	char part[CONTAINERS_PATH_MAX];

	if (*path != '/' || strlen(path) > CONTAINERS_PATH_MAX - 96)
		return -EINVAL;
	for (const char *at = path + 1;; at++)
		if (*at == '/' || *at == '\0') {
			snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
			if (mkdir(part, 0755) < 0 && errno != EEXIST)
				return -errno;
			if (*at == '\0')
				return 0;
		}
}

/* Whole or not at all, and on the disk: the directory is renamed right after. */
static int write_file(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, data, len) != (ssize_t)len || fchmod(fd, 0644) < 0 || fsync(fd) < 0)
		error = errno ? -errno : -EIO;
	close(fd);
	return error;
}

static int make_name(char ret_name[CONTAINERS_NAME_LEN])
{
	uint8_t random[(CONTAINERS_NAME_LEN - 1) / 2];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -errno;
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(ret_name + 2 * i, 3, "%02x", random[i]);
	return 0;
}

/* A number, a time, the start that it is of, and a resource, and then IDs. */
static int write_record(const char *dir, uint64_t number, const char *resource,
			const char *const *ids)
{
	char path[CONTAINERS_PATH_MAX + 64], line[128], boot[BOOT_LEN];
	struct bytes text = {0};
	int error;

	read_boot(boot);
	snprintf(line, sizeof(line), "%llu %llu %s\n", (unsigned long long)number,
		 (unsigned long long)uptime_s(), boot);
	bytes_add(&text, line, strlen(line));
	bytes_add(&text, resource, strlen(resource));
	for (; *ids; ids++) {
		bytes_add(&text, "\n", 1);
		bytes_add(&text, *ids, strlen(*ids));
	}
	bytes_add(&text, "\n", 1);
	snprintf(path, sizeof(path), "%s/" RECORD, dir);
	error = text.failed ? -ENOMEM : write_file(path, text.data, text.len);
	bytes_free(&text);
	return error;
}

static int make_directory(const char *path, unsigned mode)
{
	return mkdir(path, 0755) < 0 || chmod(path, mode) < 0 ? -errno : 0;
}

/* Also where the directory is there, whoever made it. */
static int make_region_directory(const char *regions, const char *name)
{
	char path[CONTAINERS_PATH_MAX];
	struct stat st;
	int error;

	snprintf(path, sizeof(path), "%s/%s", regions, name);
	error = make_directory(path, 01777);
	if (error != -EEXIST)
		return error;
	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	return chmod(path, 01777) < 0 ? -errno : 0;
}

static int fill(const char *dir, uint64_t number, const char *resource, const char *const *ids,
		const struct policy *policy, struct fault *fault)
{
	char path[CONTAINERS_PATH_MAX + 64];
	int error = make_directory(dir, 0755);

	snprintf(path, sizeof(path), "%s/" CONTAINERS_POLICY, dir);
	if (!error)
		error = make_directory(path, 0755);
	if (!error)
		error = write_record(dir, number, resource, ids);
	return error ? fail(fault, error, "make", dir) : policy_write(path, policy, fault);
}

int containers_make(const struct containers_places *places, const char *resource,
		    const char *const *ids, const struct policy *policy,
		    char ret_name[CONTAINERS_NAME_LEN], struct fault *fault)
{
	const char *state = places->state;
	char made[CONTAINERS_PATH_MAX], path[CONTAINERS_PATH_MAX], name[CONTAINERS_NAME_LEN];
	uint64_t number = 0;
	int error = make_name(name);

	if (!error)
		error = next_number(state, &number);
	if (error)
		return fail(fault, error, "name a directory in", state);
	snprintf(made, sizeof(made), "%s/" NEW "%s", state, name);
	snprintf(path, sizeof(path), "%s/%s", state, name);
	error = fill(made, number, resource, ids, policy, fault);
	if (!error) {
		error = make_region_directory(places->regions, name);
		if (error)
			fail(fault, error, "make a directory in", places->regions);
	}
	if (!error && rename(made, path) < 0)
		error = fail(fault, -errno, "make", path);
	if (!error)
		memcpy(ret_name, name, sizeof(name));
	return error;
}

/* -- which are gone ---------------------------------------------------------------------------- */

/* Whether ids has that line. */
static bool has_line(const char *ids, const char *line, size_t len)
{
	for (const char *at = ids; at; at = strchr(at + 1, '\n'))
		if (strncmp(at + 1, line, len) == 0 && at[1 + len] == '\n')
			return true;
	return false;
}

/* Calls found for each ID of the record, until it returns true: whether it did. */
static bool any_id(const struct record *record,
		   bool (*found)(const void *arg, const char *id, size_t len), const void *arg)
{
	for (const char *id = record->ids + 1; *id;) {
		const char *end = strchrnul(id, '\n');

		if (found(arg, id, (size_t)(end - id)))
			return true;
		id = *end ? end + 1 : end;
	}
	return false;
}

static bool is_in_use(const void *arg, const char *id, size_t len)
{
	const struct bytes *in_use = arg;

	for (size_t at = 0; at < in_use->len;) {
		const char *used = (const char *)in_use->data + at;
		size_t used_len = strlen(used);

		if (used_len == len && memcmp(used, id, len) == 0)
			return true;
		at += used_len + 1;
	}
	return false;
}

static bool is_in_record(const void *arg, const char *id, size_t len)
{
	const struct record *record = arg;

	return has_line(record->ids, id, len);
}

/* Whether the other one was made grace_s or more after the record. */
static bool is_later(const struct record *other, const struct record *record, unsigned grace_s)
{
	if (other->number <= record->number)
		return false;
	return strcmp(other->boot, record->boot) != 0 || other->made_s >= record->made_s + grace_s;
}

/* Whether it was made grace_s or more ago. */
static bool is_old(const struct record *record, unsigned grace_s)
{
	char boot[BOOT_LEN];

	read_boot(boot);
	return (*boot && strcmp(boot, record->boot) != 0) || uptime_s() >= record->made_s + grace_s;
}

static bool is_superseded(const struct record *record, const struct records *records,
			  unsigned grace_s)
{
	for (unsigned i = 0; i < records->count; i++) {
		const struct record *other = &records->record[i];

		if (is_later(other, record, grace_s) && any_id(record, is_in_record, other))
			return true;
	}
	return false;
}

/* In doubt somebody does. */
static bool lives(const char *regions, const struct record *record)
{
	char path[CONTAINERS_PATH_MAX + 64];
	struct region region = REGION_CLOSED;
	unsigned living = 0;
	int error;

	snprintf(path, sizeof(path), "%s/%s/region", regions, record->name);
	guard_begin();
	error = region_inspect(path, &region, NULL);
	if (!error)
		living = region_living(&region);
	region_close(&region);
	return !guard_end() && living > 0;
}

/* Whether the process has a file or directory of that name mounted, as its mountinfo says. One that
 * ends meanwhile has not; where its mountinfo cannot be read otherwise, it has. */
static bool has_mounted(const char *pid, const char *name)
{
	char path[64], *line = NULL;
	size_t room = 0;
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%.20s/mountinfo", pid);
	errno = 0;
	file = fopen(path, "re");
	while (file && !found && getline(&line, &room, file) > 0)
		found = strstr(line, name) != NULL;
	if (!found && errno != ENOENT && errno != ESRCH && errno != EINVAL)
		found = !file || !feof(file);
	if (file)
		fclose(file);
	free(line);
	return found;
}

/* Whether any process has; in doubt one has. Where this process does not see the machine's
 * processes, those in regions must do. */
static bool is_mounted(const char *name)
{
	const struct dirent *entry;
	bool found = false;
	DIR *proc = opendir("/proc");

	if (!proc)
		return true;
	while (!found && (errno = 0, entry = readdir(proc)))
		found = strspn(entry->d_name, "0123456789") == strlen(entry->d_name) &&
			has_mounted(entry->d_name, name);
	found = found || errno != 0;
	closedir(proc);
	return found;
}

static bool is_gone(const char *regions, const struct record *record, const struct records *records,
		    const struct bytes *in_use, unsigned grace_s)
{
	bool unused = in_use && is_old(record, grace_s) && !any_id(record, is_in_use, in_use);

	return (unused || is_superseded(record, records, grace_s)) && !lives(regions, record) &&
	       !is_mounted(record->name);
}

/* -- looking ----------------------------------------------------------------------------------- */

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Moves away what has the prefix. */
static int move_half(int parent, const char *name, const void *prefix)
{
	if (has_prefix(name, prefix))
		gone_move(parent, name);
	return 0;
}

static int make_region_again(int parent, const char *name, const void *regions)
{
	(void)parent;
	return is_name(name) ? make_region_directory(regions, name) : 0;
}

/* The region's directory goes first, as nobody looks for one without a record. */
static int sweep(int state, int regions, const struct containers_places *places,
		 const struct bytes *in_use, unsigned grace_s)
{
	struct records records = {0}, *const kept = &records;
	int error = list(state, keep_record, &kept), removed = 0;

	for (unsigned i = 0; !error && i < records.count; i++) {
		const struct record *record = &records.record[i];

		if (is_gone(places->regions, record, &records, in_use, grace_s))
			removed +=
				gone_move(regions, record->name) && gone_move(state, record->name);
	}
	free_records(&records);
	return error ? error : removed;
}

static void close_both(int state, int regions)
{
	if (state >= 0)
		close(state);
	if (regions >= 0)
		close(regions);
}

int containers_sweep(const struct containers_places *places, const struct bytes *in_use,
		     unsigned grace_s)
{
	int state = open_directory(places->state), regions = open_directory(places->regions);
	int result = state < 0 ? state : regions;

	if (state >= 0 && regions >= 0)
		result = sweep(state, regions, places, in_use && !in_use->failed ? in_use : NULL,
			       grace_s);
	close_both(state, regions);
	return result;
}

bool containers_remove(const struct containers_places *places)
{
	int state = open_directory(places->state), regions = open_directory(places->regions);
	unsigned budget = ENTRIES_MAX;
	bool whole = gone_remove(state, &budget);

	whole = gone_remove(regions, &budget) && whole;
	close_both(state, regions);
	return whole;
}

/* -- what all containers get ------------------------------------------------------------------- */

/* Replaces the file in one step: containers that run keep the one that they have mounted. */
static int replace(const char *state, const char *name, const void *data, size_t len)
{
	char path[CONTAINERS_PATH_MAX], made[CONTAINERS_PATH_MAX];
	int error;

	snprintf(path, sizeof(path), "%s/%s", state, name);
	snprintf(made, sizeof(made), "%s/" NEW "%s", state, name);
	error = write_file(made, data, len);
	return !error && rename(made, path) < 0 ? -errno : error;
}

static int write_preload(const char *state, const char *inside)
{
	char line[CONTAINERS_PATH_MAX];

	snprintf(line, sizeof(line), "%s\n", inside);
	return replace(state, CONTAINERS_PRELOAD, line, strlen(line));
}

int containers_prepare(const struct containers_places *places, const char *library,
		       const char *inside, struct fault *fault)
{
	int error = make_directories(places->state), fd;

	if (error)
		return fail(fault, error, "make", places->state);
	error = make_directories(places->regions);
	if (!error && chmod(places->regions, 0700) < 0) /* any user may write what is below */
		error = -errno;
	if (error)
		return fail(fault, error, "make", places->regions);
	error = library_copy(places->state, library, "library", fault);
	if (error)
		return error;
	error = write_preload(places->state, inside);
	fd = error ? error : open_directory(places->state);
	if (fd < 0)
		return fail(fault, fd, "prepare", places->state);
	error = list(fd, move_half, NEW);
	if (!error)
		error = list(fd, make_region_again, places->regions);
	close(fd);
	return error ? fail(fault, error, "prepare", places->regions) : 0;
}
