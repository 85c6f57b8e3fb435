/* The node's ResourceSlice at the API server: kept as the node's GPUs are. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "api_server.h"
#include "gpus.h"

struct publish {
	struct api_server *server;
	const struct gpus *gpus;
	const char *driver, *node;
	/* The rest is publish.c's, and zero at first. */
	char version[64]; /* of the slice, as this program wrote it last */
	uint64_t next_ns, wait_ns;
	bool says_lost;
	struct fault said;
};

/* Compares the slice with the GPUs if it is time to, and writes it if need be. A failure is said
 * once, and tried again later. */
void publish_look(struct publish *publish);
/* It is time to: the GPUs have changed, or the kubelet may have deleted the slice. */
void publish_soon(struct publish *publish);
