/*
 * Inside pace/: what a device has in flight for this process: whether anything, since when, and
 * about how much.
 *
 * The driver is asked by marks: events behind all that the process has launched to the device. A
 * period begins with a launch to a device that has nothing of the process, and ends when the last
 * mark is reached and nothing was launched behind it. Two events give the period its length: one
 * before its first launch, and the last mark. Two marks in a row give the mean time of a launch.
 *
 * Nothing tells when launches behind the last mark were over, so they are taken to have been until
 * a look finds the device idle, and each launch is marked for a good while from then on. Of periods
 * of less than LEARN_EACH_NS, chance takes some in which each launch is marked; the others are as
 * large a part of the time until they were seen to have ended.
 *
 * Where the driver cannot record an event behind all streams of a context (before CUDA 12.8, and
 * while the process captures a graph), each launch is followed by an event in its own stream.
 *
 * Thread-safe. No function waits for the device. Times are clock_steady_ns().
 */
#pragma once

#include "lock.h"
#include "pace.h"

#define IN_FLIGHT_MARKS 64

struct in_flight_mark {
	void *event;         /* NULL: there is none yet */
	const void *context; /* the event's */
	const void *stream;  /* NULL: the event is behind all streams of the context */
	uint64_t launches;   /* how many are before it */
	bool moves;          /* behind the next launch */
};

struct in_flight {
	struct lock lock;     /* over all that follows; words that are atomic are read without it */
	bool is_exact;        /* events tell when each period ended, short ones too */
	uint64_t launches;    /* ever; atomic */
	uint64_t marked;      /* the first so many are before a mark; atomic */
	uint64_t reached;     /* the device is through with the first so many; atomic */
	uint64_t reached_ns;  /* since about when; atomic */
	uint64_t pending_ns;  /* when a look last found a mark that was not reached; atomic */
	uint64_t marked_ns;   /* when a mark was last made that stays where it is, */
	uint64_t marked_at;   /* and how many launches there were then; atomic, both */
	uint64_t mean_ns;     /* of a launch's time on the device; atomic */
	uint64_t interval_ns; /* from one mark to the next; 0: MARK_LEAST_NS; atomic */
	uint64_t looked_ns;   /* when a launch looked last, and */
	uint64_t looked_at;   /* how many launches there were then; atomic, both */
	uint64_t by_streams_ns; /* when a mark behind all streams was last refused; 0: never; atomic
				 */
	uint32_t entered;       /* launches that the driver is being given; atomic */
	uint64_t each_until_ns; /* until when each launch is marked; atomic, as the next two */
	bool is_busy;           /* a period has begun, and was not seen to end */
	bool is_measured;       /* the period is, even if it turns out to be short */
	uint64_t began_ns;      /* the period; atomic, */
	uint64_t before;        /* and how many launches there were before it */
	void *begin;            /* the event at its begin, of the context that follows; or NULL */
	void *begin_context;
	bool begin_is_recorded;
	void *context;          /* of the last mark; NULL: there is none, or it is gone */
	int device;             /* a CUDA ordinal */
	const void *stream;     /* of the last launch; atomic */
	bool mixed;             /* there were others since the last mark; atomic */
	bool mixed_period;      /* and since the period's begin; atomic */
	uint64_t learned_ns;    /* when events told mean_ns last, */
	uint64_t measured_ns;   /* and when they told how long a short period was */
	uint64_t took_sum_ns;   /* of the last short periods that events measured, */
	uint64_t lasted_sum_ns; /* and the time from their begin until they were seen to have ended
				 */
	uint32_t head, tail;    /* marks from head on to before tail have yet to be reached, */
	struct in_flight_mark mark[IN_FLIGHT_MARKS]; /* modulo their number */
};

/* Before a launch: begins a period if there is none, which does not end before in_flight_left. */
void in_flight_begin(struct in_flight *it, const struct pace_work *work, uint64_t now_ns);

/* Behind a launch. at_once: a mark is recorded in any case; else now and then. */
void in_flight_submitted(struct in_flight *it, const struct pace_work *work, bool at_once,
			 uint64_t now_ns);

/* Behind in_flight_submitted, or where the driver did not take the launch. */
void in_flight_left(struct in_flight *it);

/* Before the thread waits for work: records a mark behind what has none, unless the last mark is
 * less than each_ns ago. */
void in_flight_mark(struct in_flight *it, uint64_t each_ns, uint64_t now_ns);

/* Whether the device has work in flight. The first call that finds none ends the period:
 * *ret_ended_ns is when the device was through with it, else 0. work: what is to be launched, or
 * NULL. marks: what was launched behind the last mark gets one now, and is in flight until that is
 * reached: if the device is idle already, the period seems to end only now. */
bool in_flight_look(struct in_flight *it, const struct pace_work *work, bool marks, uint64_t now_ns,
		    uint64_t *ret_ended_ns);

/* About how long the device will be at work on what is launched, ns, as of the last look. */
uint64_t in_flight_ahead_ns(const struct in_flight *it);

/* Begins a period for what the process has in flight, of which nothing is known: it counts as one
 * launch, which ends with all that the work's context has. From then on, events tell when each
 * period ended, as each moment counts where the device is handed on. */
void in_flight_adopt(struct in_flight *it, const struct pace_work *work, uint64_t now_ns);

/* Whether it is time to look again while the gang is open: two loads and a multiplication. */
bool in_flight_is_due(const struct in_flight *it, uint64_t now_ns);

/* The context is gone, and its events with it. */
void in_flight_end_context(struct in_flight *it, const void *context);
