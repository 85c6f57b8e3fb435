/*
 * A path in /proc/PID/cgroup has, with the kubelet's two drivers of control groups,
 *
 *   .../kubepods/burstable/podUID/ID
 *   .../kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope
 *
 * The second form has underscores in the UID. CRI-O and Docker put crio- and docker- before the ID,
 * CRI-O also in the first form. With cgroup v1 there is a line for each hierarchy, and not all of
 * them need have the pod.
 *
 * A tenant may make control groups below its own, with any names. So the first part of a path that
 * is a pod's counts, and only the next part can be a container's. A tenant may also write any pids
 * into its region. So a process counts only if it has mapped the region.
 */
#include "pod_cgroup.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "overview_internal.h"

#define PROCESSES_MAX 64 /* of a slice that are looked at */
#define TEXT_LEN      8192
#define LINK_ENDING   ".log"

/* -- a control group --------------------------------------------------------------------------- */

/* Returns the length of the text without that ending. */
static size_t without(const char *ending, const char *text, size_t len)
{
	size_t ending_len = strlen(ending);

	if (len > ending_len && memcmp(text + len - ending_len, ending, ending_len) == 0)
		len -= ending_len;
	return len;
}

/* Reads podUID, with anything that ends with "-" before it. */
static bool read_pod(const char *part, size_t len, char *ret_uid)
{
	static const size_t lengths[] = {POD_UID_LEN, POD_STATIC_UID_LEN};
	const size_t word = strlen("pod");
	char uid[POD_UID_LEN + 1];

	len = without(".slice", part, len);
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t before = len - word - lengths[i];

		if (len < word + lengths[i] || memcmp(part + before, "pod", word) != 0 ||
		    (before > 0 && part[before - 1] != '-'))
			continue;
		memcpy(uid, part + before + word, lengths[i]);
		uid[lengths[i]] = '\0';
		for (char *at = uid; (at = strchr(at, '_'));)
			*at = '-';
		if (!pod_is_uid(uid, lengths[i]))
			continue;
		memcpy(ret_uid, uid, lengths[i] + 1);
		return true;
	}
	return false;
}

/* Reads the container's ID, or "" if the part is none of a container. */
static void read_container(const char *part, size_t len, char *ret_id)
{
	*ret_id = '\0';
	len = without(".scope", part, len);
	if (len < POD_CGROUP_ID_LEN ||
	    (len > POD_CGROUP_ID_LEN && part[len - POD_CGROUP_ID_LEN - 1] != '-'))
		return;
	part += len - POD_CGROUP_ID_LEN;
	if (strspn(part, "0123456789abcdef") < POD_CGROUP_ID_LEN)
		return;
	memcpy(ret_id, part, POD_CGROUP_ID_LEN);
	ret_id[POD_CGROUP_ID_LEN] = '\0';
}

bool pod_cgroup_parse(const char *text, struct pod_cgroup *ret_group)
{
	struct pod_cgroup group;

	for (const char *part = text; *part;) {
		size_t len = strcspn(part, "/\n");
		const char *next = part + len + (part[len] == '/');

		if (part > text && part[-1] == '/' && read_pod(part, len, group.uid)) {
			read_container(next, strcspn(next, "/\n"), group.id);
			*ret_group = group;
			return true;
		}
		part += len + (part[len] != '\0');
	}
	return false;
}

static bool read_group(int pid, struct pod_cgroup *ret_group)
{
	char path[48], text[TEXT_LEN];

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	return file_read(path, text, sizeof(text)) > 0 && pod_cgroup_parse(text, ret_group);
}

/* -- names ------------------------------------------------------------------------------------- */

/* Takes a part of an entry, of that length. Returns what comes after the part and one more
 * character; NULL: the part is too long. */
static const char *take(const char *from, size_t len, char *part, size_t room)
{
	if (len >= room)
		return NULL;
	memcpy(part, from, len);
	part[len] = '\0';
	return from + len + 1;
}

bool pod_cgroup_read_link(const char *entry, const char *id, struct pod_names *ret_names)
{
	size_t len = strlen(entry), ending = strlen("-") + strlen(id) + strlen(LINK_ENDING);
	const char *end = entry + len - ending, *at = entry;
	struct pod_names names;

	if (len < ending || *end != '-' || strncmp(end + 1, id, strlen(id)) != 0 ||
	    strcmp(end + 1 + strlen(id), LINK_ENDING) != 0)
		return false;
	at = take(at, strcspn(at, "_"), names.pod, sizeof(names.pod));
	if (at && at < end)
		at = take(at, strcspn(at, "_"), names.name_space, sizeof(names.name_space));
	if (!at || at >= end ||
	    !take(at, (size_t)(end - at), names.container, sizeof(names.container)) ||
	    !pod_names_are_good(&names))
		return false;
	*ret_names = names;
	return true;
}

static void add_user(struct pod_users *users, const struct pod_cgroup *group, const char *links)
{
	DIR *dir = *group->id ? opendir(links) : NULL;
	const struct dirent *entry;
	struct pod_names names;
	bool found = false;

	while (dir && !found && (entry = readdir(dir)))
		found = pod_cgroup_read_link(entry->d_name, group->id, &names);
	if (dir)
		closedir(dir);
	if (found)
		pod_add(users, &names);
	else
		pod_add_uid(users, group->uid);
}

/* -- slices ------------------------------------------------------------------------------------ */

static bool is_among(const struct pod_cgroup *groups, unsigned count,
		     const struct pod_cgroup *group)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(groups[i].uid, group->uid) == 0 && strcmp(groups[i].id, group->id) == 0)
			return true;
	return false;
}

static void find_users(const struct overview_slice *slice, const char *links,
		       struct pod_users *ret_users)
{
	struct pod_cgroup groups[POD_USERS_MAX];
	unsigned count = 0;

	ret_users->count = 0;
	for (unsigned i = 0; i < slice->process_count && i < PROCESSES_MAX; i++) {
		int pid = slice->process[i].here;

		if (count == POD_USERS_MAX)
			return;
		if (pid > 0 && read_group(pid, &groups[count]) &&
		    !is_among(groups, count, &groups[count]) && overview_has_region(slice, pid))
			add_user(ret_users, &groups[count++], links);
	}
}

void pod_cgroup_name(struct overview *overview, const char *links)
{
	struct pod_users users;

	for (unsigned i = 0; i < overview->count; i++) {
		struct slices_one *one = overview->slice[i].one;

		if ((one->kind != SLICES_KUBERNETES && one->kind != SLICES_CLAIM) || one->pods)
			continue;
		find_users(&overview->slice[i], links, &users);
		if (users.count == 0)
			continue;
		one->pods = malloc(sizeof(*one->pods));
		if (!one->pods)
			continue;
		*one->pods = users;
		one->pods_by_cgroup = true;
	}
}
