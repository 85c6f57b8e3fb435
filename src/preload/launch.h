/* Before the device is given work, and after. */
#pragma once

#include <stdbool.h>

#include "cuda_abi.h"
#include "pace.h"

/* A launch on its way. */
struct launch {
	struct pace_pass pass;
	struct pace_work work;
};

/*
 * For whom pace_is_open() does not let through: waits until work may go to the stream. per_thread:
 * what its NULL means. what: what is launched, as costs are learned by it. CUDA_SUCCESS: call the
 * driver, to which we are bound then, and launch_end with its answer; anything else is what the
 * application is told.
 */
CUresult launch_begin(struct launch *launch, CUstream stream, bool per_thread,
		      const struct cost_of *what);

/* Returns the driver's result. */
CUresult launch_end(struct launch *launch, CUresult result);

/* A hash of some words that tell one thing from another; never 0. */
uint64_t launch_hash(const uint64_t *words, unsigned count);

/* What an executable graph's launches cost. */
struct cost_of launch_of_graph(CUgraphExec graph);

void launch_forget(void); /* in a forked child */
