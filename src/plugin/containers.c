/*
 * A container's directory is made as .new-NAME, and renamed when it is whole; sweep.c removes
 * it.
 *
 * For a file that it is to mount and does not find, containerd makes a directory. So containers
 * get a copy of the library, next to the policies, which no package removes. For the same
 * reason, a region's directory gets its mode at a start even if it exists.
 */
#include "containers.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"
#include "gone.h"
#include "library.h"
#include "sys.h"

/* -- directories ------------------------------------------------------------------------------- */

static int fail(struct fault *fault, int error, const char *verb, const char *path)
{
	return fault_set(fault, error, "cannot %s %.300s: %s", verb, path, strerror(-error));
}

/* Makes the directory and those above it, with mode 0755. Returns -EINVAL for a path that is
 * not absolute, or leaves no room for names; or another negative errno. */
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

static int make_name(char ret_name[CONTAINERS_NAME_LEN])
{
	uint8_t random[(CONTAINERS_NAME_LEN - 1) / 2];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -errno;
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(ret_name + 2 * i, 3, "%02x", random[i]);
	return 0;
}

static int make_directory(const char *path, unsigned mode)
{
	return mkdir(path, 0755) < 0 || chmod(path, mode) < 0 ? -errno : 0;
}

/* Makes a region's directory, or sets the mode of one that exists. */
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

/* -- what all containers get ------------------------------------------------------------------- */

static int keep_preload(const struct containers_places *places, struct fault *fault)
{
	char line[CONTAINERS_PATH_MAX];
	int error;

	snprintf(line, sizeof(line), "%s\n", places->inside);
	error = disk_keep(places->state, CONTAINERS_PRELOAD, line, strlen(line));
	return error ? fault_set(fault, error, "cannot write %.200s/" CONTAINERS_PRELOAD ": %s",
				 places->state, strerror(-error))
		     : 0;
}

/* Makes the directories and files that all containers get, where they are missing. */
static int make_common_files(const struct containers_places *places, struct fault *fault)
{
	int error = make_directories(places->state);

	if (error)
		return fail(fault, error, "make", places->state);
	error = make_directories(places->regions);
	/* keeps other users out, as the directories in it are writable for all */
	if (!error && chmod(places->regions, 0700) < 0)
		error = -errno;
	if (error)
		return fail(fault, error, "make", places->regions);
	error = library_keep(places->state, &places->library, fault);
	return error ? error : keep_preload(places, fault);
}

static bool is_lost(const char *path)
{
	struct stat st;
	int error = make_directories(path);

	return error == -ENOENT || (!error && stat(path, &st) == 0 && st.st_nlink == 0);
}

bool containers_are_lost(const struct containers_places *places)
{
	return is_lost(places->state) || is_lost(places->regions);
}

/* -- making ------------------------------------------------------------------------------------ */

static int fill_directory(const char *dir, uint64_t number, const char *resource,
			  const char *const *ids, const struct policy *policy, struct fault *fault)
{
	char path[CONTAINERS_PATH_MAX + 64];
	int error = make_directory(dir, 0755);

	snprintf(path, sizeof(path), "%s/" CONTAINERS_POLICY, dir);
	if (!error)
		error = make_directory(path, 0755);
	if (!error)
		error = records_write(dir, number, resource, ids);
	return error ? fail(fault, error, "make", dir) : policy_write(path, policy, fault);
}

static int next_number(const char *state, uint64_t *ret_number)
{
	struct records records = {0, NULL};
	int error = records_read(state, &records);

	if (!error)
		*ret_number = records_next_number(&records);
	records_free(&records);
	return error;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	remove(path); /* an entry that cannot be removed is left to mend_one */
	return 0;
}

/* Removes a container's directories after a failure. On a full disk, one container after another
 * fails, so none may leave a directory. No tenant has had these directories yet. */
static void undo(const struct containers_places *places, const char *made, const char *name)
{
	char region[CONTAINERS_PATH_MAX];

	nftw(made, remove_one, 4, FTW_DEPTH | FTW_PHYS);
	snprintf(region, sizeof(region), "%s/%s", places->regions, name);
	rmdir(region);
}

int containers_make(const struct containers_places *places, const char *resource,
		    const char *const *ids, const struct policy *policy,
		    char ret_name[CONTAINERS_NAME_LEN], struct fault *fault)
{
	const char *state = places->state;
	char made[CONTAINERS_PATH_MAX], path[CONTAINERS_PATH_MAX], name[CONTAINERS_NAME_LEN];
	uint64_t number = 0;
	int error = make_common_files(places, fault);

	if (error)
		return error;
	error = make_name(name);
	if (!error)
		error = next_number(state, &number);
	if (error)
		return fail(fault, error, "name a directory in", state);
	snprintf(made, sizeof(made), "%s/" DISK_NEW "%s", state, name);
	snprintf(path, sizeof(path), "%s/%s", state, name);
	error = fill_directory(made, number, resource, ids, policy, fault);
	if (!error) {
		error = make_region_directory(places->regions, name);
		if (error)
			fail(fault, error, "make a directory in", places->regions);
	}
	if (!error && rename(made, path) < 0)
		error = fail(fault, -errno, "make", path);
	if (error)
		undo(places, made, name);
	else
		memcpy(ret_name, name, sizeof(name));
	return error;
}

/* -- before a start of a container ------------------------------------------------------------- */

static bool is_not_among(const void *arg, const char *id, size_t len)
{
	for (const char *const *ids = arg; *ids; ids++)
		if (strlen(*ids) == len && memcmp(*ids, id, len) == 0)
			return false;
	return true;
}

/* Whether the record has exactly these IDs. */
static bool is_same(const struct record *record, const char *const *ids)
{
	bool same = !records_any_id(record, is_not_among, ids);

	for (; same && *ids; ids++)
		same = records_has_id(record, *ids, strlen(*ids));
	return same;
}

/* Makes the region's directory of each container that was given exactly these devices, and
 * finds the newest of these containers; NULL: there is none. */
static int find_newest(const struct containers_places *places, const struct records *records,
		       const char *const *ids, const struct record **ret_newest)
{
	const struct record *newest = NULL;
	int error = 0;

	for (unsigned i = 0; !error && i < records->count; i++) {
		const struct record *record = &records->record[i];

		if (!is_same(record, ids))
			continue;
		error = make_region_directory(places->regions, record->name);
		if (!newest || record->number > newest->number)
			newest = record;
	}
	if (!error)
		*ret_newest = newest;
	return error;
}

/* Whether policy_read's error says that the policy is missing or damaged. After other errors, such
 * as a lack of descriptors, the kubelet's next try may read the same policy. */
static bool is_damage(int error)
{
	return error == -ENOENT || error == -EINVAL || error == -EISDIR || error == -ENOTDIR;
}

static int check_policy(const struct containers_places *places, const char *name,
			struct fault *fault)
{
	char path[CONTAINERS_PATH_MAX + 64];
	struct policy *policy = malloc(sizeof(*policy));
	struct fault why = {"it is missing"};
	int error;

	if (!policy)
		return fault_set(fault, -ENOMEM, "there is no memory for a policy");
	snprintf(path, sizeof(path), "%s/%s/" CONTAINERS_POLICY, places->state, name);
	error = policy_read(path, policy, &why);
	free(policy);
	if (is_damage(error))
		return fault_set(fault, -ENOENT,
				 "the container's policy cannot be read: %.300s; delete the pod, "
				 "so that the policy is made again",
				 why.text);
	return error ? fault_set(fault, error, "the container's policy cannot be read: %.300s",
				 why.text)
		     : 0;
}

int containers_ready(const struct containers_places *places, const char *const *ids,
		     struct fault *fault)
{
	struct records records = {0, NULL};
	const struct record *newest = NULL;
	int error = make_common_files(places, fault);

	if (error)
		return error;
	error = records_read(places->state, &records);
	if (error)
		fail(fault, error, "read", places->state);
	else if ((error = find_newest(places, &records, ids, &newest)) != 0)
		fail(fault, error, "make a directory in", places->regions);
	else if (!newest)
		error = fault_set(fault, -ENOENT,
				  "%.200s has no policy for the container's devices, so nothing "
				  "would limit it: delete the pod, so that one is made again",
				  places->state);
	else
		error = check_policy(places, newest->name, fault);
	records_free(&records);
	return error;
}

/* -- at a start -------------------------------------------------------------------------------- */

struct look {
	const struct containers_places *places;
	int state; /* descriptor of the directory STATE */
};

/* Moves a half-made directory away, which a killed plugin left, or makes a region's directory
 * that is missing. */
static int mend_one(void *arg, const char *name)
{
	const struct look *look = arg;

	if (strncmp(name, DISK_NEW, strlen(DISK_NEW)) == 0)
		gone_move(look->state, name);
	return records_is_name(name) ? make_region_directory(look->places->regions, name) : 0;
}

static int mend_all(const struct containers_places *places)
{
	struct look look = {places, open(places->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	int error;

	if (look.state < 0)
		return -errno;
	error = sys_list_directory(places->state, mend_one, &look);
	close(look.state);
	return error;
}

int containers_prepare(struct containers_places *places, const char *library, const char *inside,
		       struct fault *fault)
{
	int error = library_read(library, "library", &places->library, fault);

	places->inside = inside;
	if (!error)
		error = make_common_files(places, fault);
	if (error)
		return error;
	error = mend_all(places);
	return error ? fail(fault, error, "prepare", places->regions) : 0;
}
