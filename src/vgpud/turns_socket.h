/* The Unix socket at which vgpud hands out turns, and its file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct turns_socket {
	int fd;                 /* it listens; -1: there is none */
	char path[108];         /* of its file, as long as an address of a Unix socket may be */
	uint64_t device, inode; /* of its file */
};

/* Whether the descriptor is a socket of that kind that listens, as systemd keeps one. */
bool turns_socket_is(int fd);

/* Whether some process listens at the path. */
bool turns_socket_is_served(const char *path);

/* Whether the socket is bound to the path, and its file is there. */
bool turns_socket_is_at(const struct turns_socket *socket, const char *path);

/* Makes a socket that all users may use, in place of whatever is at the path, and its directory if
 * that is missing. Returns a descriptor that listens, or a negative errno. */
int turns_socket_open(const char *path);

/* Notes the path and the file that is there. 0, or a negative errno. */
int turns_socket_note(struct turns_socket *socket, const char *path);

/* Whether that file is still there: somebody may remove what is in /run. */
bool turns_socket_is_in_place(const struct turns_socket *socket);
