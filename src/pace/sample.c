/*
 * A sample is an event before a launch and one after it. docs/design/pacing.md says which launches
 * are sampled.
 *
 * On a busy device, the time between the events is the kernel's. On an idle device it includes the
 * time that the device waited for the launch. This time is known only when the driver's call
 * returns, which takes longer than short kernels do, so it is subtracted. If the device became idle
 * during the call, the moment is unknown, and the sample gives only a lower and an upper bound.
 *
 * Some launches return while the device already works on them, as those of graphs do, or when they
 * have finished, as with CUDA_LAUNCH_BLOCKING. Then the device has not waited for so long. Other
 * launches are slow because the driver was not called for a while. Work that is unfinished after
 * such a launch may be work before it or the launch itself. So a known cost stands, as long as it
 * is possible.
 *
 * A sample may contain other streams' work. Costs lean to the low side where no window can correct
 * that (meter_is_blind()).
 */
#include "sample.h"

#include "clock.h"
#include "overdue.h"
#include "relaxed.h"

/* -- when ------------------------------------------------------------------------------------- */

bool sample_is_due(const struct meter *meter, const struct cost *cost, uint64_t now_ns)
{
	return now_ns >= RELAXED_LOAD(cost->sample_at_ns) &&
	       now_ns >= RELAXED_LOAD(meter->sample_at_ns);
}

/* Chance chooses among due launches, because the first due launch may always be of one kind, such
 * as the first after each wait. */
static bool is_chosen(uint64_t now_ns)
{
	return meter_chance(now_ns, 1u << SAMPLE_DUE_LOG2) == 0;
}

/* Two samples of known costs are apart by time or by charges: launches may come all at once, and
 * costs may have changed. */
static bool is_sampled(const struct meter *meter, const struct cost *cost, uint64_t now_ns)
{
	int64_t apart_ns = (int64_t)SAMPLE_APART_NS * meter_relax_factor(meter);

	if (cost_waits(cost))
		return true;
	if (now_ns < RELAXED_LOAD(cost->sample_at_ns))
		return false;
	if (cost_is_new(cost))
		return true;
	return is_chosen(now_ns) &&
	       (now_ns >= RELAXED_LOAD(meter->sample_at_ns) ||
		RELAXED_LOAD(meter->backlog.charged) - RELAXED_LOAD(meter->sampled) >= apart_ns);
}

/* Samples are not at even distances. Otherwise work that recurs, such as a neighbour's time slice,
 * would always be met at the same place. */
static void plan(struct meter *meter, struct cost *cost, uint64_t now_ns)
{
	uint64_t spread_ns = meter_chance(now_ns, SAMPLE_SPREAD_NS);
	unsigned relax = meter_relax_factor(meter);

	if (cost_is_new(cost)) {
		RELAXED_STORE(cost->sample_at_ns, now_ns + SAMPLE_NEW_NS);
		return;
	}
	RELAXED_STORE(cost->sample_at_ns, now_ns + (SAMPLE_EVERY_NS + spread_ns) * relax);
	RELAXED_STORE(meter->sample_at_ns, now_ns + SAMPLE_APART_NS * relax);
	RELAXED_STORE(meter->sampled, RELAXED_LOAD(meter->backlog.charged));
}

/* -- what ------------------------------------------------------------------------------------- */

/*
 * Returns about how many ns of work are before the launch; 0 if the device is idle. The backlog
 * says how much there is, and the driver says whether there is none. If the device will be idle
 * within SAMPLE_SOON_NS, the driver is asked several times, because samples on an idle device give
 * the most information. On a busy device, a cost that is too low would be confirmed where launches
 * take longer than kernels.
 */
static uint64_t ahead_ns(const struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	uint64_t ns = backlog_ahead_ns(&meter->backlog, now_ns);

	for (unsigned i = 0; i < SAMPLE_ASKS && ns < SAMPLE_SOON_NS; i++)
		if (!pace_driver->is_busy(work))
			return 0;
	return ns > SAMPLE_AHEAD_NS ? ns : SAMPLE_AHEAD_NS;
}

struct span *sample_begin(struct meter *meter, struct cost *cost, const struct pace_work *work,
			  uint64_t now_ns)
{
	struct span *span;

	if (!cost || !is_sampled(meter, cost, now_ns))
		return NULL;
	span = span_take(work->context);
	if (!span)
		return NULL;
	span->ahead_ns = ahead_ns(meter, work, now_ns);
	if (!span_begin(span, work, false)) {
		span_drop(span);
		return NULL;
	}
	plan(meter, cost, now_ns);
	span->kind = SPAN_SAMPLE;
	span->begun_ns = clock_steady_ns();
	span->stream = meter_stream(work);
	span->meter = meter;
	span->cost = cost;
	span->what = work->what;
	return span;
}

/* Whether the device reached the sample's first event before the launch was submitted. The driver
 * says so a moment later, so it is asked up to `asks` times. */
static bool has_begun(const struct span *sample, unsigned asks)
{
	while (asks--)
		if (span_is_begun(sample))
			return true;
	return false;
}

/* Notes the least and the most time for which the device waited for the launch after the sample's
 * first event. The device does not wait for this process while it works for neighbours. If the
 * driver's call was slow, it is not known how much of the call came before the launch, so the
 * least is 0. */
static void note_wait(struct span *sample, uint64_t call_ns, bool waited, bool slow)
{
	uint64_t ahead = sample->ahead_ns;
	bool much = ahead > SAMPLE_AHEAD_NS && ahead >= call_ns;

	if (ahead)
		waited = waited && !much && has_begun(sample, 1);
	else if (meter_others(sample->meter))
		waited = waited && has_begun(sample, SAMPLE_ASKS_BEGUN);
	sample->waited_most_ns = waited ? call_ns : 0;
	sample->waited_least_ns = waited && !slow && call_ns > ahead ? call_ns - ahead : 0;
}

bool sample_end(struct span *sample, const struct pace_work *work, bool unknown, uint64_t now_ns)
{
	struct meter *meter = sample->meter;
	uint64_t call_ns = meter_since(now_ns, sample->begun_ns);
	bool at_first = !RELAXED_LOAD(sample->cost->samples); /* which may load it */
	bool slow = !at_first && call_ns >= SAMPLE_CALL_NS;
	bool waited = at_first || (!sample->what.graph && (!slow || pace_driver->is_busy(work)));

	if (!span_end(sample, work)) {
		span_drop(sample);
		return false;
	}
	note_wait(sample, call_ns, waited, slow);
	sample->unknown = unknown;
	sample->at_once = unknown && span_is_begun(sample);
	if (unknown)
		RELAXED_STORE(meter->settle_at_ns, 0);
	sample->due_ns = unknown ? 0 : backlog_due_ns(&meter->backlog);
	sample->closed_ns = now_ns;
	sample->to.sure = RELAXED_LOAD(meter->backlog.sure);
	if (cost_waits(sample->cost))
		overdue_mark_spinner(sample);
	span_close(sample);
	return true;
}

static uint64_t less(uint64_t ns, uint64_t by_ns)
{
	int64_t left = meter_less(ns, by_ns);

	return left > SAMPLE_LEAST_NS ? (uint64_t)left : SAMPLE_LEAST_NS;
}

/* Returns the kernel's time in ns: the known cost if the sample's bounds allow it, else the bound
 * that is next to it. Without a known cost, it is the middle between the bounds. */
static uint64_t kernel_ns(const struct span *span, uint64_t took_ns)
{
	bool idle = span->waited_most_ns != 0;
	uint64_t most_events_ns = idle ? EVENT_IDLE_NS : EVENT_MOST_NS,
		 least_events_ns = idle ? EVENT_IDLE_NS : EVENT_LEAST_NS;
	uint64_t least_ns = less(took_ns, most_events_ns + span->waited_most_ns);
	uint64_t most_ns = less(took_ns, least_events_ns + span->waited_least_ns);
	uint64_t known_ns = cost_ns(span->cost);

	if (idle && took_ns < EVENT_IDLE_NS + span->waited_least_ns + (uint64_t)SAMPLE_LEAST_NS)
		return less(took_ns, EVENT_MOST_NS); /* the launch waited for it */
	if (known_ns == COST_UNKNOWN)
		return (least_ns + most_ns) / 2;
	return known_ns < least_ns ? least_ns : known_ns > most_ns ? most_ns : known_ns;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Returns which part of a launch's time is not charged yet. The launch had no known cost; its
 * span took took_ns, with the kernel in the last `ns` of it. Threads' first launches may run side
 * by side in their streams, and the spans of all contain the same time, which is charged once.
 * Called with the meter's `paying` lock. */
static uint64_t unpaid_ns_locked(struct meter *meter, const struct span *span, uint64_t took_ns,
				 uint64_t ns)
{
	uint64_t until_ns = span->begun_ns + took_ns, from_ns = until_ns - ns;
	uint64_t paid_from_ns = meter->paid_from_ns, paid_until_ns = meter->paid_until_ns;
	bool beside = span->at_once && meter->paid_stream != span->stream;

	if (until_ns < paid_from_ns && paid_until_ns) /* before all of that */
		return ns;
	if (until_ns > paid_until_ns)
		meter->paid_stream = span->stream;
	if (from_ns > paid_until_ns) {
		meter->paid_from_ns = from_ns;
		meter->paid_until_ns = until_ns;
		return ns;
	}
	meter->paid_from_ns = least(from_ns, paid_from_ns);
	meter->paid_until_ns = most(until_ns, paid_until_ns);
	if (!beside)
		return ns;
	return ns - (least(until_ns, paid_until_ns) - most(from_ns, paid_from_ns));
}

static uint64_t unpaid_ns(const struct span *span, uint64_t took_ns, uint64_t ns)
{
	struct meter *meter = span->meter;

	lock_acquire(&meter->paying);
	ns = unpaid_ns_locked(meter, span, took_ns, ns);
	lock_release(&meter->paying);
	return ns;
}

int64_t sample_settle(const struct span *span, uint64_t took_ns, bool waited)
{
	bool measured = took_ns != SPANS_NONE;
	uint64_t ns = measured ? kernel_ns(span, took_ns) : SAMPLE_BLIND_NS;
	struct cost *cost = span->cost;
	int64_t more = 0;

	if (span->unknown) {
		more = (int64_t)(measured ? unpaid_ns(span, took_ns, ns) : ns);
		meter_correct(span->meter, more);
	}
	if (!measured)
		return more;
	if (waited)
		cost_learn_wait(cost, &span->what);
	else if (cost_waits(cost))
		cost_unlearn_wait(cost, &span->what, ns < OVERDUE_WAITED_NS ? 0 : ns);
	else
		cost_learn(cost, &span->what, ns, meter_is_blind(span->meter, clock_steady_ns()));
	return more;
}
