/* The Unix socket at which vgpud hands out turns, and its file. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct turns_socket {
	int fd;         /* the listening socket; -1: there is none */
	char path[108]; /* the path of its file; the size is that of a Unix socket's address */
	uint64_t device, inode; /* its file */
};

/* Whether the descriptor is a listening socket of the kind that turns_socket_open makes. */
bool turns_socket_is(int fd);

/* Whether some process listens at the path. */
bool turns_socket_is_served(const char *path);

/* Whether the socket is bound to the path, and its file is there. */
bool turns_socket_is_at(const struct turns_socket *socket, const char *path);

/* Makes a socket that all users may use. It replaces any file at the path, and makes the
 * directory if that is missing. Returns a non-blocking descriptor that listens, or a negative
 * errno. */
int turns_socket_open(const char *path);

/* Keeps the path and the identity of the file there, for turns_socket_is_in_place. Returns 0,
 * or a negative errno. */
int turns_socket_note(struct turns_socket *socket, const char *path);

/* Whether the file that was noted is still at the path: some program may clean /run. */
bool turns_socket_is_in_place(const struct turns_socket *socket);
