#include "pod.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "file.h"

#define CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789-."
#define TEXT_LEN   (POD_USERS_MAX * (POD_LINE_LEN + 1) + 1) /* a longer file is none */

/* -- names ------------------------------------------------------------------------------------- */

static bool is_good(const char *name)
{
	return *name && !name[strspn(name, CHARACTERS)];
}

bool pod_is_uid(const char *text, size_t len)
{
	if (len != POD_UID_LEN && len != POD_STATIC_UID_LEN)
		return false;
	for (size_t i = 0; i < len; i++) {
		bool dash = len == POD_UID_LEN && (i == 8 || i == 13 || i == 18 || i == 23);

		if (dash ? text[i] != '-' : !text[i] || !strchr("0123456789abcdef", text[i]))
			return false;
	}
	return true;
}

bool pod_names_are_good(const struct pod_names *names)
{
	return is_good(names->name_space) && is_good(names->pod) && is_good(names->container);
}

char *pod_line(const struct pod_names *names, char *buf)
{
	snprintf(buf, POD_LINE_LEN, "%s%s%s%s%s", names->name_space, *names->name_space ? "/" : "",
		 names->pod, *names->container ? "/" : "", names->container);
	return buf;
}

int pod_compare(const struct pod_names *one, const struct pod_names *other)
{
	int order = strcmp(one->name_space, other->name_space);

	if (!order)
		order = strcmp(one->pod, other->pod);
	return order ? order : strcmp(one->container, other->container);
}

/* -- users ------------------------------------------------------------------------------------- */

static void insert(struct pod_users *users, const struct pod_names *names)
{
	unsigned at = 0, last;

	while (at < users->count && pod_compare(&users->user[at], names) < 0)
		at++;
	if (at == POD_USERS_MAX || (at < users->count && pod_compare(&users->user[at], names) == 0))
		return;
	users->count += users->count < POD_USERS_MAX;
	last = users->count - 1;
	memmove(&users->user[at + 1], &users->user[at], (last - at) * sizeof(users->user[0]));
	users->user[at] = *names;
}

void pod_add(struct pod_users *users, const struct pod_names *names)
{
	if (pod_names_are_good(names))
		insert(users, names);
}

void pod_add_uid(struct pod_users *users, const char *uid)
{
	struct pod_names names = {.pod = ""};

	if (!pod_is_uid(uid, strlen(uid)))
		return;
	memcpy(names.pod, uid, strlen(uid) + 1);
	insert(users, &names);
}

bool pod_users_are_same(const struct pod_users *one, const struct pod_users *other)
{
	bool same = one && other ? one->count == other->count : one == other;

	for (unsigned i = 0; same && one && i < one->count; i++)
		same = pod_compare(&one->user[i], &other->user[i]) == 0;
	return same;
}

static void keep_if_same(char *shared, const char *name)
{
	if (strcmp(shared, name) != 0)
		*shared = '\0';
}

void pod_shared_names(const struct pod_users *users, struct pod_names *ret_names)
{
	*ret_names = users->count ? users->user[0] : (struct pod_names){.pod = ""};
	for (unsigned i = 1; i < users->count; i++) {
		keep_if_same(ret_names->name_space, users->user[i].name_space);
		keep_if_same(ret_names->pod, users->user[i].pod);
		keep_if_same(ret_names->container, users->user[i].container);
	}
}

/* -- the file ---------------------------------------------------------------------------------- */

/* Takes a part of a line, up to the character that ends it; NULL: it is too long, or not there. */
static const char *take_part(const char *at, char end, char *part, size_t room)
{
	const char *stop = at ? strchr(at, end) : NULL;

	if (!stop || (size_t)(stop - at) >= room)
		return NULL;
	memcpy(part, at, (size_t)(stop - at));
	part[stop - at] = '\0';
	return stop + 1;
}

/* Returns what comes after the line. NULL: the text is no line, or its names are not good. */
static const char *take_line(const char *at, struct pod_names *names)
{
	at = take_part(at, '/', names->name_space, sizeof(names->name_space));
	at = take_part(at, '/', names->pod, sizeof(names->pod));
	at = take_part(at, '\n', names->container, sizeof(names->container));
	return at && pod_names_are_good(names) ? at : NULL;
}

static bool parse(const char *text, struct pod_users *users)
{
	struct pod_names names;

	users->count = 0;
	while (text && *text) {
		text = take_line(text, &names);
		if (text)
			pod_add(users, &names);
	}
	return text && users->count > 0;
}

bool pod_read(const char *dir, const char *file, struct pod_users *ret_users)
{
	char path[PATH_MAX], text[TEXT_LEN + 1];
	long len;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	len = file_read(path, text, sizeof(text));
	return len >= 0 && len < (long)TEXT_LEN && parse(text, ret_users);
}

int pod_write(const char *dir, const char *file, const struct pod_users *users, struct fault *fault)
{
	char line[POD_LINE_LEN], text[TEXT_LEN];
	size_t len = 0;

	if (users->count == 0)
		return fault_set(fault, -EINVAL,
				 "the kubelet names a pod by what is no name of Kubernetes'");
	for (unsigned i = 0; i < users->count; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s\n",
					pod_line(&users->user[i], line));
	return file_write(dir, file, text, fault);
}
