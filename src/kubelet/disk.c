/*
 * disk_keep writes DIR/.new-NAME and renames it. A process that is killed in between leaves
 * that file, and the next call overwrites it.
 */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys.h"

static int read_all(int fd, struct bytes *ret_data)
{
	char buf[65536];
	ssize_t len;

	while ((len = read(fd, buf, sizeof(buf))) > 0)
		bytes_add(ret_data, buf, (size_t)len);
	if (len < 0)
		return -errno;
	return ret_data->failed ? -ENOMEM : 0;
}

int disk_read(const char *path, struct bytes *ret_data)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	error = read_all(fd, ret_data);
	close(fd);
	return error;
}

int disk_write(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	int error;

	if (fd < 0)
		return -errno;
	error = sys_write_all(fd, data, len);
	if (!error && (fchmod(fd, 0644) < 0 || fsync(fd) < 0))
		error = -errno;
	close(fd);
	return error;
}

/* Whether the file is regular and has this mode and these bytes. After any error it counts as
 * not whole, and is written again. */
static bool is_whole(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct bytes there = {0};
	struct stat st;
	bool whole;

	if (fd < 0)
		return false;
	whole = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0644 &&
		st.st_size == (off_t)len && read_all(fd, &there) == 0 && there.len == len &&
		memcmp(there.data, data, len) == 0;
	close(fd);
	bytes_free(&there);
	return whole;
}

/* Renames a file to its place. An empty directory in that place is removed. */
static int take_place(const char *made, const char *path)
{
	int error = rename(made, path) < 0 ? -errno : 0;

	if (error == -EISDIR && rmdir(path) == 0)
		error = rename(made, path) < 0 ? -errno : 0;
	return error;
}

int disk_keep(const char *dir, const char *name, const void *data, size_t len)
{
	char path[PATH_MAX], made[PATH_MAX];
	int error;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(made, sizeof(made), "%s/" DISK_NEW "%s", dir, name);
	if (is_whole(path, data, len))
		return 0;
	error = disk_write(made, data, len);
	if (!error)
		error = take_place(made, path);
	if (error)
		unlink(made);
	return error;
}
