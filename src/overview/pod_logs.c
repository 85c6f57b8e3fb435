/*
 * A pass over the slices takes the UID and the container's name from the names of directories. A
 * pass over the directory of logs finds the pods with these UIDs. The slices of a container stand
 * together in the list (slices_compare) and share one record, as a tenant can make many regions.
 *
 * All names are those of files. A name is used only if it has the characters of a UID, or of
 * Kubernetes' names (pod.h). A link is never followed.
 */
#include "pod_logs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* -- names of files ---------------------------------------------------------------------------- */

/* Copies a part of a name. Returns false if the part is too long. */
static bool take(const char *from, size_t len, char *part, size_t room)
{
	if (len >= room)
		return false;
	memcpy(part, from, len);
	part[len] = '\0';
	return true;
}

/* Reads POD-UID_CONTAINER, the first len bytes of a name. The namespace becomes "". Returns false
 * if the name is none of a container. */
static bool read_directory(const char *name, size_t len, struct pod_names *names)
{
	const char *end = memchr(name, '_', len);
	struct pod_names good;
	size_t uid_len;

	if (!end)
		return false;
	uid_len = (size_t)(end - name);
	if (!pod_is_uid(name, uid_len) || !take(name, uid_len, names->pod, sizeof(names->pod)) ||
	    !take(end + 1, len - uid_len - 1, names->container, sizeof(names->container)))
		return false;
	names->name_space[0] = '\0';
	good = *names;
	take("x", 1, good.name_space, sizeof(good.name_space)); /* it is not known yet */
	return pod_names_are_good(&good);
}

/* Reads NAMESPACE_NAME_UID, whose first two parts have no underscore, into the namespace and the
 * pod. Returns the UID; NULL: the entry is none of a pod. */
static const char *read_entry(const char *entry, struct pod_names *names)
{
	const char *name = strchr(entry, '_'), *end = name ? strchr(name + 1, '_') : NULL;

	if (!end || !pod_is_uid(end + 1, strlen(end + 1)) ||
	    !take(entry, (size_t)(name - entry), names->name_space, sizeof(names->name_space)) ||
	    !take(name + 1, (size_t)(end - name - 1), names->pod, sizeof(names->pod)))
		return NULL;
	return end + 1;
}

/* -- slices ------------------------------------------------------------------------------------ */

/* Makes the record of a slice by its directory. Returns NULL if there is no pod, or no memory. */
static struct pod_users *of_directory(const struct slices_one *one)
{
	struct pod_users *pods = calloc(1, sizeof(*pods));

	if (pods && read_directory(one->name, one->holder_len, &pods->user[0])) {
		pods->count = 1;
		return pods;
	}
	free(pods);
	return NULL;
}

/* Fills in the pods of all slices. Returns whether any slice has a pod. */
static bool read_directories(struct slices *slices)
{
	bool any = false;

	for (unsigned i = 0; i < slices->count; i++) {
		struct slices_one *one = &slices->one[i];

		if (one->kind != SLICES_HAMI || one->pods)
			continue;
		one->shares_pods = i > 0 && slices_is_same_container(one, one - 1);
		one->pods = one->shares_pods ? one[-1].pods : of_directory(one);
		any = any || one->pods;
	}
	return any;
}

static bool is_directory(int logs, const char *entry)
{
	struct stat st;

	return fstatat(logs, entry, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Writes the names of the entry into the records with its UID. */
static void name_pod(struct slices *slices, int logs, const char *entry)
{
	struct pod_names names;
	const char *uid = read_entry(entry, &names);

	for (unsigned i = 0; uid && i < slices->count; i++) {
		const struct slices_one *one = &slices->one[i];
		struct pod_names *user;

		if (one->kind != SLICES_HAMI || !one->pods || one->shares_pods)
			continue;
		user = &one->pods->user[0];
		if (*user->name_space || strcmp(user->pod, uid) != 0)
			continue;
		memcpy(names.container, user->container, sizeof(names.container));
		if (pod_names_are_good(&names) && is_directory(logs, entry))
			*user = names;
	}
}

void pod_logs_name(struct slices *slices, const char *logs)
{
	DIR *dir = read_directories(slices) ? opendir(logs) : NULL;
	const struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		name_pod(slices, dirfd(dir), entry->d_name);
	if (dir)
		closedir(dir);
}
