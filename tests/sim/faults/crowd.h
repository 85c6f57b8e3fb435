/*
 * Eight processes that allocate and free, with the quota full as far as they may fill it.
 */
#pragma once

#include "walk.h"

/* In shared memory. */
struct crowd {
	uint64_t freeze, finish;
	uint64_t polite; /* they keep to their parts, and not to WORKING */
	struct {
		uint64_t operations, refusals;
		uint64_t frozen; /* it stands still, and has so many bytes in granules of its own */
		uint64_t held;
	} worker[WORKERS];
};

extern struct crowd *crowd; /* to be set before any of the rest */
extern bool crowded;        /* they are there */

void crowd_start(bool polite);
void crowd_meet(void); /* until all have their contexts, and work */
void crowd_end(void);
/* They stand still, with the lock free, and go on. Where nobody is there: nothing. */
void crowd_freeze(void);
void crowd_thaw(void);

/* How far they are; and until each of them has gone on by some operations since. */
void crowd_note(uint64_t before[WORKERS]);
void crowd_await(const uint64_t before[WORKERS]);

/* What they hold, who stand still; of each, it is what the device says, and the ledger. */
uint64_t crowd_held(void);
