/*
 * A process that is stopped, or killed, just before any of its stores to a region, and before any
 * of its system calls that others can see: whether or not src/region/steps.h has a step there.
 *
 * How it works. The mapping is made read-only, so that each store to it is a page fault. The
 * handler of that lets the one instruction store (with the trap flag set), and makes the mapping
 * read-only again. System calls are met at the seam that base/sys.h has for tests.
 *
 * Where an event is. To meet the thousandth store, 999 would have to be let through, each of which
 * takes some 10 us. So a place is counted from the last thing that costs nothing to pass: so many
 * passes (named steps and system calls), and then so many events (stores and system calls). Only
 * behind the last pass is the mapping read-only. The named steps save time here, nothing more: with
 * none in the code, the same events are met.
 *
 * x86-64 alone has the trap flag. One thread: others would store while the mapping is writable.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct watched_place {
	uint64_t passes, events; /* events from 1; places are in the order of both */
};

/* In memory that is shared with the test. */
struct watched {
	struct watched_place target; /* by the test: the first place at which to act */
	struct watched_place met;    /* where it was: the target, or the next one that there is */
	bool acted;
	char what[48]; /* the event there, in words */
};

/* Whether all that can be had here; else a line on stdout says why not. */
bool watched_is_possible(void);

/* Before anything of the region is called in the process: its mappings are known from then on. */
void watched_prepare(void);

/* From here to the end, act() is called once, before the event at the target: by the handler of a
 * signal, so it must be one that may be (kill, raise, a write). */
void watched_begin(struct watched *watched, void (*act)(void));
void watched_end(void);
