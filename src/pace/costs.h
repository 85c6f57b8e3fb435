/*
 * Learned costs: how long each kind of work has taken. Each process has its own table. The key is a
 * hash of the work: of the function and its launch geometry, of the executable graph, or of the
 * kind and size of a copy. docs/design/pacing.md says how costs are learned.
 *
 * A learned cost can be wrong. Two kernels may have one hash. A function's address may be another
 * function's after its module was unloaded. A kernel may take another time with other arguments.
 * The cost only decides whether a launch is admitted or waits. Measurements correct the sums
 * (bucket.h).
 *
 * There is no lock. The table is fixed. A key claims an entry, and an entry is never freed. If a
 * key finds no free entry, it takes one that was not looked up for longer than others. Words are
 * atomic. A mixture of two writers' words is still a cost that was measured, or an estimate of at
 * most 16 times COST_GUESS_MOST_NS. It lasts until the next sample.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "constants.h"

#define COST_UNKNOWN UINT64_MAX

struct cost {
	uint64_t key;          /* 0: free; its lowest bit: it was looked up recently (costs.c) */
	uint64_t ns;           /* COST_UNKNOWN until learned */
	uint64_t sample_at_ns; /* when the next sample is due, clock_steady_ns() */
	uint32_t blocks;       /* of the grid */
	uint16_t samples;      /* about how many there were */
	uint16_t waits; /* runs for which the kernel still counts as one that waits for launches; 0:
			   it does not */
};

/* The work of a launch, as the key and the estimate of its cost. */
struct cost_of {
	uint64_t function; /* a hash of the function, never 0 */
	uint64_t shape;    /* a hash of everything else that matters; 0: nothing else does */
	uint64_t blocks;   /* of the grid; 0: the cost gives no estimate for other shapes */
	bool graph;        /* the device begins before the launch returns */
};

/* Finds or makes the entry. NULL if there is no memory for the table. */
struct cost *cost_find(const struct cost_of *what);

/* The learned cost in ns, or COST_UNKNOWN. */
static inline uint64_t cost_ns(const struct cost *cost)
{
	return cost ? __atomic_load_n(&cost->ns, __ATOMIC_RELAXED) : COST_UNKNOWN;
}

/* Whether the cost has too few samples to be relied on. */
static inline bool cost_is_new(const struct cost *cost)
{
	return __atomic_load_n(&cost->samples, __ATOMIC_RELAXED) < COST_SAMPLES_NEW;
}

/* Learns from a run that took took_ns. lean_low: the time may contain other streams' work, so it
 * counts as one and a half times the learned cost at most. */
void cost_learn(struct cost *cost, const struct cost_of *what, uint64_t took_ns, bool lean_low);

/* Learns that the kernel ran until a later launch. Its cost is unknown until it has not done so for
 * a while; then it counts as new. */
void cost_learn_wait(struct cost *cost, const struct cost_of *what);

/* Learns that the kernel ran without waiting for a launch. long_ns: how long it ran, if that is
 * long for a kernel that only waits, else 0. The time is learned once the kernel no longer counts
 * as one that waits. */
void cost_unlearn_wait(struct cost *cost, const struct cost_of *what, uint64_t long_ns);

/* Whether the kernel counts as one that waits for launches. */
static inline bool cost_waits(const struct cost *cost)
{
	return cost && __atomic_load_n(&cost->waits, __ATOMIC_RELAXED);
}

/* The work may take another time from now on, as an updated executable graph does. Its cost becomes
 * an estimate, which the next sample replaces. No entry is made. */
void cost_resample(const struct cost_of *what);

/* The work no longer exists, as a destroyed executable graph. Its handle may become another's. */
void cost_forget(const struct cost_of *what);

/* In a forked child. */
void costs_forked(void);
