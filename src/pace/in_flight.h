/*
 * Inside pace/: the work that this process has in flight on a device: whether there is any, since
 * when, and about how much. docs/design/gangs.md has periods, marks and tails ("What a gang pays").
 *
 * A mark is a fence, which follows all streams of a context. A fence is impossible before CUDA
 * 12.5, and while the process captures a graph. Then each launch is followed by an event in its own
 * stream.
 *
 * Thread-safe. No function waits for the device. Times are clock_steady_ns().
 */
#pragma once

#include "lock.h"
#include "pace.h"

#define IN_FLIGHT_MARKS 64

struct in_flight_mark {
	void *event;         /* NULL: not made yet */
	const void *context; /* of the event */
	const void *stream;  /* NULL: the event is after all streams of the context */
	uint64_t launches;   /* how many launches are before the mark */
	bool moves;          /* the mark is to be recorded again after the next launch */
};

struct in_flight {
	struct lock lock;       /* of all that follows; words marked atomic are read without it */
	bool is_exact;          /* events measure the end of each period, also of short ones */
	bool waits_for_part;    /* the last wait that had a mark left the device busy; atomic */
	uint64_t launches;      /* since the start; atomic */
	uint64_t marked;        /* launches that are before a mark; atomic */
	uint64_t reached;       /* launches that the device has finished; atomic */
	uint64_t reached_ns;    /* about when `reached` last grew; atomic */
	uint64_t pending_ns;    /* when a look last found a mark that was not reached; atomic */
	uint64_t marked_ns;     /* when a mark was last made that does not move; atomic */
	uint64_t marked_at;     /* `launches` at marked_ns; atomic */
	uint64_t mean_ns;       /* mean time of a launch on the device; atomic */
	uint64_t interval_ns;   /* from one mark to the next; 0: MARK_LEAST_NS; atomic */
	uint64_t looked_ns;     /* when a launch looked last; atomic */
	uint64_t looked_at;     /* `launches` at looked_ns; atomic */
	uint64_t by_streams_ns; /* when the driver last refused a mark after all streams; 0: never;
				 * atomic */
	uint32_t entered;       /* launches inside the driver's call; atomic */
	uint32_t tail_marks;    /* so many launches more are marked, each; atomic */
	uint64_t waited_at;     /* `launches` when a thread last waited; atomic */
	bool is_busy;           /* a period has begun, and was not seen to end; atomic */
	bool is_measured;  /* the period is measured even if it turns out to be short; atomic */
	uint64_t began_ns; /* begin of the period; atomic */
	uint64_t before;   /* `launches` at began_ns */
	void *begin;       /* event at the period's begin, of begin_context; or NULL */
	void *begin_context;
	bool begin_is_recorded;
	void *context;          /* of the last mark; NULL: no mark, or its context is gone */
	int device;             /* a CUDA ordinal */
	const void *stream;     /* of the last launch; atomic */
	bool mixed;             /* launches since the last mark went to several streams; atomic */
	bool mixed_period;      /* launches of the period went to several streams; atomic */
	uint64_t learned_ns;    /* when events last measured mean_ns */
	uint64_t measured_ns;   /* when events last measured a short period */
	uint64_t took_sum_ns;   /* sum over the last short periods that events measured */
	uint64_t lasted_sum_ns; /* the same periods, until they were seen to have ended */
	uint32_t head, tail;    /* marks in [head, tail) are not reached yet, */
	struct in_flight_mark mark[IN_FLIGHT_MARKS]; /* modulo IN_FLIGHT_MARKS */
};

/* Before a launch: begins a period if there is none. It does not end before in_flight_left. */
void in_flight_begin(struct in_flight *it, const struct pace_work *work, uint64_t now_ns);

/* After a launch. at_once: records a mark in any case; else at intervals. */
void in_flight_submitted(struct in_flight *it, const struct pace_work *work, bool at_once,
			 uint64_t now_ns);

/* After in_flight_submitted, or after the driver refused the launch. */
void in_flight_left(struct in_flight *it);

/* Records a mark after the launches that have none, unless the last mark is less than each_ns old.
 */
void in_flight_mark(struct in_flight *it, uint64_t each_ns, uint64_t now_ns);

/* Before a thread asks whether work is over, without a wait. Some programs query events before each
 * launch: PyTorch does when it allocates memory. So a mark is made once in MARK_LEAST_NS at most.
 */
void in_flight_will_look(struct in_flight *it, uint64_t now_ns);

/* Before and after a thread waits for work. in_flight_will_wait records a mark. But once a wait has
 * left the device busy, marks before waits are MARK_LEAST_NS apart, except where the process has
 * not launched since the last wait. Without that, a program that waits for the oldest of eight
 * kernels of 50 us before each launch would lose 4 % of its time. Launches look each MARK_LEAST_NS
 * meanwhile. busy: a look after the wait has found work in flight. */
void in_flight_will_wait(struct in_flight *it, uint64_t now_ns);
void in_flight_waited(struct in_flight *it, bool busy);

/* Since from_ns, after a wait: whether the last mark is reached soon, so that it is worth looking
 * again. due_ns: when the device should have finished. If the launches without a mark may have
 * finished, records one. */
bool in_flight_is_soon_over(struct in_flight *it, uint64_t due_ns, uint64_t from_ns,
			    uint64_t now_ns);

/* Whether all launches are before a mark. */
bool in_flight_is_marked(const struct in_flight *it);

/* Whether the device has work in flight. The first call that finds none ends the period. Then
 * *ret_ended_ns is the time at which the device finished the work, and otherwise 0. work: the next
 * launch, or NULL. marks: launches after the last mark get a mark now, and count as in flight until
 * it is reached. If the device was idle already, the period then seems to end only now. */
bool in_flight_look(struct in_flight *it, const struct pace_work *work, bool marks, uint64_t now_ns,
		    uint64_t *ret_ended_ns);

/* About how long the device will take for the work in flight, ns, as of the last look. */
uint64_t in_flight_ahead_ns(const struct in_flight *it);

/* Begins a period for work in flight that was launched without in_flight_begin. It counts as one
 * launch, which ends with all work of the context. From then on, events measure the end of each
 * period, because turns are paid for by it. */
void in_flight_adopt(struct in_flight *it, const struct pace_work *work, uint64_t now_ns);

/* Whether it is time to look again while the gang is open. Costs two loads and a multiplication. */
bool in_flight_is_due(const struct in_flight *it, uint64_t now_ns);

/* The context is gone, and its events with it. */
void in_flight_end_context(struct in_flight *it, const void *context);
