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
 * mounted. What is removed is first renamed to .gone-NAME. All below region/ may be the tenant's
 * doing, so no link is followed there, and ENTRIES_MAX files are removed in a look at most.
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
#include "guard.h"
#include "region.h"

#define RECORD      "record"
#define NEW         ".new-"
#define GONE        ".gone-"
#define RECORD_MAX  ((size_t)256 * 1024)
#define ENTRIES_MAX 4096
#define DEPTH_MAX   32

/* -- making ------------------------------------------------------------------------------------ */

static int fail(struct fault *fault, int error, const char *verb, const char *path)
{
	return fault_set(fault, error, "cannot %s %.300s: %s", verb, path, strerror(-error));
}

/* Makes the directory and those above it, mode 0755. */
static int make_directories(const char *path)
{
	char part[CONTAINERS_PATH_MAX];

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

/* A time and a resource, and then IDs. */
static int write_record(const char *dir, const char *resource, const char *const *ids)
{
	char path[CONTAINERS_PATH_MAX + 64], line[64];
	struct bytes text = {0};
	int error;

	snprintf(line, sizeof(line), "%lld\n", (long long)clock_unix_s());
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

static int make_directory(const char *dir, const char *name, unsigned mode)
{
	char path[CONTAINERS_PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s%s%s", dir, *name ? "/" : "", name);
	if (mkdir(path, 0755) < 0 || chmod(path, mode) < 0)
		return -errno;
	return 0;
}

static int fill(const char *dir, const char *resource, const char *const *ids,
		const struct policy *policy, struct fault *fault)
{
	char path[CONTAINERS_PATH_MAX + 64];
	int error = make_directory(dir, "", 0755);

	if (!error)
		error = make_directory(dir, CONTAINERS_POLICY, 0755);
	if (!error)
		error = make_directory(dir, CONTAINERS_REGION, 01777);
	if (!error)
		error = write_record(dir, resource, ids);
	if (error)
		return fail(fault, error, "make", dir);
	snprintf(path, sizeof(path), "%s/" CONTAINERS_POLICY, dir);
	return policy_write(path, policy, fault);
}

int containers_make(const char *state, const char *resource, const char *const *ids,
		    const struct policy *policy, char ret_name[CONTAINERS_NAME_LEN],
		    struct fault *fault)
{
	char made[CONTAINERS_PATH_MAX], path[CONTAINERS_PATH_MAX], name[CONTAINERS_NAME_LEN];
	int error = make_name(name);

	if (error)
		return fail(fault, error, "name a directory in", state);
	snprintf(made, sizeof(made), "%s/" NEW "%s", state, name);
	snprintf(path, sizeof(path), "%s/%s", state, name);
	error = fill(made, resource, ids, policy, fault);
	if (!error && rename(made, path) < 0)
		error = fail(fault, -errno, "make", path);
	if (!error)
		memcpy(ret_name, name, sizeof(name));
	return error;
}

/* -- removing ---------------------------------------------------------------------------------- */

/* Removes a file or a directory; budget: how many more files may go. Whether nothing is left. */
static bool remove_entry(int parent, const char *name, unsigned depth, unsigned *budget)
{
	const struct dirent *entry;
	bool whole = true;
	DIR *dir;
	int fd;

	if (*budget == 0)
		return false;
	(*budget)--;
	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return true;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (whole && depth > 0 && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			whole = remove_entry(fd, entry->d_name, depth - 1, budget);
	closedir(dir);
	return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

/* -- which are gone ---------------------------------------------------------------------------- */

struct record {
	char name[CONTAINERS_NAME_LEN];
	int64_t made_s;
	char *text; /* of the file */
	char *ids;  /* its IDs, a line each */
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
	record.made_s = strtoll(record.text, &end, 10);
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

static bool is_superseded(const struct record *record, const struct records *records,
			  unsigned grace_s)
{
	for (unsigned i = 0; i < records->count; i++) {
		const struct record *other = &records->record[i];

		if (other->made_s - record->made_s >= (int64_t)grace_s &&
		    any_id(record, is_in_record, other))
			return true;
	}
	return false;
}

/* In doubt somebody does. */
static bool lives(const char *state, const struct record *record)
{
	char path[CONTAINERS_PATH_MAX + 64];
	struct region region = REGION_CLOSED;
	unsigned living = 0;
	int error;

	snprintf(path, sizeof(path), "%s/%s/" CONTAINERS_REGION "/region", state, record->name);
	guard_begin();
	error = region_inspect(path, &region, NULL);
	if (!error)
		living = region_living(&region);
	region_close(&region);
	return !guard_end() && living > 0;
}

/* Whether a process has a file or directory of that name mounted, as its mountinfo says; in doubt
 * one has. Where this process does not see the machine's processes, those in regions must do. */
static bool is_mounted(const char *name)
{
	const struct dirent *entry;
	bool found = false;
	DIR *proc = opendir("/proc");

	while (proc && !found && (entry = readdir(proc))) {
		char path[64], *line = NULL;
		size_t room = 0;
		FILE *file;

		if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/%.20s/mountinfo", entry->d_name);
		file = fopen(path, "re");
		while (file && !found && getline(&line, &room, file) > 0)
			found = strstr(line, name) != NULL;
		if (file)
			fclose(file);
		free(line);
	}
	if (proc)
		closedir(proc);
	return found || !proc;
}

static bool is_gone(const char *state, const struct record *record, const struct records *records,
		    const struct bytes *in_use, unsigned grace_s)
{
	bool unused = in_use && clock_unix_s() - record->made_s >= (int64_t)grace_s &&
		      !any_id(record, is_in_use, in_use);

	return (unused || is_superseded(record, records, grace_s)) && !lives(state, record) &&
	       !is_mounted(record->name);
}

/* -- looking ----------------------------------------------------------------------------------- */

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_name(const char *name)
{
	return strlen(name) == CONTAINERS_NAME_LEN - 1 &&
	       strspn(name, "0123456789abcdef") == CONTAINERS_NAME_LEN - 1;
}

/* Lists the containers' records, and removes what is half made or half removed. */
static int list(int state, const char *half, struct records *ret_records)
{
	unsigned budget = ENTRIES_MAX;
	const struct dirent *entry;
	int fd = openat(state, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		error = -errno;
		if (fd >= 0)
			close(fd);
		return error;
	}
	while (!error && (entry = readdir(dir))) {
		if (has_prefix(entry->d_name, half))
			remove_entry(state, entry->d_name, DEPTH_MAX, &budget);
		else if (ret_records && is_name(entry->d_name))
			error = add_record(state, entry->d_name, ret_records);
	}
	closedir(dir);
	return error;
}

static int sweep(const char *path, int state, const struct bytes *in_use, unsigned grace_s)
{
	struct records records = {0};
	int error = list(state, GONE, &records), removed = 0;

	for (unsigned i = 0; !error && i < records.count; i++) {
		const struct record *record = &records.record[i];
		char gone[CONTAINERS_NAME_LEN + sizeof(GONE)];
		unsigned budget = ENTRIES_MAX;

		if (!is_gone(path, record, &records, in_use, grace_s))
			continue;
		snprintf(gone, sizeof(gone), GONE "%s", record->name);
		if (renameat(state, record->name, state, gone) < 0)
			continue;
		remove_entry(state, gone, DEPTH_MAX, &budget);
		removed++;
	}
	free_records(&records);
	return error ? error : removed;
}

int containers_sweep(const char *state, const struct bytes *in_use, unsigned grace_s)
{
	int fd = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC), result;

	if (fd < 0)
		return -errno;
	result = sweep(state, fd, in_use && !in_use->failed ? in_use : NULL, grace_s);
	close(fd);
	return result;
}

static int write_preload(const char *state, const char *library)
{
	char path[CONTAINERS_PATH_MAX], made[CONTAINERS_PATH_MAX], line[CONTAINERS_PATH_MAX];
	int error;

	snprintf(path, sizeof(path), "%s/" CONTAINERS_PRELOAD, state);
	snprintf(made, sizeof(made), "%s/" NEW CONTAINERS_PRELOAD, state);
	snprintf(line, sizeof(line), "%s\n", library);
	error = write_file(made, line, strlen(line));
	return !error && rename(made, path) < 0 ? -errno : error;
}

int containers_prepare(const char *state, const char *library, struct fault *fault)
{
	int error, fd;

	if (*state != '/' || strlen(state) > CONTAINERS_PATH_MAX - 96)
		return fault_set(fault, -EINVAL, "\"%.100s\" is no absolute path, or too long",
				 state);
	error = make_directories(state);
	fd = error ? -1 : open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!error && fd < 0)
		error = -errno;
	if (!error)
		error = list(fd, NEW, NULL);
	if (fd >= 0)
		close(fd);
	if (!error)
		error = write_preload(state, library);
	return error ? fail(fault, error, "prepare", state) : 0;
}
