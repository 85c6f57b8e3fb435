#include "lease.h"

#include "clock.h"
#include "pace.h"
#include "relaxed.h"
#include "sample.h"
#include "trace.h"
#include "window.h"

static PACE_OF_THREAD struct lease {
	struct meter *meter; /* of the lease's device */
	const void *context; /* the lease is for launches to this context */
	const void *stream;  /* and to this stream, by the program's handle */
	bool per_thread;     /* whether the stream's handle 0 is the per-thread default stream */
	uint64_t at_ns;      /* the last launch, clock_steady_ns() */
	uint64_t call_ns;    /* the driver's time for a launch */
	uint64_t left_ns;    /* cost of launches that may still be made in this part */
	uint64_t gap_ns;     /* the longest pause between two launches */
	uint64_t until_ns;   /* when the lease ends, clock_steady_ns() */
	uint32_t parts;      /* parts that follow when this one is charged */
	uint32_t part;       /* launches in a part */
	uint32_t left;       /* launches of this part that may still be made */
	struct backlog_many many; /* launches of this part that are not charged */
} lease;

static PACE_OF_THREAD uint32_t launches; /* the thread's, counted only as far as they matter */

/* As pace_is_open(), except that of the thread's own counter only a wait for work ends a lease. */
static bool words_let_go(void)
{
	const int32_t *recent_kernel = __atomic_load_n(&pace_words.recent_leased, __ATOMIC_ACQUIRE);

	return pace_until_check > PACE_RECHECK / 2 && RELAXED_LOAD(*recent_kernel) == PACE_RECENT &&
	       RELAXED_LOAD(*RELAXED_LOAD(pace_words.status)) != VGPU_SLOT_SUSPENDED;
}

bool pace_has_lease(void)
{
	return lease.left || lease.parts;
}

static bool is_for(const void *context, const void *stream, bool per_thread)
{
	return stream == lease.stream && per_thread == lease.per_thread &&
	       (!context || context == lease.context);
}

static uint64_t part_ns(const struct meter *meter)
{
	uint64_t most_ns = LEASE_NS * (launches / LEASE_AFTER),
		 part_ns = (uint64_t)bucket_room(meter->bucket) / LEASE_PART;

	if (most_ns > LEASE_MOST_NS)
		most_ns = LEASE_MOST_NS;
	return part_ns < most_ns ? part_ns : most_ns;
}

static uint32_t unpaid(void)
{
	return lease.part - lease.left;
}

static void pay(void)
{
	struct meter *meter = lease.meter;

	bucket_charge(meter->bucket, lease.many.charged_ns, lease.at_ns);
	trace_write_of(TRACE_CHARGED_MANY, meter->bucket, (int64_t)lease.many.charged_ns, unpaid());
	backlog_charge_many(&meter->backlog, &lease.many, lease.at_ns);
	RELAXED_ADD(meter->window.launches, unpaid());
	launches += launches < METER_RELAXED * LEASE_AFTER ? unpaid() : 0;
}

/* Whether the lease goes on with its next part, for a launch of that cost. The launches of the
 * last part are charged, and the bucket is not asked. */
static bool goes_on(uint64_t ns)
{
	if (!lease.parts || meter_relax_factor(lease.meter) == 1)
		return false;
	lease.parts--;
	pay();
	lease.left = lease.part;
	lease.left_ns = part_ns(lease.meter);
	lease.many = backlog_many_begin(&lease.meter->backlog);
	return ns <= lease.left_ns;
}

bool pace_lease(const void *context, const void *stream, bool per_thread,
		const struct cost_of *what)
{
	const struct cost *cost;
	uint64_t ns, charge_ns, now_ns;

	if (!pace_has_lease() || !is_for(context, stream, per_thread) || !words_let_go())
		return false;
	cost = cost_find(what);
	ns = cost_ns(cost);
	if (ns == COST_UNKNOWN || cost_is_new(cost))
		return false;
	now_ns = clock_steady_ns();
	if (now_ns - lease.at_ns > lease.gap_ns || now_ns > lease.until_ns ||
	    sample_is_due(lease.meter, cost, now_ns) ||
	    !backlog_many_is_alone(&lease.meter->backlog, &lease.many) ||
	    ((ns > lease.left_ns || !lease.left) && !goes_on(ns)))
		return false;
	lease.left--;
	lease.left_ns -= ns;
	lease.at_ns = now_ns;
	charge_ns = window_scale(lease.meter, ns);
	backlog_many_add(&lease.many, charge_ns, meter_sure(ns, charge_ns), now_ns + lease.call_ns);
	return true;
}

/* No lease is given while spans are overdue or kernels wait for launches, because each launch
 * counts then. None is given either while launches go to several streams: no thread alone knows
 * then when the device is idle, so each launch asks. */
void lease_take(struct meter *meter, const struct pace_work *work, uint64_t at_ns, uint64_t now_ns)
{
	unsigned relax = meter_relax_factor(meter), seniority = launches / LEASE_AFTER,
		 times = seniority < relax ? seniority : relax;
	bool barred = RELAXED_LOAD(meter->stuck) > 0 || !bucket_is_open(meter->bucket) ||
		      meter_is_mixed(meter, at_ns);

	if (seniority < METER_RELAXED)
		launches++;
	if (!seniority || barred)
		return;
	lease = (struct lease){
		.meter = meter,
		.context = work->context,
		.stream = work->stream,
		.per_thread = work->per_thread,
		.at_ns = at_ns,
		.gap_ns = LEASE_GAP_NS * times,
		.until_ns = now_ns + GATE_LOOK_NS,
		.call_ns = now_ns - at_ns,
		.left_ns = part_ns(meter),
		.parts = relax > 1 ? LEASE_PARTS - 1 : 0,
		.part = LEASE_LAUNCHES * times,
		.left = LEASE_LAUNCHES * times,
		.many = backlog_many_begin(&meter->backlog),
	};
}

void lease_return(void)
{
	if (unpaid())
		pay();
	lease.parts = lease.part = lease.left = 0;
}

void lease_forked(void)
{
	lease = (struct lease){.part = 0};
	launches = 0;
}
