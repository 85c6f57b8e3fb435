/*
 * Child processes that handle descriptors from strangers, so that vgpud itself does not.
 *
 * A message can bring a descriptor of anything. To look at such a descriptor, or to close it, can
 * take for ever. It may be a socket with SO_LINGER, or a file that some user's program serves. So
 * vgpud receives no message of a client. It also closes no connection that may have unreceived
 * messages, because the kernel then closes the descriptors in them. Two kinds of child processes do
 * this work:
 *
 *   the reader   receives a message, looks at the descriptor, closes it and reports. vgpud waits
 *                for the report. A reader that sleeps instead is killed, and the next request has a
 *                new one. Some file systems keep a killed process for as long as they like. So a
 *                user can lose a few readers at a time, and its messages are not received until
 *                these have exited.
 *   an ender     has copies of the connections that vgpud closes, and exits after vgpud has closed
 *                them. An exit waits for no socket, and messages that were not received are closed
 *                without a call to their file system.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "turn_offer.h"

#define TURNS_LOST_MAX   24 /* killed readers, of all users */
#define TURNS_ENDERS_MAX 8  /* at once */

/* The other end of a connection: a user, and its PID namespace, which differs between
 * containers of one user. */
struct turns_peer {
	uid_t uid;
	uint64_t space; /* the namespace's inode; 0: not known */
};

struct turns_message {
	long len; /* the result of sys_receive: bytes, 0 at the end, or a negative errno */
	struct turn_offer_request request;
	bool has_descriptor;
	bool may_be_region; /* the descriptor is of a regular file, open for reading and writing */
	uint64_t device, inode; /* that file */
};

struct turns_reader {
	pid_t pid; /* 0: there is none */
	int fd;    /* its socket, or -1 */
	struct turns_lost {
		pid_t pid; /* 0: it has exited */
		struct turns_peer peer;
		uint64_t until_ns; /* counts until then, or longer; 0: the entry is free */
	} lost[TURNS_LOST_MAX];
	pid_t ender[TURNS_ENDERS_MAX]; /* 0: free */
};

/* There is no reader yet: turns_reader_receive starts one. */
void turns_reader_init(struct turns_reader *reader);

/* The other end of the connection. Where the kernel does not tell, the user is -1. */
struct turns_peer turns_reader_peer(int client);

/* Receives a message from the connection. Returns 0, and ret_message->len may be an error then.
 * -EBUSY: the peer has lost too many readers. -ETIMEDOUT: the peer has lost this reader. Another
 * negative errno: no reader can be started. */
int turns_reader_receive(struct turns_reader *reader, int client, const struct turns_peer *peer,
			 struct turns_message *ret_message);

/* Closes the descriptors without waiting for messages in them. Returns 0; or a negative errno,
 * and all are still open. */
int turns_reader_end(struct turns_reader *reader, const int *fds, unsigned count);

/* Call it once a second. It reaps children that have exited. */
void turns_reader_tick(struct turns_reader *reader);

/* Kills the reader, and waits up to 200 ms for all children. */
void turns_reader_close(struct turns_reader *reader);
