#include "pods.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* NAMESPACE_NAME_UID: none of the three has an underscore. */
static bool read_entry(const char *entry, const char *uid, struct pods_one *one)
{
	const char *name = strchr(entry, '_'), *end = name ? strchr(name + 1, '_') : NULL;

	if (!end || strcmp(end + 1, uid) != 0)
		return false;
	snprintf(one->name_space, sizeof(one->name_space), "%.*s", (int)(name - entry), entry);
	snprintf(one->name, sizeof(one->name), "%.*s", (int)(end - name - 1), name + 1);
	return true;
}

void pods_find(const char *logs, const char *container, struct pods_one *ret_one)
{
	size_t uid_len = strcspn(container, "_/");
	const char *rest = container + uid_len;
	const struct dirent *entry;
	char uid[128];
	DIR *dir;

	memset(ret_one, 0, sizeof(*ret_one));
	snprintf(uid, sizeof(uid), "%.*s", (int)uid_len, container);
	snprintf(ret_one->name, sizeof(ret_one->name), "%s", uid);
	rest += *rest == '_';
	snprintf(ret_one->container, sizeof(ret_one->container), "%.*s", (int)strcspn(rest, "/"),
		 rest);
	dir = opendir(logs);
	while (dir && !ret_one->found && (entry = readdir(dir)))
		ret_one->found = read_entry(entry->d_name, uid, ret_one);
	if (dir)
		closedir(dir);
}
