/*
 * How a process gets the file of a GPU's turns from vgpud. Where vgpud runs, it owns the file: a
 * memfd, sealed so that no process can truncate it. Each process gets an open file of its own.
 * vgpud(8) has the reasons, and src/vgpud/turns_server.c the other side.
 *
 * The socket is one of whole messages. The process sends a request, along with a descriptor of its
 * slice's region, opened for reading and writing. A process that may open the region so belongs to
 * the slice. vgpud sends one answer, and the process closes the connection. Neither side trusts the
 * other: an invalid request ends its connection, and an invalid answer counts as none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "turn_file.h"
#include "vgpu_region.h"

#define TURN_OFFER_MAGIC 0x314f4e5255545056ull /* "VPTURNO1" in the message's first eight bytes */

struct turn_offer_request {
	uint64_t magic;
	uint32_t version; /* VGPU_TURNS_VERSION */
	uint32_t spare;
	uint64_t device, inode;   /* of the file that the process has; 0: it has none */
	char uuid[VGPU_UUID_LEN]; /* of the GPU, and zeros after it */
};

enum turn_offer_kind {
	TURN_OFFER_FILE,    /* a descriptor of the file comes along */
	TURN_OFFER_SAME,    /* the process has the file */
	TURN_OFFER_REFUSED, /* nothing for this process: not of a slice, or no GPU of the node */
};

struct turn_offer_answer {
	uint64_t magic;
	uint32_t version;
	uint32_t kind;
};

/* Whether the bytes are a request, of a version that this one understands. */
bool turn_offer_is_request(const void *bytes, size_t len);

/*
 * Asks at the socket for the file of the GPU, for patience_ns at most. region_fd: of the slice's
 * region; it stays the caller's. have: the file that the process has, or NULL. Returns a
 * descriptor, for turn_join_offered. -EALREADY: the process has vgpud's file. -ENOENT or
 * -ECONNREFUSED: there is no vgpud. -ETIMEDOUT; -EPERM: refused; or another negative errno. Makes
 * three system calls where there is no vgpud.
 */
int turn_offer_ask(const char *socket, const char *uuid, int region_fd,
		   const struct turn_file *have, uint64_t patience_ns);
