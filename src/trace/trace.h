/*
 * The trace: the decisions and observations of a process of a slice, written down as they happen,
 * for `vgpu trace`. trace_file.h has the file and the kinds of events. VGPU_TRACE names the
 * subjects that are written. Without it, each of the functions here that are inline is one branch.
 *
 * Entries are added without a lock: a number is taken, and then the entry of that number is filled
 * in. A thread that is stopped in between for as long as the others take for TRACE_ENTRIES more can
 * spoil one entry, which readers then pass over or show with wrong figures. So an entry can be
 * added while any lock is held, and in a signal handler.
 *
 * There is one trace in a process, and it is that of the slot that the process took first.
 */
#pragma once

#include <stdbool.h>

#include "fault.h"
#include "trace_file.h"
#include "vgpu_region.h"

/* Bit s: subject s is written; TRACE_UNDECIDED until trace_begin. Written by trace_begin and
 * trace_forget, while other threads may read it. Atomic. */
extern uint32_t trace_subjects;
#define TRACE_UNDECIDED (1u << 31)

/* As the process takes a slot of the region at path, whose devices those are. Nothing happens
 * where no trace is asked for, or there is one already. */
void trace_begin(const char *path, int slot, const struct vgpu_region_device *devices);

/* Why the trace that was asked for is not written; NULL: it is, or none was asked for. */
const struct fault *trace_fault(void);

/* The process has no slot any more; and in a forked child. */
void trace_forget(void);

/* Whether the subject is written: for figures that are not at hand. */
static inline bool trace_wants(enum trace_subject subject)
{
	return __builtin_expect(__atomic_load_n(&trace_subjects, __ATOMIC_RELAXED) >> subject & 1,
				0);
}

static inline enum trace_subject trace_subject_of(enum trace_kind kind)
{
	return (enum trace_subject)(kind / TRACE_KINDS_OF_SUBJECT);
}

struct trace_event {
	enum trace_kind kind;
	int device; /* its number in the region, -1: none */
	enum trace_reason reason;
	unsigned class; /* as an entry's */
	int64_t a, b, c;
};

/* Adds an entry, with the thread's call. Only where trace_wants the kind's subject. */
void trace_add_event(const struct trace_event *event);

/* -- which call -------------------------------------------------------------------------------- */

void trace_set_call(const char *name);

/* The calling thread is in the driver's function of that name, a literal, which later entries of
 * the thread about memory and the region have. Launches have no call. */
static inline void trace_call(const char *name)
{
	if (__builtin_expect(__atomic_load_n(&trace_subjects, __ATOMIC_RELAXED) != 0, 0))
		trace_set_call(name);
}

/* An expression that calls trace_call with the name of the function in which it stands. */
#define TRACE_CALLED(expression) (trace_call(__func__), (expression))

/* -- launches ---------------------------------------------------------------------------------- */

static inline bool trace_is_wanted(void)
{
	return trace_wants(TRACE_PACE);
}

void trace_add(enum trace_kind kind, int device, int64_t a, int64_t b);
void trace_add_of(enum trace_kind kind, const struct vgpu_region_bucket *bucket, int64_t a,
		  int64_t b);

/* For kinds of the subject pace. device: its number in the region (struct pace_quota's index), -1:
 * none. a, b: see the kind. */
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
