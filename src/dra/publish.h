/* Keeps the node's ResourceSlice at the API server equal to the node's GPUs. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "api_server.h"
#include "gpus.h"

struct publish {
	struct api_server *server;
	const struct gpus *gpus;
	const char *driver, *node;
	/* Private to publish.c; zero at first. */
	char version[64]; /* the slice's resourceVersion after this program last wrote it */
	uint64_t next_ns, wait_ns;
	bool says_lost;    /* the server dropped allowMultipleAllocations, and that was logged */
	struct fault said; /* the last logged failure */
};

/* Call it often. If it is time, it compares the ResourceSlice with the GPUs, and writes it if
 * they differ. A failure that lasts is logged once, and is tried again later. */
void publish_look(struct publish *publish);
/* Makes the next publish_look compare: the GPUs have changed, or the kubelet may have deleted
 * the slice. */
void publish_soon(struct publish *publish);
