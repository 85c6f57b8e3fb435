#include "library.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"

#define NEW ".new-" /* before the name of a copy that is not whole yet */

static int read_all(const char *path, struct bytes *ret_data)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error = 0;
	char buf[65536];
	ssize_t len;

	if (fd < 0)
		return -errno;
	while ((len = read(fd, buf, sizeof(buf))) > 0)
		bytes_add(ret_data, buf, (size_t)len);
	if (len < 0)
		error = -errno;
	close(fd);
	return ret_data->failed ? -ENOMEM : error;
}

static int write_all(const char *path, const struct bytes *data)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	int error = 0;

	if (fd < 0)
		return -errno;
	errno = 0;
	if (write(fd, data->data, data->len) != (ssize_t)data->len || fchmod(fd, 0644) < 0 ||
	    fsync(fd) < 0)
		error = errno ? -errno : -EIO;
	close(fd);
	return error;
}

static int copy(const char *dir, const char *library)
{
	char path[PATH_MAX], made[PATH_MAX];
	struct bytes there = {0}, wanted = {0};
	int error = read_all(library, &wanted);

	snprintf(path, sizeof(path), "%s/" LIBRARY_NAME, dir);
	snprintf(made, sizeof(made), "%s/" NEW LIBRARY_NAME, dir);
	if (!error && (read_all(path, &there) < 0 || there.len != wanted.len ||
		       memcmp(there.data, wanted.data, wanted.len) != 0)) {
		error = write_all(made, &wanted);
		if (!error && rename(made, path) < 0)
			error = -errno;
	}
	bytes_free(&there);
	bytes_free(&wanted);
	return error;
}

int library_copy(const char *dir, const char *library, const char *setting, struct fault *fault)
{
	int error = copy(dir, library);

	return error ? fault_set(fault, error,
				 "cannot copy %.200s: %s; install the package vgpu on the node, or "
				 "write where the library is under %s",
				 library, strerror(-error), setting)
		     : 0;
}
