/*
 * Writes down which containers of which pods use each prepared claim (UID.pods, claims.h). The
 * kubelet's socket for pod resources tells this. Pods may share a claim, and the kubelet does not
 * call this driver for further pods of a claim. So this driver asks the kubelet every 10 seconds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "claims.h"
#include "grpc.h"

struct users {
	struct loop *loop;
	const char *socket;
	const struct claims_places *places;
	/* Private to users.c; zero at first. */
	struct grpc_call *call;
	uint64_t next_ns;
	bool again;        /* a claim was prepared since the call began */
	struct fault said; /* the last logged failure */
};

/* Call it often. It asks the kubelet if it is time and a claim is prepared. The loop delivers
 * the answer. */
void users_look(struct users *users);
/* Makes the next users_look ask: a claim was prepared. */
void users_soon(struct users *users);
void users_end(struct users *users); /* cancels a question */
