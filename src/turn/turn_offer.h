/*
 * How a process has the file of a GPU's turns from vgpud, which owns it where it runs: the file is
 * a memfd, sealed so that nobody can truncate it, and each process is given an open file of its
 * own. vgpud(8) has the reasons, src/vgpud/turns.c the other side.
 *
 * The socket is one of whole messages. The process sends a request, along with a descriptor of its
 * slice's region, opened for reading and writing: whoever may open that is of the slice. vgpud
 * sends one answer, and the process closes the connection. Neither believes the other: what is no
 * request ends its connection, and what is no answer counts as none.
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
 * Asks at the socket for the file of the GPU, for that long at most. region_fd: of the slice's
 * region; it stays the caller's. have: what the process has, or NULL. A descriptor, for
 * turn_join_offered; -EALREADY: it has the file; -ENOENT or -ECONNREFUSED: there is no vgpud;
 * -ETIMEDOUT; -EPERM: refused; or another negative errno. Makes three system calls where there is
 * no vgpud.
 */
int turn_offer_ask(const char *socket, const char *uuid, int region_fd,
		   const struct turn_file *have, uint64_t patience_ns);
