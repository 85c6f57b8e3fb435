/* A process in a region holds a lock, which shows in every PID namespace. */
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

static void mark_all(struct lives_name *names, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		names[i].is_mounted = true;
}

/* Marks the names in the process's mountinfo. A process that ends meanwhile has none mounted.
 * If mountinfo cannot be read for another reason, all names are marked. */
static void mark_mounted(const char *pid, struct lives_name *names, unsigned count)
{
	char path[64], *line = NULL;
	size_t room = 0;
	bool is_whole;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%.20s/mountinfo", pid);
	errno = 0;
	file = fopen(path, "re");
	while (file && getline(&line, &room, file) > 0)
		for (unsigned i = 0; i < count; i++)
			names[i].is_mounted = names[i].is_mounted || strstr(line, names[i].name);
	is_whole = (file && feof(file)) || errno == ENOENT || errno == ESRCH || errno == EINVAL;
	if (!is_whole)
		mark_all(names, count);
	if (file)
		fclose(file);
	free(line);
}

void lives_in_mounts(struct lives_name *names, unsigned count)
{
	const struct dirent *entry;
	DIR *proc;

	for (unsigned i = 0; i < count; i++)
		names[i].is_mounted = false;
	if (count == 0)
		return;
	proc = opendir("/proc");
	while (proc && (errno = 0, entry = readdir(proc)))
		if (strspn(entry->d_name, "0123456789") == strlen(entry->d_name))
			mark_mounted(entry->d_name, names, count);
	if (!proc || errno != 0)
		mark_all(names, count);
	if (proc)
		closedir(proc);
}
