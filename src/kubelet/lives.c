/* A process is in a region by a lock that it holds, whichever PID namespace it is in. */
#include "lives.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "region.h"

bool lives_in_region(const char *path)
{
	struct region region = REGION_CLOSED;
	unsigned living = 0;

	guard_begin();
	if (!region_inspect(path, &region, NULL))
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

bool lives_in_mounts(const char *name)
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
