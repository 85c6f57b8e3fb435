/* Inside pace/: stretches of a stream, or of all streams, between two events, whose time on the
 * device is measured. */
#pragma once

#include "costs.h"
#include "pace.h"

enum span_kind {
	SPAN_WINDOW, /* of all that was charged in between: corrects the bucket */
	SPAN_SAMPLE, /* of one launch: teaches what it costs */
};

/* A moment of a device, as one end of a window. */
struct span_mark {
	int64_t charged, sure; /* the tally's */
	uint64_t idle_ns;      /* tally_idle_ns */
};

/*
 * A span is free; held by the thread that fills it in, or looks whether it is over; or closed: its
 * end is recorded, and the device has yet to get there. Events are kept for the next use, and
 * belong to a context, as spans do.
 */
struct span {
	uint32_t state;       /* atomic: enum span_state, in spans.c */
	struct span_set *set; /* the context's, in spans.c */
	enum span_kind kind;
	struct meter *meter;
	void *context;      /* of the events; NULL: there are none */
	const void *stream; /* meter_stream of its work; NULL: of several, and fenced */
	void *begin, *end;
	struct span *before; /* what it follows, whose end is its begin; NULL: nothing */
	void *own;           /* the event that it gave for that */
	void *given;         /* atomic: the one that it was given for its end, or NULL */
	uint64_t turn;       /* the how many-th to be closed */
	uint64_t in_vain_ns; /* for how long somebody waited for it, and gave it up */
	uint64_t due_ns;     /* when it should be over, clock_steady_ns() */
	uint64_t begun_ns;   /* of a sample: when its begin was recorded, clock_steady_ns(), */
	uint64_t closed_ns;  /* and its end */
	uint64_t ahead_ns;   /* of a sample: what the device had to do before it, as costs say */
	uint64_t waited_least_ns;  /* of a sample: for how long the device waited for the launch */
	uint64_t waited_most_ns;   /* in it, as far as one knows */
	struct span_mark from, to; /* of a window; of a sample, only to.sure */
	struct cost *cost;         /* of a sample, as is what */
	struct cost_of what;
	bool fenced;   /* it is of all streams of the context */
	bool alone;    /* of a window: it is of all streams that were given work */
	bool clear;    /* of a window: nothing happened in it that makes it say nothing */
	bool unknown;  /* of a sample: it is charged when it is known */
	bool at_once;  /* of an unknown one's sample: it began before its end was recorded */
	bool expected; /* of a sample: its kernel is known to wait, and only itself waits for it */
};

/* A free one with events of the context, held; NULL when there is none. */
struct span *span_take(void *context);
/* Records its begin: behind all that the context has, or behind what the stream has; and its end,
 * where that is. False: nothing is recorded. */
bool span_begin(struct span *span, const struct pace_work *work, bool fenced);
bool span_end(struct span *span, const struct pace_work *work);
/* Instead: it begins where another ends, which has that, and is not closed yet. */
void span_follow(struct span *span, struct span *before);
/* Whether the device has come to its begin. */
bool span_is_begun(const struct span *span);
/* It has both. */
void span_close(struct span *span);
void span_drop(struct span *span);

#define SPANS_NONE    UINT64_MAX
#define SPANS_NOT_YET (UINT64_MAX - 1)

/* What becomes of a closed one: how long it took, or SPANS_NONE when that will never be known; or
 * SPANS_NOT_YET, and it stays. */
typedef void span_done_fn(const struct span *span, uint64_t took_ns);

/* Of those that are not over, the first that should be. */
struct spans_left {
	uint64_t due_ns; /* when; 0: nobody knows; SPANS_NONE: there is none that is waited for */
	bool alike;      /* it is a sample of that cost */
	bool behind;     /* nobody knows when, and there is something to be waited for before it */
	bool full;       /* until one of them is, no more are to be had in the context */
	bool contended;  /* another thread looks at the context's: nothing is known */
};

/* Calls done for the closed ones of the context, as they were closed, and frees those that are
 * over; not for what is behind one that is not. A window is over only after those before it. */
struct spans_left spans_settle(void *context, const struct cost *cost, span_done_fn *done);
/* Those of the context that should have been over at late_ns: nobody waits for them any more, and
 * they are due at SPANS_NONE. How many there are. waited_ns: for how long somebody did, for the one
 * that was closed first. */
unsigned spans_give_up(const void *context, uint64_t late_ns, uint64_t waited_ns);
/* Whether there is any closed one: cheap. */
bool spans_any(void);

/* The context is gone, and its events with it: calls done for the closed ones of it. */
void spans_end_context(const void *context, span_done_fn *done);
void spans_forget(void); /* in a forked child */

extern const struct pace_driver *pace_driver; /* meter.c: written when the process attaches */
