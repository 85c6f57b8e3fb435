/* Making directories and files on the host. */
#include "directory.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

int directory_make(const char *path, mode_t mode, struct fault *fault)
{
	if (mkdir(path, mode) == 0) {
		/* Another process may have removed it since: its next user sees that it is not
		 * there. */
		if (chmod(path, mode) == 0 || errno == ENOENT)
			return 0;
	} else if (errno == EEXIST) {
		return 0;
	}
	return fault_set(fault, -errno, "%.300s cannot be made: %s", path, strerror(errno));
}

int directory_make_all(const char *path, mode_t mode, struct fault *fault)
{
	char above[PATH_MAX];
	int error = 0;

	for (const char *slash = strchr(path + 1, '/'); !error && slash;
	     slash = strchr(slash + 1, '/')) {
		snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
		error = directory_make(above, 0755, fault);
	}
	return error ? error : directory_make(path, mode, fault);
}

int directory_write_file(const char *path, const char *text, struct fault *fault)
{
	const char *name = strrchr(path, '/') + 1;
	char dir[PATH_MAX];
	int error;

	snprintf(dir, sizeof(dir), "%.*s", (int)(name - 1 - path), path);
	error = *dir ? directory_make_all(dir, 0755, fault) : 0;
	return error ? error : file_write(*dir ? dir : "/", name, text, fault);
}

static bool belongs(const char *name, const struct policy *policy)
{
	return strcmp(name, "slice") == 0 || policy_find(policy, name) >= 0;
}

void directory_remove_files(const char *path, const struct policy *keep)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;

	if (!dir)
		return;
	while ((entry = readdir(dir)))
		if (!keep || !belongs(entry->d_name, keep))
			unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
}
