#include "pod.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "file.h"

#define CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789-."

static bool is_good(const char *name)
{
	return *name && !name[strspn(name, CHARACTERS)];
}

bool pod_names_are_good(const struct pod_names *names)
{
	return is_good(names->name_space) && is_good(names->pod) && is_good(names->container);
}

char *pod_line(const struct pod_names *names, char *buf)
{
	snprintf(buf, POD_LINE_LEN, "%s/%s/%s", names->name_space, names->pod, names->container);
	return buf;
}

/* Takes a part of the line, up to the character that ends it; NULL: it is too long, or not there.
 */
static const char *take_part(const char *at, char end, char *part, size_t room)
{
	const char *stop = at ? strchr(at, end) : NULL;

	if (!stop || (size_t)(stop - at) >= room)
		return NULL;
	memcpy(part, at, (size_t)(stop - at));
	part[stop - at] = '\0';
	return stop + 1;
}

bool pod_read(const char *dir, struct pod_names *ret_names)
{
	char path[PATH_MAX], text[POD_LINE_LEN + 2];
	struct pod_names names;
	const char *at = text;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "%s/" POD_FILE, dir);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[len > 0 ? len : 0] = '\0';
	at = take_part(at, '/', names.name_space, sizeof(names.name_space));
	at = take_part(at, '/', names.pod, sizeof(names.pod));
	at = take_part(at, '\n', names.container, sizeof(names.container));
	if (!at || *at || !pod_names_are_good(&names))
		return false;
	*ret_names = names;
	return true;
}

int pod_write(const char *dir, const struct pod_names *names, struct fault *fault)
{
	char line[POD_LINE_LEN], text[POD_LINE_LEN + 1];

	if (!pod_names_are_good(names))
		return fault_set(fault, -EINVAL,
				 "the kubelet names a pod by what is no name of Kubernetes'");
	snprintf(text, sizeof(text), "%s\n", pod_line(names, line));
	return file_write(dir, POD_FILE, text, fault);
}
