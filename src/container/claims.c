/* A name that is not to be read, or is none, is passed over: the next preparation of the claim
 * writes it again. */
#include "claims.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "directory.h"
#include "file.h"
#include "sys.h"

#define ENDING       ".name"
#define SLICE_PREFIX "claim-"

static bool is_path(const char *path)
{
	return path[0] == '/' && strlen(path) <= CONTAINER_DIR_LEN - 32;
}

int claims_find_places(const char *state, const char *regions, struct claims_places *ret_places,
		       struct fault *fault)
{
	struct container_places *containers = &ret_places->containers;

	if (!is_path(state) || !is_path(regions))
		return fault_set(fault, -EINVAL, "%.300s is no absolute path, or too long",
				 is_path(state) ? regions : state);
	memset(ret_places, 0, sizeof(*ret_places));
	snprintf(ret_places->claims, sizeof(ret_places->claims), "%s/claims", state);
	snprintf(containers->policies, sizeof(containers->policies), "%s/policies", state);
	snprintf(containers->preload, sizeof(containers->preload), "%s/ld.so.preload", state);
	snprintf(containers->slices, sizeof(containers->slices), "%s", regions);
	snprintf(containers->tmpfiles, sizeof(containers->tmpfiles), "/nonexistent");
	return 0;
}

void claims_slice_name(const char *uid, char ret_name[CLAIMS_SLICE_LEN])
{
	snprintf(ret_name, CLAIMS_SLICE_LEN, SLICE_PREFIX "%.*s", CLAIMS_UID_LEN - 1, uid);
}

bool claims_slice_uid(const char *slice, size_t len, char ret_uid[CLAIMS_UID_LEN])
{
	size_t prefix = strlen(SLICE_PREFIX);

	if (len <= prefix || len - prefix >= CLAIMS_UID_LEN ||
	    memcmp(slice, SLICE_PREFIX, prefix) != 0)
		return false;
	memcpy(ret_uid, slice + prefix, len - prefix);
	ret_uid[len - prefix] = '\0';
	return container_name_is_good(ret_uid);
}

void claims_pods_file(const char *uid, char ret_file[CLAIMS_FILE_LEN])
{
	snprintf(ret_file, CLAIMS_FILE_LEN, "%.*s.pods", CLAIMS_UID_LEN - 1, uid);
}

static void name_path(const struct claims_places *places, const char *uid, char ret_path[PATH_MAX])
{
	snprintf(ret_path, PATH_MAX, "%s/%.*s" ENDING, places->claims, CLAIMS_UID_LEN - 1, uid);
}

int claims_name_write(const struct claims_places *places, const char *uid, const char *name,
		      struct fault *fault)
{
	char path[PATH_MAX], line[CLAIMS_NAME_LEN + 1];

	name_path(places, uid, path);
	snprintf(line, sizeof(line), "%.*s\n", CLAIMS_NAME_LEN - 1, name);
	return directory_write_file(path, line, fault);
}

static int remove_file(const char *path, struct fault *fault)
{
	return unlink(path) == 0 || errno == ENOENT
		       ? 0
		       : fault_set(fault, -errno, "cannot remove %.300s: %s", path,
				   strerror(errno));
}

int claims_name_remove(const struct claims_places *places, const char *uid, struct fault *fault)
{
	char path[PATH_MAX], file[CLAIMS_FILE_LEN];
	int error;

	claims_pods_file(uid, file);
	snprintf(path, sizeof(path), "%s/%s", places->claims, file);
	error = remove_file(path, fault);
	if (error)
		return error;
	name_path(places, uid, path);
	return remove_file(path, fault);
}

/* -- the list ---------------------------------------------------------------------------------- */

struct each {
	const struct claims_places *places;
	int (*each)(void *arg, const char *uid, const char *name);
	void *arg;
};

/* The UID of a file's name; false: it is another file. */
static bool read_uid(const char *file, char ret_uid[CLAIMS_UID_LEN])
{
	size_t len = strlen(file), ending = strlen(ENDING);

	if (len <= ending || len - ending >= CLAIMS_UID_LEN ||
	    strcmp(file + len - ending, ENDING) != 0)
		return false;
	snprintf(ret_uid, CLAIMS_UID_LEN, "%.*s", (int)(len - ending), file);
	return container_name_is_good(ret_uid);
}

static bool read_name(const struct claims_places *places, const char *uid,
		      char ret_name[CLAIMS_NAME_LEN])
{
	char path[PATH_MAX];

	name_path(places, uid, path);
	file_read(path, ret_name, CLAIMS_NAME_LEN);
	ret_name[strcspn(ret_name, "\n")] = '\0';
	return *ret_name != '\0';
}

static int each_file(void *arg, const char *file)
{
	const struct each *each = arg;
	char uid[CLAIMS_UID_LEN], name[CLAIMS_NAME_LEN];

	return read_uid(file, uid) && read_name(each->places, uid, name)
		       ? each->each(each->arg, uid, name)
		       : 0;
}

int claims_each(const struct claims_places *places,
		int (*each)(void *arg, const char *uid, const char *name), void *arg)
{
	struct each all = {places, each, arg};
	int result = sys_list_directory(places->claims, each_file, &all);

	return result == -ENOENT ? 0 : result;
}
