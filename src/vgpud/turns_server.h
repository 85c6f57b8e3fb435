/*
 * vgpud's socket for programs that take turns (turn_offer.h has the messages): a program shows that
 * it is of a slice, and is given a descriptor of its GPU's file of turns. After that, it needs
 * vgpud no more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "overview.h"
#include "text.h"
#include "turns_reader.h"
#include "turns_socket.h"
#include "turns_store.h"

#define TURNS_SOCKET_NAME TURNS_KEPT_NAME "socket" /* what systemd knows the socket by */
#define TURNS_CLIENTS_MAX 1024
#define TURNS_REFUSED_MAX 64

struct turns_client {
	int fd;        /* -1: free */
	bool is_ended; /* nobody is served there, and an ender has yet to close it */
	bool is_answered;
	bool holds_file; /* its answer has a descriptor, and may be unread */
	uint64_t since_ns;
	struct turns_peer peer;
	uint64_t tenant; /* after the answer */
};

/* A slice, by its region, that is not given the file of that GPU. */
struct turns_refused {
	uint64_t device, inode, until_ns;
	char uuid[VGPU_UUID_LEN];
};

struct turns_server {
	struct turns_store store;
	struct turns_refused refusal[TURNS_REFUSED_MAX]; /* the oldest is overwritten */
	unsigned refusals;                               /* how many there were */
	struct turns_reader reader;
	struct turns_socket socket;
	int epoll;    /* readable: turns_server_run has something to do */
	bool is_full; /* nobody is accepted until the next tick, as no connection can be closed */
	struct turns_client client[TURNS_CLIENTS_MAX];
	uint64_t lists_next_ns;                 /* when slices may be listed for a stranger again */
	uint64_t given, same, refused, garbled; /* requests, in all */
};

/* Nobody is served yet; the store is empty. */
void turns_server_init(struct turns_server *server);

/* A descriptor that systemd has kept under that name: true if it is the server's, which may find
 * that it cannot use it, and ends it then. */
bool turns_server_take(struct turns_server *server, const char *name, int fd);

/* Serves at the path, where a socket is made that all users may use, and made again if it is not
 * there any more; "": nobody is served. To be called once a second, too. 0, or a negative errno
 * with a fault: nobody is served then. */
int turns_server_listen(struct turns_server *server, const char *path, struct fault *fault);

/* Does what there is to do, and not more than some milliseconds of it. The overview says which
 * slices and GPUs there are. */
void turns_server_run(struct turns_server *server, const struct overview *overview);
/* Once a second: ends connections that do not end by themselves. */
void turns_server_tick(struct turns_server *server);

/* The slice is not given the GPU's file for 10 minutes, and another file takes the place of the one
 * that it has. 0, or a negative errno with a fault, and all is as it was. */
int turns_server_refuse(struct turns_server *server, struct turns_file *file,
			const struct slices_one *one, struct fault *fault);

void turns_server_write(struct text *text, const struct turns_server *server);

/* Nobody is served any more. The socket stays where it is, for the next vgpud that systemd hands it
 * to, and the files live as long as a program has them. */
void turns_server_close(struct turns_server *server);
