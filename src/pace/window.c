/*
 * Windows: the time of many launches, measured at once. docs/design/pacing.md ("Windows") says when
 * a window ends, and how it corrects the charges.
 *
 * If one stream has all the launches, the events are recorded in that stream, and copies in other
 * streams do not matter. If several streams have launches, and a fence is not possible, the window
 * is of one stream. That is so with an old driver, during a capture, with several contexts in turn,
 * and after a kernel that never ends. Other streams' work that ran meanwhile was also charged
 * meanwhile, so the sum is right on average.
 *
 * A device has one window at a time in a process. The next window begins with the event that ends
 * the last, except where one of the two is of all streams and the other of one stream. A window
 * whose stream has no further launches is dropped after WINDOW_STALE_NS.
 *
 * Kernels that run concurrently take less time together than their samples say. Windows show that.
 * They scale all costs by the ratio of measured to charged time, while no neighbour has work on the
 * device. If the device was idle in a window, the idle time comes from the costs themselves, so the
 * window confirms the costs whatever they are. So the more idle time a window has, the less it
 * counts.
 */
#include "window.h"

#include "clock.h"
#include "relaxed.h"

static bool is_of(const struct window *window, const struct pace_work *work)
{
	const void *stream = RELAXED_LOAD(window->stream);

	return RELAXED_LOAD(window->context) == work->context &&
	       (!stream || stream == meter_stream(work));
}

/* Writes word by word, because is_good() reads without the lock. */
static void mark(struct span_mark *mark, const struct meter *meter, uint64_t now_ns)
{
	RELAXED_STORE(mark->charged, RELAXED_LOAD(meter->backlog.charged));
	RELAXED_STORE(mark->sure, RELAXED_LOAD(meter->backlog.sure));
	RELAXED_STORE(mark->idle_ns, backlog_idle_ns(&meter->backlog, now_ns));
}

/* For how long the device was idle in the open window, by learned costs. */
static uint64_t idle_ns(const struct meter *meter, uint64_t now_ns)
{
	uint64_t from_ns = RELAXED_LOAD(meter->window.from.idle_ns);
	uint64_t to_ns = backlog_idle_ns(&meter->backlog, now_ns);

	return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* Whether a window is open whose measurement will be of use. */
static bool is_good(const struct meter *meter, uint64_t now_ns)
{
	const struct window *window = &meter->window;
	uint64_t since_ns = meter_since(now_ns, RELAXED_LOAD(window->opened_ns));

	return RELAXED_LOAD(window->span) &&
	       meter_since(now_ns, RELAXED_LOAD(window->used_ns)) < WINDOW_STALE_NS &&
	       RELAXED_LOAD(window->breaks) == RELAXED_LOAD(meter->breaks) &&
	       idle_ns(meter, now_ns) * WINDOW_IDLE_PART <=
		       since_ns + WINDOW_IDLE_PART * WINDOW_IDLE_NS;
}

/* Whether the last window is too young for another in relaxed mode. On a device that is mostly
 * idle, windows would otherwise be opened one after another and measure nothing. */
static bool is_young(const struct meter *meter, uint64_t now_ns)
{
	uint64_t then_ns = RELAXED_LOAD(meter->window.opened_ns);

	return meter_relax_factor(meter) > 1 && meter_since(now_ns, then_ns) < WINDOW_YOUNG_NS;
}

static double within(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

static void store_scale(struct meter *meter)
{
	const struct window *window = &meter->window;
	double now = window->busy_ns / window->unscaled_ns;

	RELAXED_STORE(meter->scale, (uint32_t)(SCALE_ONE * within(now, SCALE_LEAST, SCALE_MOST)));
}

/* After a window without a measurement: moves the scale slowly back to 1. */
static void restore_scale(struct meter *meter)
{
	struct window *window = &meter->window;

	window->busy_ns += (window->unscaled_ns - window->busy_ns) / SCALE_BACK;
	store_scale(meter);
}

/* Whether the next window is to be of all streams, and can be. */
static bool is_for_all(const struct meter *meter, uint64_t now_ns)
{
	return meter_is_mixed(meter, now_ns) && RELAXED_LOAD(meter->stuck) <= 0 &&
	       !meter_mixes_contexts(meter, now_ns);
}

static bool begin(struct meter *meter, struct span *span, const struct pace_work *work,
		  uint64_t now_ns)
{
	bool fenced = is_for_all(meter, now_ns) && span_begin(span, work, true);

	if (meter_is_mixed(meter, now_ns))
		RELAXED_STORE(meter->fenced, fenced);
	return fenced || span_begin(span, work, false);
}

/* Under the window's lock, as the functions up to window_open(). */
static void start(struct meter *meter, struct span *span, const struct pace_work *work,
		  uint64_t now_ns)
{
	struct window *window = &meter->window;

	span->kind = SPAN_WINDOW;
	span->meter = meter;
	span->stream = span->fenced ? NULL : meter_stream(work);
	RELAXED_STORE(window->context, work->context);
	RELAXED_STORE(window->stream, span->stream);
	RELAXED_STORE(window->opened_ns, now_ns);
	RELAXED_STORE(window->used_ns, now_ns);
	RELAXED_STORE(window->launches, 0);
	RELAXED_STORE(window->span, span);
}

/* If no span is free, the next launch settles finished ones. */
static struct span *take(struct meter *meter, const struct pace_work *work)
{
	struct span *span = span_take(work->context);

	if (!span && !RELAXED_LOAD(meter->no_progress))
		RELAXED_STORE(meter->settle_at_ns, 0);
	return span;
}

/* Replaces the open window. If no span is free, the open window goes on. */
static bool restart(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct window *window = &meter->window;
	struct span *span = take(meter, work), *last = window->span;
	uint64_t breaks = RELAXED_LOAD(meter->breaks);

	if (!span)
		return false;
	if (!begin(meter, span, work, now_ns)) {
		span_drop(span);
		return false;
	}
	RELAXED_STORE(window->span, NULL);
	if (last)
		span_drop(last);
	mark(&window->from, meter, clock_steady_ns()); /* recording takes a while */
	RELAXED_STORE(window->breaks, breaks);
	start(meter, span, work, now_ns);
	return true;
}

/* Begins the next window where `last` ends, before `last` is closed. So each launch is in one of
 * the two, even a launch that another thread submits meanwhile and that is charged afterwards. */
static void start_behind(struct meter *meter, struct span *span, struct span *last,
			 const struct pace_work *work, uint64_t now_ns)
{
	struct window *window = &meter->window;

	span_follow(span, last);
	if (meter_is_mixed(meter, now_ns))
		RELAXED_STORE(meter->fenced, span->fenced);
	RELAXED_STORE(window->from.charged, last->to.charged);
	RELAXED_STORE(window->from.sure, last->to.sure);
	RELAXED_STORE(window->from.idle_ns, last->to.idle_ns);
	start(meter, span, work, now_ns);
}

/* Whether a large part of the open window is idle, by learned costs. */
static bool is_to_ask(const struct meter *meter, uint64_t now_ns)
{
	uint64_t since_ns = meter_since(now_ns, RELAXED_LOAD(meter->window.opened_ns));

	return idle_ns(meter, now_ns) * WINDOW_ASK_PART > since_ns;
}

/*
 * Records the end of the open window. Returns false if the window was dropped instead; otherwise
 * the caller closes the span. tells: the stream was busy from the window's begin until now.
 *
 * The mark is made after the event, as at the begin, because launches are charged once the driver
 * has them. A fence after a kernel that never ends would never be reached, so such a window is
 * dropped. If the device has not reached the window's begin, it is not idle in the window, whatever
 * costs say.
 */
static bool end(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool tells)
{
	struct window *window = &meter->window;
	struct span *span = window->span;
	uint64_t breaks = RELAXED_LOAD(meter->breaks);
	bool mixed = meter_is_mixed(meter, now_ns);
	bool never_idle = false;

	RELAXED_STORE(window->span, NULL);
	if (is_to_ask(meter, now_ns) && !meter_stalls(meter, now_ns)) {
		never_idle = !span_is_begun(span);
		now_ns = clock_steady_ns(); /* asking the driver takes a while */
	}
	if ((span->fenced && RELAXED_LOAD(meter->stuck) > 0) || !span_end(span, work)) {
		span_drop(span);
		return false;
	}
	span->alone = span->fenced || !mixed;
	if (!mixed) /* later work of that stream finishes after it */
		span->stream = meter_stream(work);
	span->from = window->from;
	mark(&span->to, meter, now_ns);
	if (never_idle)
		span->to.idle_ns = span->from.idle_ns;
	span->clear = tells && window->breaks == breaks;
	RELAXED_STORE(window->breaks, breaks); /* for the next window, if it begins here */
	RELAXED_STORE(window->launches, 0);
	span->due_ns = backlog_due_ns(&meter->backlog);
	return true;
}

/* Ends the window and begins the next there. If no span is free, the window goes on. */
static bool split(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct span *last = meter->window.span, *next = NULL;

	if (last->fenced == is_for_all(meter, now_ns)) {
		next = take(meter, work);
		if (!next)
			return false;
	}
	if (!end(meter, work, now_ns, true)) {
		if (next)
			span_drop(next);
		return false;
	}
	if (next)
		start_behind(meter, next, last, work, now_ns);
	span_close(last);
	return true;
}

/*
 * A window begins before a launch if the device has no work, and otherwise after a launch. So work
 * that was submitted before, to any stream, is left out at both ends.
 *
 * A window that seems to be idle for too long is ended, not dropped. The idle time comes from
 * learned costs, and the measurement shows whether they are too low.
 */
void window_open(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool was_idle)
{
	struct window *window = &meter->window;

	if (is_good(meter, now_ns) || (was_idle && is_young(meter, now_ns)) ||
	    !lock_try(&window->lock))
		return;
	if (!is_good(meter, now_ns)) {
		bool ends = window->span && RELAXED_LOAD(window->launches) > 0 &&
			    is_of(window, work) && window->breaks == RELAXED_LOAD(meter->breaks);

		if (ends)
			split(meter, work, now_ns);
		if (!ends || !window->span)
			restart(meter, work, now_ns);
	}
	lock_release(&window->lock);
}

bool window_reopen(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool at_once)
{
	struct window *window = &meter->window;
	bool begins;

	if (!lock_try(&window->lock))
		return false;
	begins = at_once || !window->span ||
		 (RELAXED_LOAD(window->launches) == 0 && span_is_begun(window->span));
	begins = begins && restart(meter, work, now_ns);
	lock_release(&window->lock);
	return begins;
}

/* Whether the window has enough work in it, or no more will come. */
static bool is_over(struct meter *meter, uint64_t now_ns)
{
	const struct window *window = &meter->window;
	int64_t charged = RELAXED_LOAD(meter->backlog.charged) - RELAXED_LOAD(window->from.charged);

	return RELAXED_LOAD(window->launches) >= WINDOW_LAUNCHES ||
	       charged >= (int64_t)WINDOW_NS * meter_relax_factor(meter) ||
	       meter_since(now_ns, RELAXED_LOAD(window->opened_ns)) >= WINDOW_LONG_NS ||
	       !bucket_is_open(meter->bucket);
}

/* Takes the lock only when the window is to end. Without it, a launch may be counted for another
 * window by mistake, which does no harm. */
void window_close_if_done(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct window *window = &meter->window;

	if (!RELAXED_LOAD(window->span) || !is_of(window, work))
		return;
	RELAXED_STORE(window->used_ns, now_ns);
	RELAXED_ADD(window->launches, 1);
	if (!is_over(meter, now_ns) || !lock_try(&window->lock))
		return;
	if (window->span && is_of(window, work) && is_over(meter, now_ns))
		split(meter, work, now_ns);
	lock_release(&window->lock);
}

bool window_split(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct window *window = &meter->window;
	bool done;

	if (!lock_try(&window->lock))
		return false;
	done = window->span && is_of(window, work) && RELAXED_LOAD(window->launches) > 0 &&
	       split(meter, work, now_ns);
	lock_release(&window->lock);
	return done;
}

/* If the stream has finished, the time between the events is only an upper bound of the device's.
 */
void window_cut(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool is_busy)
{
	struct window *window = &meter->window;
	struct span *span;

	if (!RELAXED_LOAD(window->span) || !lock_try(&window->lock))
		return;
	span = window->span;
	if (span && is_of(window, work) && RELAXED_LOAD(window->launches) > 0 &&
	    end(meter, work, now_ns, is_busy))
		span_close(span);
	lock_release(&window->lock);
}

/*
 * The scale is the ratio of measured to charged time, over the sums of the last SCALE_WINDOWS
 * windows. A mean of single ratios would be too high, because chance decides which work lies
 * between two events. No window counts for much more than others, because one launch with a very
 * wrong cost says nothing of the next. A short window counts for less, and makes less be forgotten.
 *
 * told: how much the window measured, 0 to 1. A window without a measurement moves the scale slowly
 * back to 1. A window that measured little nearly confirms a scale above 1, and never one below 1.
 * The device may have been busy when it was idle by its costs.
 */
static void learn_scale(struct meter *meter, int64_t busy_ns, int64_t seen_ns, double told)
{
	double unscaled = (double)seen_ns * SCALE_ONE / RELAXED_LOAD(meter->scale), busy, rest,
	       part;
	struct window *window = &meter->window;

	if (!lock_try(&window->lock))
		return;
	if (busy_ns >= 0 && seen_ns > 0) {
		busy = within((double)busy_ns / unscaled, SCALE_LEAST, SCALE_MOST);
		rest = window->busy_ns / window->unscaled_ns;
		rest = rest > 1 ? rest + (1 - rest) * SCALE_WINDOWS / SCALE_BACK : 1;
		busy = told * busy + (1 - told) * rest;
		unscaled = within(unscaled, 0, WINDOW_WEIGHS_NS);
		part = within(unscaled / (double)WINDOW_NS, 0, 1) / SCALE_WINDOWS;
		window->busy_ns += busy * unscaled - part * window->busy_ns;
		window->unscaled_ns += unscaled - part * window->unscaled_ns;
		store_scale(meter);
	} else {
		restore_scale(meter);
	}
	lock_release(&window->lock);
}

uint64_t window_scale(const struct meter *meter, uint64_t cost_ns)
{
	if (RELAXED_LOAD(meter->neighbours)) /* windows measure too little then */
		return cost_ns;
	return (uint64_t)((double)cost_ns * RELAXED_LOAD(meter->scale) / SCALE_ONE);
}

static int64_t idle_of(const struct span *span)
{
	int64_t idle = (int64_t)(span->to.idle_ns - span->from.idle_ns);

	return idle > 0 ? idle : 0; /* below 0: what counted as idle turned out to be busy */
}

/*
 * Returns the charge for a window in which the device worked `both` for the process and its
 * neighbours together. The process had at least half of it. Neighbours' time slices are whole in
 * one window and missing in the next, so this lower bound holds for the sum of windows, not for
 * each.
 */
static int64_t beside_neighbours(struct meter *meter, int64_t both, int64_t seen)
{
	int64_t owed = RELAXED_LOAD(meter->owed_ns) + both / 2 - seen;
	int64_t more = owed > WINDOW_OWED_NS ? owed - WINDOW_OWED_NS : 0;

	RELAXED_STORE(meter->owed_ns, owed > more ? owed - more : 0);
	return seen + more;
}

/*
 * How long the device worked for the process in a window, for which `seen` was charged; negative:
 * as long as that. The idle time by the sure costs is the most that the device can have been idle.
 * If the device did all that was charged, it was idle for less.
 */
static int64_t busy_of(const struct span *span, int64_t took, int64_t seen)
{
	int64_t idle = idle_of(span), least, most;
	int64_t unsure = seen - (span->to.sure - span->from.sure);

	if (!span->clear || idle * WINDOW_IDLE_PART > took)
		return span->alone && seen > 2 * took ? took : -1;
	least = took - idle;
	most = least + (unsure < 0 ? 0 : unsure < idle ? unsure : idle) + WINDOW_EVENT_SLACK_NS;
	if (RELAXED_LOAD(span->meter->neighbours))
		least = beside_neighbours(span->meter, least, seen);
	return seen < least ? least : seen < most ? seen : most;
}

/* How much a window measured: 1 if the device was never idle in it, 0 if it was idle for long. */
static double told_by(const struct span *span, int64_t took)
{
	return took > 0 ? within(1 - (double)idle_of(span) * WINDOW_IDLE_PART / (double)took, 0, 1)
			: 0;
}

int64_t window_settle(const struct span *span, uint64_t took_ns)
{
	int64_t took = meter_less(took_ns, WINDOW_EVENT_NS), from = span->from.charged,
		to = span->to.charged, busy = busy_of(span, took, to - from);
	struct meter *meter = span->meter;
	int64_t more = backlog_compare(&meter->backlog, from, to, busy);

	meter_correct(meter, more);
	if (!RELAXED_LOAD(meter->neighbours))
		learn_scale(meter, busy, to - from, told_by(span, took));
	return more;
}

void window_end_context(struct meter *meter, const void *context)
{
	struct window *window = &meter->window;

	if (!RELAXED_LOAD(window->span))
		return;
	lock_acquire(&window->lock);
	if (window->span && window->context == context) {
		span_drop(window->span);
		RELAXED_STORE(window->span, NULL);
	}
	lock_release(&window->lock);
}
