/*
 * Removes claims that the kubelet has forgotten: those that are prepared, and of which the API
 * server says that they are gone. The kubelet asks for the removal of a claim while it knows the
 * claim's pod; it knows it no more where its state was lost, or where the pod was deleted while the
 * node was away.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "prepare.h"

struct sweep_claim {
	struct claim_id id;
	bool was_gone; /* as the round before has seen it */
	bool is_due;   /* this look has found it gone as well */
};

struct sweep {
	const struct prepare *prepare;
	unsigned period_s; /* from the end of a round to the next one */
	/* The rest is sweep.c's, and zero at first. */
	struct sweep_claim *claim; /* of this round, or of the last one */
	unsigned count, at;
	uint64_t next_ns;
	bool runs;
	struct fault said;
};

/* Goes on with a round, or begins one if it is time to. It waits for the API server, and returns as
 * soon as its looks have taken a tenth of a second. */
void sweep_look(struct sweep *sweep);
void sweep_end(struct sweep *sweep);
