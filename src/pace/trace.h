/*
 * Inside pace/: the trace (region/trace_file.h has the decisions and the file). It is written where
 * the process was started with VGPU_TRACE=pace; else trace_write is one branch.
 *
 * Entries are added without a lock: a number is taken, and then the entry of that number is filled
 * in. A thread that is stopped in between for as long as the others take for TRACE_ENTRIES more can
 * spoil one entry, which readers then pass over or show with wrong figures.
 */
#pragma once

#include <stdbool.h>

#include "region.h"
#include "trace_file.h"

/* For the functions below. Written as the process attaches, before its first launch is admitted. */
extern bool trace_is_on;

/* As the process attaches to the region, in which it has a slot. A trace that is asked for and
 * cannot be written is a line on stderr, and no more. */
void trace_begin(const struct region *region);
void trace_forget(void); /* in a forked child */

/* Whether there is one: for figures that are not at hand. */
static inline bool trace_is_wanted(void)
{
	return __builtin_expect(trace_is_on, false);
}

void trace_add(enum trace_kind kind, int device, int64_t a, int64_t b);
void trace_add_of(enum trace_kind kind, const struct vgpu_region_bucket *bucket, int64_t a,
		  int64_t b);

/* device: its number in the region (struct pace_quota's index), -1: none. a, b: see the kind. */
static inline void trace_write(enum trace_kind kind, int device, int64_t a, int64_t b)
{
	if (trace_is_wanted())
		trace_add(kind, device, a, b);
}

/* The same for the device of that bucket. */
static inline void trace_write_of(enum trace_kind kind, const struct vgpu_region_bucket *bucket,
				  int64_t a, int64_t b)
{
	if (trace_is_wanted())
		trace_add_of(kind, bucket, a, b);
}
