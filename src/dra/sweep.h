/*
 * Removes claims that the kubelet has forgotten: they are prepared, and the API server says
 * that they are gone. The kubelet asks to remove a claim as long as it knows the claim's pod.
 * It does not know the pod any more if its state was lost, or if the pod was deleted while the
 * node was away.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "prepare.h"

struct sweep_claim {
	struct claim_id id;
	bool was_gone; /* the last round found it gone */
	bool is_due;   /* this round has found it gone too */
};

struct sweep {
	const struct prepare *prepare;
	unsigned period_s; /* from the end of a round to the start of the next */
	/* Private to sweep.c; zero at first. */
	struct sweep_claim *claim; /* of this round, or of the last one */
	unsigned count, at;
	uint64_t next_ns;
	bool runs;
	struct fault said;
};

/* Call it often. It continues a round, or begins one if it is time. It waits for the API
 * server's answers, and begins no further request after a tenth of a second. */
void sweep_look(struct sweep *sweep);
void sweep_end(struct sweep *sweep); /* frees the list of claims */
