/* Inside pace/: what a process keeps of one device. */
#pragma once

#include "bucket.h"
#include "lock.h"
#include "spans.h"
#include "tally.h"
#include "words.h"

/*
 * What is measured at present (window.c). Written under its lock, which is only ever tried while
 * work is submitted: who does not get it goes on without. Words are read without it, too.
 */
struct window {
	struct lock lock;
	struct span *span;            /* NULL: none is open */
	const void *context, *stream; /* the latter as meter_stream has it, NULL: all streams */
	struct span_mark from;
	uint64_t opened_ns, used_ns;
	uint32_t launches; /* in it */
	uint64_t breaks;   /* the meter's, when it was opened */
	/* Of the last windows: what they found, and what costs said. */
	double busy_ns, untrimmed_ns;
};

/* A meter's words are atomic, and any thread's, but for those that cores_attach writes. */
struct meter {
	struct vgpu_region_bucket *bucket; /* NULL: the device is not in the slice */
	uint64_t *region_pct;
	uint32_t *region_most;       /* likewise, the most: vgpu_region_turn.cores_most */
	const struct turn *turn;     /* the process's seat in the device's turns; NULL: none */
	struct vgpu_hami_util *util; /* our slot's */
	struct window window;
	struct tally tally;
	uint64_t breaks;       /* what happened that makes a window say nothing */
	uint64_t sample_at_ns; /* when to sample something known again, or after so many charges */
	uint64_t settle_at_ns; /* when to see what is over, 0: at the next launch */
	uint64_t probed_at_ns; /* and neighbours */
	uint64_t asked_at_ns;  /* when the driver was asked whether it is busy */
	uint64_t patience_ns;  /* PATIENCE_LEAST_NS to PATIENCE_MORE_NS */
	uint64_t mixed_at_ns;  /* when streams last took turns */
	uint64_t stalls_at_ns; /* when the one stream was last made to wait (waits.c) */
	uint64_t contexts_at_ns; /* when contexts last did */
	uint64_t threads_at_ns;  /* when threads last did */
	const void *context;     /* of the last that was given work, and */
	const void *stream;      /* meter_stream of the last that was given work */
	const void *thread;      /* whose it was: the address of something it alone has */
	uint64_t paid_from_ns, paid_until_ns; /* what was paid for of unknown launches' time, */
	const void *paid_stream;              /* as they were settled; the last one's */
	int64_t prepaid_ns; /* charged for waits that timed out, and not refunded yet */
	int64_t sampled;    /* what had been charged when something known was sampled */
	int64_t owed_ns;    /* what windows beside neighbours found too little, by their least */
	/* What device_util says (pacer.c). The process is at work from a launch until it has waited
	 * for all that it launched. */
	uint64_t work_at_ns;    /* since when it is at work; 0: it is not */
	uint64_t work_ns;       /* for how long it was before that, in all */
	uint64_t shown_work_ns; /* of that and the time since, as the figure was made */
	uint64_t shown_pct;     /* the figure while it is at work */
	int64_t shown_ns;       /* what this process had been charged by then */
	uint64_t turn_ns; /* when a thread that had waited for the bucket went, 0: it is through */
	uint64_t let_go_ns;  /* when something that was held went last, while anything was stuck */
	uint64_t anew_at_ns; /* when a window may begin behind a wait again (waits.c) */
	uint64_t doubt_ns;   /* for how long waits took longer than costs say */
	uint64_t doubted_at_ns;
	int32_t entered;     /* launches that are on their way through the driver */
	int32_t idle_waits;  /* above 0: waits are for all that the device has, mostly */
	int32_t rounds;      /* how often somebody waited in vain for what is not over yet */
	int32_t awaited;     /* so many launches go at once yet: something waits for them */
	int32_t given_up;    /* spans that nobody waits for any more, and that are not over yet; */
	int32_t stuck;       /* with those of kernels that are known to wait */
	uint32_t trim;       /* what costs are multiplied by (window.c) */
	uint32_t neighbours; /* have work there: so many probes until that is no longer believed */
	struct pace_quota quota;
	bool ganged;   /* launches go by a gang, and take no turns */
	bool limited;  /* the last launch was */
	bool futile;   /* a launch waited for a span, and none was over, nor is since then */
	bool fenced;   /* the last window that should be of all streams was */
	bool was_busy; /* what the driver said at asked_at_ns */
};

/* How long ago that was. A thread may have read the clock before another did, and come after it. */
static inline uint64_t meter_since(uint64_t now_ns, uint64_t then_ns)
{
	return now_ns > then_ns ? now_ns - then_ns : 0;
}

/* The process's streams took turns a moment ago. */
static inline bool meter_is_mixed(const struct meter *meter, uint64_t now_ns)
{
	uint64_t then_ns = LOAD(meter->mixed_at_ns);

	return meter_since(now_ns, then_ns) < METER_MIXED_NS;
}

/* And nothing can be told of all of them at once. */
static inline bool meter_is_blind(const struct meter *meter, uint64_t now_ns)
{
	return !LOAD(meter->fenced) && meter_is_mixed(meter, now_ns);
}

/* Its one stream may wait for something while the device is free: that it is not through with its
 * work says nothing of the device. */
static inline bool meter_stalls(const struct meter *meter, uint64_t now_ns)
{
	return meter_since(now_ns, LOAD(meter->stalls_at_ns)) < METER_MIXED_NS;
}

/* Its contexts took turns a moment ago. */
static inline bool meter_mixes_contexts(const struct meter *meter, uint64_t now_ns)
{
	return meter_since(now_ns, LOAD(meter->contexts_at_ns)) < METER_MIXED_NS;
}

/* Its threads took turns a moment ago. */
static inline bool meter_mixes_threads(const struct meter *meter, uint64_t now_ns)
{
	return meter_since(now_ns, LOAD(meter->threads_at_ns)) < METER_MIXED_NS;
}

/* Whether processes of other slices, or of none, have work on the device. */
static inline bool meter_others(const struct meter *meter)
{
	return LOAD(meter->neighbours) != 0;
}

/* Which stream of its context it is: per-thread default streams have one handle for all threads,
 * the legacy one has two. */
const void *meter_stream(const struct pace_work *work);

/* Whether the calling thread gave it work last. */
bool meter_is_own(const struct meter *meter);

/* The driver took a launch. */
void meter_note_stream(struct meter *meter, const struct pace_work *work, uint64_t now_ns);

/* Whether the stream is at work, as the driver says. Where costs say that all is done, it is not:
 * nothing was submitted since, so the device was at work all the time. */
bool meter_is_busy(struct meter *meter, const struct pace_work *work, uint64_t now_ns);

/* The window that is open tells nothing: a launch of unknown cost, a pause, costs that turn out
 * wrong. */
static inline void meter_break(struct meter *meter)
{
	ADD(meter->breaks, 1);
}

/*
 * The factor of relaxed mode, 1 outside it. While the bucket has more than METER_CREDIT_NS of
 * credit, no thread is about to wait for the bucket, and a late measurement does little harm. So
 * windows and leases are longer by the factor, and samples and questions to the driver rarer. A
 * program that feeds the device with all of a processor's time would pay for them with its own
 * time. Relaxed mode ends where waits are longer than costs explain (waits.c): the bucket may be
 * full because the costs are wrong.
 */
static inline unsigned meter_relax_factor(const struct meter *meter)
{
	return bucket_level(meter->bucket) > METER_CREDIT_NS &&
			       LOAD(meter->doubt_ns) < METER_DOUBT_NS
		       ? METER_RELAXED
		       : 1;
}

/* What looks like chance, made of the time: 0 to below_ns, that is less than 4 s. */
static inline uint64_t meter_chance(uint64_t now_ns, uint64_t below_ns)
{
	return (now_ns * 0x9e3779b97f4a7c15u >> 32) * below_ns >> 32;
}

/* What of a charge is sure to keep the device busy: windows that found costs too low may have taken
 * for work what was none. */
static inline uint64_t meter_sure(uint64_t cost_ns, uint64_t charge_ns)
{
	return charge_ns < cost_ns ? charge_ns : cost_ns;
}

/* To the slice only. */
static inline void meter_charge_slice(struct meter *meter, uint64_t cost_ns, uint64_t now_ns)
{
	bucket_charge(meter->bucket, cost_ns, now_ns);
}

/* To the slice, and to the process. sure_ns: as in tally.h. */
static inline void meter_charge(struct meter *meter, uint64_t cost_ns, uint64_t sure_ns,
				uint64_t now_ns)
{
	meter_charge_slice(meter, cost_ns, now_ns);
	tally_charge(&meter->tally, cost_ns, sure_ns, now_ns);
}

static inline void meter_correct(struct meter *meter, int64_t more_ns)
{
	bucket_correct(meter->bucket, more_ns);
	tally_correct(&meter->tally, more_ns);
}

/* A span's time, less what the events themselves take. */
static inline int64_t meter_less(uint64_t ns, uint64_t by_ns)
{
	return ns > by_ns ? (int64_t)(ns - by_ns) : 0;
}
