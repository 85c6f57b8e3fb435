/*
 * vgpud's server for programs that take turns (turn_offer.h has the messages). A program proves
 * which slice it belongs to, and gets a descriptor of its GPU's file of turns. After that, the
 * program needs vgpud no more.
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

#define TURNS_SOCKET_NAME \
	TURNS_KEPT_NAME "socket" /* the name under which systemd keeps the socket */
#define TURNS_CLIENTS_MAX 1024
#define TURNS_REFUSED_MAX 64

struct turns_client {
	int fd;        /* -1: free */
	bool is_ended; /* the connection is shut down, and an ender has yet to close it */
	bool is_answered;
	bool holds_file;   /* the answer had a descriptor, and may be unread */
	uint64_t since_ns; /* of the connection, or of the answer (CLOCK_MONOTONIC) */
	struct turns_peer peer;
	uint64_t tenant; /* as tenant_of() computes it; 0: unknown, or no answer yet */
};

/* A slice that is refused the file of a GPU until until_ns. Its region's file identifies it. */
struct turns_refused {
	uint64_t device, inode, until_ns;
	char uuid[VGPU_UUID_LEN];
};

struct turns_server {
	struct turns_store store;
	struct turns_refused refusal[TURNS_REFUSED_MAX]; /* the oldest is overwritten */
	unsigned refusals;                               /* since vgpud started */
	struct turns_reader reader;
	struct turns_socket socket;
	int epoll;    /* readable: turns_server_run has something to do */
	bool is_full; /* no connection is accepted until the next tick, as none can be closed */
	struct turns_client client[TURNS_CLIENTS_MAX];
	uint64_t lists_next_ns; /* when slices may be listed again for an unknown region */
	uint64_t given, same, refused,
		garbled; /* requests since vgpud started, by their answer; garbled had none */
};

/* The server does not listen yet, and the store is empty. */
void turns_server_init(struct turns_server *server);

/* Takes a descriptor that systemd has kept. Returns false if the name is not one of the
 * server's; the descriptor stays the caller's. Otherwise the server owns it, and closes it if
 * it cannot be used. */
bool turns_server_take(struct turns_server *server, const char *name, int fd);

/* Serves at the path, with a socket that all users may use. Call it once a second too: the
 * socket is made again if its file has been removed. path: "" ends the service. Returns 0; or a
 * negative errno with a fault, and no client is served then. */
int turns_server_listen(struct turns_server *server, const char *path, struct fault *fault);

/* Serves clients that have something to say, for some milliseconds at most. overview: the
 * slices and GPUs of the last look. */
void turns_server_run(struct turns_server *server, const struct overview *overview);
/* Call it once a second. It ends connections that do not end by themselves. */
void turns_server_tick(struct turns_server *server);

/* Replaces the GPU's file, and refuses the new file to the slice for 10 minutes. Returns 0; or
 * a negative errno with a fault, and nothing has changed. */
int turns_server_refuse(struct turns_server *server, struct turns_file *file,
			const struct slices_one *one, struct fault *fault);

/* Adds the metrics of files and requests. */
void turns_server_write(struct text *text, const struct turns_server *server);

/* Ends the service. The socket's file stays for the next vgpud, to which systemd hands the
 * socket. The files of turns live as long as a program has them. */
void turns_server_close(struct turns_server *server);
