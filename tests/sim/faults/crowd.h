/*
 * Eight worker processes that allocate and free, and keep the quota as full as they may.
 */
#pragma once

#include "walk.h"

/* The workers' state, in shared memory. */
struct crowd {
	uint64_t freeze, finish;
	/* each worker keeps to its part of WORKING, instead of all to WORKING together */
	uint64_t polite;
	struct {
		uint64_t operations, refusals;
		/* the worker pauses and holds `held` bytes, in granules of its own */
		uint64_t frozen;
		uint64_t held;
	} worker[WORKERS];
};

extern struct crowd *crowd; /* set it before calling the functions below */
extern bool crowded;        /* the workers are running */

void crowd_start(bool polite);
void crowd_meet(void); /* waits until all workers have contexts and work */
void crowd_end(void);
/* crowd_freeze pauses the workers while none has the lock; crowd_thaw continues them. Without
 * workers, both do nothing. */
void crowd_freeze(void);
void crowd_thaw(void);

/* crowd_note notes the workers' progress; crowd_await waits until each worker has made some
 * operations since. */
void crowd_note(uint64_t before[WORKERS]);
void crowd_await(const uint64_t before[WORKERS]);

/* The bytes that all paused workers hold. It checks that the device holds these bytes for each
 * worker, and that the ledger has them and at most a granule more. */
uint64_t crowd_held(void);
