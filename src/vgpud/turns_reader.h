/*
 * Processes that touch what strangers send, so that vgpud does not.
 *
 * A message can bring a descriptor of anything. Looking at it and closing it can take for ever: a
 * socket with SO_LINGER, or a file of a file system that somebody's program serves. So vgpud
 * receives no message of a client, and closes no connection that may have messages in it, because
 * the kernel closes what these brought along. It has two kinds of child processes for that:
 *
 *   the reader   receives a message, looks at the descriptor, closes it and reports. vgpud waits
 *                for the report. A reader that sleeps instead is killed, and the next request has a
 *                new one. Some file systems keep a killed process for as long as they like. So a
 *                user can lose a few readers at a time, and its messages are not received until
 *                these are gone.
 *   an ender     has what vgpud closes, and exits after vgpud has closed it. No exit waits for a
 *                socket, and what was not received is closed without asking its file system.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "turn_offer.h"

#define TURNS_LOST_MAX   24
#define TURNS_ENDERS_MAX 8

/* Who has connected: a user, in a PID namespace, which tells containers of one user apart. */
struct turns_peer {
	uid_t uid;
	uint64_t space; /* the namespace's inode; 0: not known */
};

struct turns_message {
	long len; /* as sys_receive's result */
	struct turn_offer_request request;
	bool has_descriptor;
	bool may_be_region;     /* it is of a file, open for reading and writing, */
	uint64_t device, inode; /* which is this one */
};

struct turns_reader {
	pid_t pid; /* 0: there is none */
	int fd;    /* its socket, or -1 */
	struct turns_lost {
		pid_t pid; /* 0: it is gone */
		struct turns_peer peer;
		uint64_t until_ns; /* it counts until then, too; 0: the entry is free */
	} lost[TURNS_LOST_MAX];
	pid_t ender[TURNS_ENDERS_MAX]; /* 0: free */
};

void turns_reader_init(struct turns_reader *reader);

/* Whom the connection is with. */
struct turns_peer turns_reader_peer(int client);

/* Receives a message from the connection. 0, and then ret_message->len may be an error; -EBUSY: the
 * peer has lost too many readers; -ETIMEDOUT: it has lost this one; or another negative errno:
 * there is no reader. */
int turns_reader_receive(struct turns_reader *reader, int client, const struct turns_peer *peer,
			 struct turns_message *ret_message);

/* Closes them without waiting for what is in them: 0; or a negative errno, and all are open. */
int turns_reader_end(struct turns_reader *reader, const int *fds, unsigned count);

/* Once a second: forgets processes that are gone. */
void turns_reader_tick(struct turns_reader *reader);

void turns_reader_close(struct turns_reader *reader);
