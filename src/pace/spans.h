/* Inside pace/: a span is a pair of events in one stream, or after all streams of a context,
 * between which the device's time is measured. */
#pragma once

#include "costs.h"
#include "pace.h"

enum span_kind {
	SPAN_WINDOW, /* of many launches: corrects what was charged for them */
	SPAN_SAMPLE, /* of one launch: its cost is learned */
};

/* The state of the backlog at one end of a window. */
struct span_mark {
	int64_t charged, sure; /* backlog.charged, backlog.sure */
	uint64_t idle_ns;      /* backlog_idle_ns */
};

/*
 * A span is in one of three states. It is free, or held by the thread that fills it in or asks
 * whether it has finished, or closed. The end of a closed span is recorded, and the device may not
 * have reached it. Events are kept for the next use. Events and spans belong to a context.
 */
struct span {
	uint32_t state;       /* atomic: enum span_state, in spans.c */
	struct span_set *set; /* the context's, in spans.c */
	enum span_kind kind;
	struct meter *meter;
	void *context;      /* of the events; NULL: there are none */
	const void *stream; /* meter_stream of its work; NULL: of several, and fenced */
	void *begin, *end;
	struct span *before;       /* the span whose end is this one's begin; NULL: none */
	void *own;                 /* the event that this span gave to `before` in exchange */
	void *given;               /* atomic: the event that the following span gave, or NULL */
	uint64_t turn;             /* the number in the order in which spans were closed */
	uint64_t launch_waited_ns; /* how long a launch waited for the span before giving it up */
	uint64_t due_ns;           /* when it should have finished, clock_steady_ns() */
	uint64_t begun_ns;        /* of a sample: when its begin was recorded, clock_steady_ns(), */
	uint64_t closed_ns;       /* and when its end was */
	uint64_t ahead_ns;        /* of a sample: the device's work before it, by learned costs */
	uint64_t waited_least_ns; /* of a sample: bounds of the time that the device waited */
	uint64_t waited_most_ns;  /* for the launch within the span */
	struct span_mark from, to; /* of a window; of a sample, only to.sure */
	struct cost *cost;         /* of a sample */
	struct cost_of what;       /* of a sample */
	bool fenced;               /* its events are after all streams of the context */
	bool alone;                /* of a window: it is of all streams that had launches */
	bool clear;                /* of a window: nothing made it useless (meter_break()) */
	bool unknown;              /* of a sample: the launch is charged when its cost is known */
	bool at_once; /* of an unknown launch's sample: the launch began before the end was recorded
		       */
	bool expected; /* of a sample: its kernel waits for launches, and no other kernel waits for
			  it */
};

/* Returns a held span with events of the context, or NULL if none is free. */
struct span *span_take(void *context);
/* Record the begin of a span, after all work of the context (fenced) or of the stream, and its end
 * likewise. False: nothing is recorded. */
bool span_begin(struct span *span, const struct pace_work *work, bool fenced);
bool span_end(struct span *span, const struct pace_work *work);
/* Instead of span_begin(): the span begins with the end of `before`, which is recorded but not yet
 * closed. */
void span_follow(struct span *span, struct span *before);
/* Whether the device has reached the span's begin. */
bool span_is_begun(const struct span *span);
/* Closes a span whose begin and end are recorded. */
void span_close(struct span *span);
void span_drop(struct span *span);

#define SPANS_NONE    UINT64_MAX
#define SPANS_NOT_YET (UINT64_MAX - 1)

/* Called for a closed span with the time that it took, with SPANS_NONE if that will never be known,
 * or with SPANS_NOT_YET if it has not finished. */
typedef void span_done_fn(const struct span *span, uint64_t took_ns);

/* The first due span among those that have not finished. */
struct spans_left {
	uint64_t due_ns;  /* when it is due; 0: unknown; SPANS_NONE: there is no span to wait for */
	bool same_cost;   /* it is a sample of the launch's own cost */
	bool after_known; /* its due time is unknown, and known work is before it */
	bool full;        /* the context has no free span until one finishes */
	bool contended;   /* another thread is settling the context's spans: nothing is known */
};

/* Calls `done` for the closed spans of the context in the order in which they were closed, and
 * frees the finished ones. It stops at a stream's first unfinished span. A window counts as
 * finished only after the spans before it. cost: the cost of the launch, for spans_left.same_cost.
 */
struct spans_left spans_settle(void *context, const struct cost *cost, span_done_fn *done);
/* Gives up the spans of the context that were due by overdue_ns: their due_ns becomes SPANS_NONE.
 * Returns their number. waited_ns: how long a launch waited, which the first of them keeps. */
unsigned spans_give_up(const void *context, uint64_t overdue_ns, uint64_t waited_ns);
/* Whether there is any closed span. Cheap. */
bool spans_any(void);

/* The context and its events are gone: calls `done` for its closed spans. */
void spans_end_context(const void *context, span_done_fn *done);
void spans_forked(void); /* in a forked child */

extern const struct pace_driver *pace_driver; /* meter.c: written when the process attaches */
