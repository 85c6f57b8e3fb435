/*
 * Writes down which containers of which pods use each claim that is prepared (UID.pods, claims.h),
 * as the kubelet's socket for pod resources says. A claim may be shared, and the kubelet does not
 * call this driver for further pods of a claim, so it is asked now and then.
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
	/* The rest is users.c's, and zero at first. */
	struct grpc_call *call;
	uint64_t next_ns;
	bool again; /* a claim was prepared since the call began */
	struct fault said;
};

/* Asks the kubelet if it is time to, and a claim is prepared. The answer comes by the loop. */
void users_look(struct users *users);
/* It is time to: a claim was prepared. */
void users_soon(struct users *users);
void users_end(struct users *users);
