/* Inside pace/: a meter is a process's state for one device: charges, measurements, and what other
 * work there is. */
#pragma once

#include "backlog.h"
#include "bucket.h"
#include "hash.h"
#include "lock.h"
#include "relaxed.h"
#include "spans.h"

/*
 * The open window (window.c). A thread that begins or ends it holds its lock, and records an event
 * meanwhile. A launch only tries the lock, and goes on without the window if another thread has it.
 * Launches add to `launches` and set `used_ns` without the lock.
 */
struct window {
	struct lock lock;
	struct span *span;            /* NULL: none is open */
	const void *context, *stream; /* stream: meter_stream(); NULL: all streams */
	struct span_mark from;
	uint64_t opened_ns, used_ns;
	uint32_t launches; /* in the window */
	uint64_t breaks;   /* meter->breaks when the window was opened */
	/* Sums of the last windows: measured time, and charged time without the scale. */
	double busy_ns, unscaled_ns;
};

#define SCALE_ONE (1u << 16)

/* Words are atomic, and any thread writes them. Two kinds are not: those that cores_attach()
 * writes, and the three paid_ words, which are under `paying`. */
struct meter {
	struct vgpu_region_bucket *bucket; /* NULL: the device is not in the slice */
	uint64_t *region_pct;              /* the region's quota, in percent */
	uint32_t *region_most;       /* the region's burst limit: vgpu_region_turn.cores_most */
	const struct turn *turn;     /* the process's seat in the device's turns; NULL: none */
	struct vgpu_hami_util *util; /* the process's slot's */
	struct window window;
	struct backlog backlog;
	uint64_t breaks;         /* counts events that make an open window useless */
	uint64_t sample_at_ns;   /* when a known cost may be sampled again */
	uint64_t settle_at_ns;   /* when to settle finished spans; 0: at the next launch */
	uint64_t probed_at_ns;   /* when neighbours were last looked for */
	uint64_t asked_at_ns;    /* when the driver was last asked whether the stream is busy */
	uint64_t patience_ns;    /* PATIENCE_LEAST_NS to PATIENCE_MORE_NS */
	uint64_t mixed_at_ns;    /* when a launch last went to another stream than the one before */
	uint64_t stalls_at_ns;   /* when the only stream was last made to wait (sync.c) */
	uint64_t contexts_at_ns; /* when a launch last came from another context */
	uint64_t threads_at_ns;  /* when a launch last came from another thread */
	const void *context;     /* of the last launch */
	const void *stream;      /* of the last launch, meter_stream() */
	const void *thread;      /* of the last launch: the address of a thread-local variable */
	struct lock paying;      /* held for a few instructions */
	uint64_t paid_from_ns, paid_until_ns; /* the time paid for launches of unknown cost, */
	const void *paid_stream;              /* and the stream of the last of them */
	int64_t prepaid_ns; /* charged for waits that timed out, and not refunded yet */
	int64_t sampled;    /* backlog.charged when a known cost was last sampled */
	int64_t owed_ns; /* what windows with neighbours charged too little, by their lower bound */
	/* For device_util (utilisation.c). The process is at work from a launch until it has waited
	 * for everything that it launched. */
	uint64_t work_at_ns;    /* since when it is at work; 0: it is not */
	uint64_t work_ns;       /* for how long it was at work before that */
	uint64_t shown_work_ns; /* its time at work when the figure was made */
	uint64_t shown_pct;     /* the figure, while it is at work */
	int64_t shown_ns;       /* what it had been charged when the figure was made */
	uint64_t
		charging_ns; /* when a thread that waited for the bucket was admitted; 0: charged */
	uint64_t let_go_ns;  /* when a launch that had waited was last admitted while `stuck` was
				above 0 */
	uint64_t next_window_at_ns; /* when a window may begin after a wait again (sync.c) */
	uint64_t unexplained_ns; /* by how much waits took longer than costs say; falls with time */
	uint64_t unexplained_at_ns; /* when unexplained_ns was last changed */
	int32_t entered;            /* launches inside the driver's call */
	int32_t idle_waits;         /* above 0: most waits are for all work on the device */
	int32_t timeouts;    /* waits that ended without success, whose work has not finished */
	int32_t awaited;     /* so many further launches go at once: a kernel may wait for them */
	int32_t given_up;    /* spans that were given up and have not finished (overdue.c) */
	int32_t stuck;       /* given_up, and the spans of kernels that wait for launches */
	uint32_t scale;      /* learned costs are multiplied by scale / SCALE_ONE (window.c) */
	uint32_t neighbours; /* 0: none have work; else probes until that is no longer assumed */
	struct pace_quota quota;
	bool ganged;      /* a gang of several devices paces launches, by what is assured */
	bool limited;     /* the last launch had a limit */
	bool no_progress; /* a launch waited for a span, and no span has finished since then */
	bool fenced;      /* the last attempt to open a window of all streams succeeded */
	bool was_busy;    /* what the driver answered at asked_at_ns */
};

/* now_ns - then_ns, or 0 if then_ns is later: another thread may have read the clock later. */
static inline uint64_t meter_since(uint64_t now_ns, uint64_t then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

/* Whether launches went to several streams a moment ago. */
static inline bool meter_is_mixed(const struct meter *meter, uint64_t now_ns)
{
	uint64_t then_ns = RELAXED_LOAD(meter->mixed_at_ns);

	return meter_since(now_ns, then_ns) < METER_MIXED_NS;
}

/* Whether launches went to several streams a moment ago, and no window can cover all streams. */
static inline bool meter_is_blind(const struct meter *meter, uint64_t now_ns)
{
	return !RELAXED_LOAD(meter->fenced) && meter_is_mixed(meter, now_ns);
}

/* Whether the process's only stream may wait for something while the device is idle: then
 * unfinished work does not mean that the device is busy. */
static inline bool meter_stalls(const struct meter *meter, uint64_t now_ns)
{
	return meter_since(now_ns, RELAXED_LOAD(meter->stalls_at_ns)) < METER_MIXED_NS;
}

/* Whether launches came from several contexts a moment ago. */
static inline bool meter_mixes_contexts(const struct meter *meter, uint64_t now_ns)
{
	return meter_since(now_ns, RELAXED_LOAD(meter->contexts_at_ns)) < METER_MIXED_NS;
}

/* Whether launches came from several threads a moment ago. */
static inline bool meter_mixes_threads(const struct meter *meter, uint64_t now_ns)
{
	return meter_since(now_ns, RELAXED_LOAD(meter->threads_at_ns)) < METER_MIXED_NS;
}

/* Whether processes of other slices, or of none, have work on the device. */
static inline bool meter_others(const struct meter *meter)
{
	return RELAXED_LOAD(meter->neighbours) != 0;
}

/* For a process that has not measured anything, or waited for anything. */
void meter_reset(struct meter *meter);

/* Identifies the stream of a launch within its context. Per-thread default streams have one handle
 * for all threads, and the legacy default stream has two handles. */
const void *meter_stream(const struct pace_work *work);

/* Whether the last launch was the calling thread's. */
bool meter_is_own(const struct meter *meter);

/* After the driver has accepted a launch. */
void meter_note_stream(struct meter *meter, const struct pace_work *work, uint64_t now_ns);

/* Whether the stream has unfinished work, by the driver's answer. If it has, although costs say
 * that all work has finished, the device was busy all the time, and the backlog is corrected. */
bool meter_is_busy(struct meter *meter, const struct pace_work *work, uint64_t now_ns);

/* Makes the open window useless, because of a launch of unknown cost, a pause, or costs that turn
 * out wrong. */
static inline void meter_break(struct meter *meter)
{
	RELAXED_ADD(meter->breaks, 1);
}

/* The factor of relaxed mode (docs/design/pacing.md), 1 outside it. The mode also ends where waits
 * are longer than costs explain (sync.c): the bucket may be full because the costs are wrong. */
static inline unsigned meter_relax_factor(const struct meter *meter)
{
	return bucket_level(meter->bucket) > METER_CREDIT_NS &&
			       RELAXED_LOAD(meter->unexplained_ns) < METER_UNEXPLAINED_NS
		       ? METER_RELAXED
		       : 1;
}

/* A pseudo-random number from 0 to below_ns, made of the time. below_ns is less than 4 s. */
static inline uint64_t meter_chance(uint64_t now_ns, uint64_t below_ns)
{
	return (hash_word(now_ns) >> 32) * below_ns >> 32;
}

/* The part of a charge that certainly keeps the device busy. A scale above 1 is not certain,
 * because windows may have counted idle time as busy. */
static inline uint64_t meter_sure(uint64_t cost_ns, uint64_t charge_ns)
{
	return charge_ns < cost_ns ? charge_ns : cost_ns;
}

/* Charges the slice and the process. sure_ns: as in backlog.h. */
static inline void meter_charge(struct meter *meter, uint64_t cost_ns, uint64_t sure_ns,
				uint64_t now_ns)
{
	bucket_charge(meter->bucket, cost_ns, now_ns);
	backlog_charge(&meter->backlog, cost_ns, sure_ns, now_ns);
}

static inline void meter_correct(struct meter *meter, int64_t more_ns)
{
	bucket_correct(meter->bucket, more_ns);
	backlog_correct(&meter->backlog, more_ns);
}

/* A span's time less by_ns, the time of the events themselves; not below 0. */
static inline int64_t meter_less(uint64_t ns, uint64_t by_ns)
{
	return ns > by_ns ? (int64_t)(ns - by_ns) : 0;
}
