/* The other file is dir/.NAME.PID. A process that is killed leaves it there: readers of such
 * directories skip names that begin with ".". */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "sys.h"

int file_write(const char *dir, const char *name, const char *text, struct fault *fault)
{
	char file[PATH_MAX], beside[PATH_MAX];
	int fd, error;

	if (snprintf(beside, sizeof(beside), "%s/.%s.%d", dir, name, sys_getpid()) >=
		    (int)sizeof(beside) ||
	    snprintf(file, sizeof(file), "%s/%s", dir, name) >= (int)sizeof(file))
		return fault_set(fault, -ENAMETOOLONG, "%.200s...: the path is too long", dir);
	fd = error = sys_open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
	if (fd >= 0) {
		error = sys_write_all(fd, text, strlen(text));
		if (!error)
			error = sys_fchmod(fd, 0644); /* whatever the umask */
		if (!error)
			error = sys_fsync(fd);
		sys_close(fd);
		if (!error)
			error = sys_rename(beside, file);
		if (error)
			sys_unlink(beside);
	}
	return error ? fault_set(fault, error, "%s cannot be written: %s", file, strerror(-error))
		     : 0;
}

long file_read(const char *path, char *buf, size_t size)
{
	int fd = sys_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
	long len = fd;

	if (fd >= 0) {
		len = sys_read(fd, buf, size - 1);
		sys_close(fd);
	}
	buf[len > 0 ? len : 0] = '\0';
	return len;
}
