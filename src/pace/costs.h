/*
 * What each kind of work has been seen to cost: a process's own table, by a hash of what is
 * launched (the function and its launch geometry, the executable graph, the kind and size of a
 * copy).
 *
 * A kernel of a geometry that is new is first taken for a similar one of the function, by its
 * number of blocks. What is not known at all costs COST_UNKNOWN.
 *
 * A hash can stand for two kernels, a function's address for another one after its module was
 * unloaded, and a kernel can take another time with other arguments: a cost is a guess that lets a
 * launch go or wait, and measuring corrects the sums (bucket.h).
 *
 * No lock: a fixed table in which an entry is claimed by its key and never freed. Where a key finds
 * no free place, an entry that was not looked up for longer than others is given up. Words are
 * atomic, and any mixture of two writers' is a cost that was seen, or a guess of 16 times
 * COST_GUESS_MOST_NS at most, until the next sample.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "constants.h"

#define COST_UNKNOWN UINT64_MAX

struct cost {
	uint64_t key;          /* 0: free; its lowest bit: it was looked up of late (costs.c) */
	uint64_t ns;           /* COST_UNKNOWN until learned */
	uint64_t sample_at_ns; /* when the next sample is due, clock_steady_ns() */
	uint32_t blocks;       /* of the grid */
	uint16_t samples;      /* how many there were, about */
	uint16_t waits;        /* 0: it does not wait; else it is thought to for so long */
};

/* What is launched. */
struct cost_of {
	uint64_t function; /* a hash of the function, never 0 */
	uint64_t shape;    /* of all else that matters; 0: there is nothing else */
	uint64_t blocks;   /* of the grid; 0: a cost says nothing of other shapes' */
	bool graph;        /* the device is at work on it before its launch returns */
};

/* The entry, made when there is none; NULL where there is no memory for the table. */
struct cost *cost_find(const struct cost_of *what);

/* What it costs, or COST_UNKNOWN. */
static inline uint64_t cost_ns(const struct cost *cost)
{
	return cost ? __atomic_load_n(&cost->ns, __ATOMIC_RELAXED) : COST_UNKNOWN;
}

/* Whether it has been seen too seldom to be relied on. */
static inline bool cost_is_new(const struct cost *cost)
{
	return __atomic_load_n(&cost->samples, __ATOMIC_RELAXED) < COST_SAMPLES_NEW;
}

/* It took so long. lean_low: that may have other streams' work in it, and counts for one and a half
 * times the cost at most. */
void cost_learn(struct cost *cost, const struct cost_of *what, uint64_t took_ns, bool lean_low);

/* It ran until something was launched behind it. What it costs is not known, until it has not done
 * so for a while: then it is new. */
void cost_learn_wait(struct cost *cost, const struct cost_of *what);

/* It ran, and nobody kept it waiting. long_ns: for how long, if that is long for what only waits,
 * or 0; it is learned once the kernel is not thought to wait any more. */
void cost_unlearn_wait(struct cost *cost, const struct cost_of *what, uint64_t long_ns);

/* Whether it does. */
static inline bool cost_waits(const struct cost *cost)
{
	return cost && __atomic_load_n(&cost->waits, __ATOMIC_RELAXED);
}

/* It may take another time from now on, as an executable graph that was updated does: what it cost
 * is a guess, as new as one can be, and the next sample replaces it. An entry that is not there is
 * not made. */
void cost_doubt(const struct cost_of *what);

/* It is gone, and its name may be another's: an executable graph that is destroyed. */
void cost_forget(const struct cost_of *what);

/* In a forked child. */
void costs_forget(void);
