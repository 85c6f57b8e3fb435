#include "turns_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "sys.h"

#define BACKLOG 128

bool turns_socket_is(int fd)
{
	return sd_is_socket(fd, AF_UNIX, SOCK_SEQPACKET, 1) > 0;
}

bool turns_socket_is_served(const char *path)
{
	int fd = sys_connect(path);

	if (fd >= 0)
		sys_close(fd);
	return fd >= 0 || fd == -EAGAIN;
}

bool turns_socket_is_at(const struct turns_socket *socket, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(address) - 1;

	return getsockname(socket->fd, (struct sockaddr *)&address, &len) == 0 &&
	       strcmp(address.sun_path, path) == 0 && turns_socket_is_served(path);
}

/* The directory may be missing where no unit makes it. */
static void make_directory(const char *path)
{
	const char *slash = strrchr(path, '/');
	char directory[sizeof(((struct turns_socket *)NULL)->path)];

	if (!slash || slash == path)
		return;
	snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
	if (mkdir(directory, 0755) == 0)
		chmod(directory, 0755); /* independent of the umask */
}

int turns_socket_open(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, error;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	memcpy(address.sun_path, path, strlen(path));
	make_directory(path);
	unlink(path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && chmod(path, 0666) == 0 &&
	    listen(fd, BACKLOG) == 0)
		return fd;
	error = -errno;
	close(fd);
	return error;
}

int turns_socket_note(struct turns_socket *socket, const char *path)
{
	struct stat of;

	if (lstat(path, &of) != 0)
		return -errno;
	socket->device = of.st_dev;
	socket->inode = of.st_ino;
	snprintf(socket->path, sizeof(socket->path), "%s", path);
	return 0;
}

bool turns_socket_is_in_place(const struct turns_socket *socket)
{
	struct stat of;

	return lstat(socket->path, &of) == 0 && of.st_dev == socket->device &&
	       of.st_ino == socket->inode;
}
