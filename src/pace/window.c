/*
 * Windows: an event before, or behind, one launch and one behind a later one, when WINDOW_NS have
 * been charged in between. If the process always had work submitted meanwhile, as far as costs
 * tell, the device was busy all the time from one to the other, and what was charged is corrected
 * by that. Where the device was idle in between, costs stand.
 *
 * Where one stream has all the launches, the events are of that stream, and come when they are
 * over, whatever copies the host has under way in others. Where streams take turns, they are
 * fences, behind all that all streams of the context have been given. If there can be none (an old
 * driver, a capture that is going on, contexts that take turns, a kernel that runs on and on), the
 * window is of one stream, too. Other streams' work that ran meanwhile was charged meanwhile, so
 * that is right on the whole, if it is a matter of chance what lies between the two.
 *
 * Where other tenants have work on the device (others.c), their time slices are in that time, too.
 * Nothing says what they had: the process's own is all of it at most, and half of it at least, over
 * several windows. Costs hold in between. Where other processes of the slice use the device, there
 * are no windows (member.h).
 *
 * A window ends before the thread that launched last waits for the stream, if that is at work, and
 * the next begins before the first launch behind the wait: for how long the device was idle in
 * between, only costs could say.
 *
 * There is one window at a time for a device in a process. One that is over is followed by the
 * next, with the same event, but where it is to be of all streams and was not, or the reverse. One
 * that its stream does not go on with is dropped after WINDOW_STALE_NS.
 *
 * Kernels that run beside each other take less of the device together than their samples say.
 * Windows show that: all costs are trimmed by the proportion that they find, as long as no
 * neighbour has work on the device. Where the device was idle in one, the costs themselves said for
 * how long, and it confirms them whatever they are: so the more was idle, the less it counts.
 *
 * The window is under its lock, which is held over the driver's recording of an event.
 */
#include "window.h"

#include "clock.h"
#include "words.h"

#define TRIM_ONE (1u << 16)

static bool is_of(const struct window *window, const struct pace_work *work)
{
	const void *stream = LOAD(window->stream);

	return LOAD(window->context) == work->context && (!stream || stream == meter_stream(work));
}

/* By single words, as is_good reads it without the lock. */
static void mark(struct span_mark *mark, const struct meter *meter, uint64_t now_ns)
{
	STORE(mark->charged, LOAD(meter->tally.charged));
	STORE(mark->sure, LOAD(meter->tally.sure));
	STORE(mark->idle_ns, tally_idle_ns(&meter->tally, now_ns));
}

/* For how long the device was idle in it until now, as costs say. */
static uint64_t idle_ns(const struct meter *meter, uint64_t now_ns)
{
	uint64_t from_ns = LOAD(meter->window.from.idle_ns);
	uint64_t to_ns = tally_idle_ns(&meter->tally, now_ns);

	return to_ns > from_ns ? to_ns - from_ns : 0;
}

/* Whether one is open that will tell something yet. */
static bool is_good(const struct meter *meter, uint64_t now_ns)
{
	const struct window *window = &meter->window;
	uint64_t since_ns = meter_since(now_ns, LOAD(window->opened_ns));

	return LOAD(window->span) && meter_since(now_ns, LOAD(window->used_ns)) < WINDOW_STALE_NS &&
	       LOAD(window->breaks) == LOAD(meter->breaks) &&
	       idle_ns(meter, now_ns) * WINDOW_IDLE_PART <=
		       since_ns + WINDOW_IDLE_PART * WINDOW_IDLE_NS;
}

/* Where the device idles much, one after the other would be opened, to tell nothing. */
static bool is_young(const struct meter *meter, uint64_t now_ns)
{
	uint64_t then_ns = LOAD(meter->window.opened_ns);

	return meter_relax_factor(meter) > 1 && meter_since(now_ns, then_ns) < WINDOW_YOUNG_NS;
}

static double within(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

static void set_trim(struct meter *meter)
{
	const struct window *window = &meter->window;
	double now = window->busy_ns / window->untrimmed_ns;

	STORE(meter->trim, (uint32_t)(TRIM_ONE * within(now, TRIM_LEAST, TRIM_MOST)));
}

/* Of a window that does not tell: slowly back. */
static void trim_back(struct meter *meter)
{
	struct window *window = &meter->window;

	window->busy_ns += (window->untrimmed_ns - window->busy_ns) / TRIM_BACK;
	set_trim(meter);
}

/* Whether one of all streams is wanted, and may be. */
static bool is_for_all(const struct meter *meter, uint64_t now_ns)
{
	return meter_is_mixed(meter, now_ns) && LOAD(meter->stuck) <= 0 &&
	       !meter_mixes_contexts(meter, now_ns);
}

static bool begin(struct meter *meter, struct span *span, const struct pace_work *work,
		  uint64_t now_ns)
{
	bool fenced = is_for_all(meter, now_ns) && span_begin(span, work, true);

	if (meter_is_mixed(meter, now_ns))
		STORE(meter->fenced, fenced);
	return fenced || span_begin(span, work, false);
}

/* Under its lock, as all up to the next that is not static. */
static void start(struct meter *meter, struct span *span, const struct pace_work *work,
		  uint64_t now_ns)
{
	struct window *window = &meter->window;

	span->kind = SPAN_WINDOW;
	span->meter = meter;
	span->stream = span->fenced ? NULL : meter_stream(work);
	STORE(window->context, work->context);
	STORE(window->stream, span->stream);
	STORE(window->opened_ns, now_ns);
	STORE(window->used_ns, now_ns);
	STORE(window->launches, 0);
	STORE(window->span, span);
}

/* Where none is left, the next launch sees whether one is over. */
static struct span *take(struct meter *meter, const struct pace_work *work)
{
	struct span *span = span_take(work->context);

	if (!span && !LOAD(meter->futile))
		STORE(meter->settle_at_ns, 0);
	return span;
}

/* Where none can be had, the one that there is goes on. */
static bool start_anew(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct window *window = &meter->window;
	struct span *span = take(meter, work), *last = window->span;
	uint64_t breaks = LOAD(meter->breaks);

	if (!span)
		return false;
	if (!begin(meter, span, work, now_ns)) {
		span_drop(span);
		return false;
	}
	STORE(window->span, NULL);
	if (last)
		span_drop(last);
	mark(&window->from, meter, clock_steady_ns()); /* recording takes a while */
	STORE(window->breaks, breaks);
	start(meter, span, work, now_ns);
	return true;
}

/* Behind one that has its end, and is not closed: so that all is in the one or in the other, be it
 * that threads submit meanwhile what they have not been charged for. */
static void start_behind(struct meter *meter, struct span *span, struct span *last,
			 const struct pace_work *work, uint64_t now_ns)
{
	struct window *window = &meter->window;

	span_follow(span, last);
	if (meter_is_mixed(meter, now_ns))
		STORE(meter->fenced, span->fenced);
	STORE(window->from.charged, last->to.charged);
	STORE(window->from.sure, last->to.sure);
	STORE(window->from.idle_ns, last->to.idle_ns);
	start(meter, span, work, now_ns);
}

/* Whether costs have the device idle in it for a while. */
static bool is_doubted(const struct meter *meter, uint64_t now_ns)
{
	uint64_t since_ns = meter_since(now_ns, LOAD(meter->window.opened_ns));

	return idle_ns(meter, now_ns) * WINDOW_DOUBT_PART > since_ns;
}

/*
 * Whether it has an end now, and is to be closed. tells: the stream was busy from its begin to now.
 * The mark comes behind the event, as at the begin: what other threads submit meanwhile is charged
 * once the driver has it. A fence behind a kernel that runs on and on would never be reached. Where
 * the device has yet to come to its begin, it is not idle from there on, whatever costs say.
 */
static bool end(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool tells)
{
	struct window *window = &meter->window;
	struct span *span = window->span;
	uint64_t breaks = LOAD(meter->breaks);
	bool mixed = meter_is_mixed(meter, now_ns);
	bool never_idle = false;

	STORE(window->span, NULL);
	if (is_doubted(meter, now_ns) && !meter_stalls(meter, now_ns)) {
		never_idle = !span_is_begun(span);
		now_ns = clock_steady_ns(); /* which takes a while */
	}
	if ((span->fenced && LOAD(meter->stuck) > 0) || !span_end(span, work)) {
		span_drop(span);
		return false;
	}
	span->alone = span->fenced || !mixed;
	if (!mixed) /* nothing behind it in that stream is over before it is */
		span->stream = meter_stream(work);
	span->from = window->from;
	mark(&span->to, meter, now_ns);
	if (never_idle)
		span->to.idle_ns = span->from.idle_ns;
	span->clear = tells && window->breaks == breaks;
	STORE(window->breaks, breaks); /* of the next one, if that begins here */
	STORE(window->launches, 0);
	span->due_ns = tally_due_ns(&meter->tally);
	return true;
}

/* Ends it, and has the next begin there. Where none can be had, it goes on. */
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
 * Before a launch where there is nothing to do for the device; else behind one. Then what was
 * submitted before it, to whatever stream, is left out at the begin as it is at the end.
 *
 * One in which the device seems to be idle for too long ends there, rather than that it is dropped:
 * costs say so, and it shows whether they are too low.
 */
void window_open(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool was_idle)
{
	struct window *window = &meter->window;

	if (is_good(meter, now_ns) || (was_idle && is_young(meter, now_ns)) ||
	    !lock_try(&window->lock))
		return;
	if (!is_good(meter, now_ns)) {
		bool ends = window->span && LOAD(window->launches) > 0 && is_of(window, work) &&
			    window->breaks == LOAD(meter->breaks);

		if (ends)
			split(meter, work, now_ns);
		if (!ends || !window->span)
			start_anew(meter, work, now_ns);
	}
	lock_release(&window->lock);
}

bool window_open_anew(struct meter *meter, const struct pace_work *work, uint64_t now_ns,
		      bool at_once)
{
	struct window *window = &meter->window;
	bool begins;

	if (!lock_try(&window->lock))
		return false;
	begins = at_once || !window->span ||
		 (LOAD(window->launches) == 0 && span_is_begun(window->span));
	begins = begins && start_anew(meter, work, now_ns);
	lock_release(&window->lock);
	return begins;
}

/* Whether there is enough in it, or nothing more to come. */
static bool is_over(struct meter *meter, uint64_t now_ns)
{
	const struct window *window = &meter->window;
	int64_t charged = LOAD(meter->tally.charged) - LOAD(window->from.charged);

	return LOAD(window->launches) >= WINDOW_LAUNCHES ||
	       charged >= (int64_t)WINDOW_NS * meter_relax_factor(meter) ||
	       meter_since(now_ns, LOAD(window->opened_ns)) >= WINDOW_LONG_NS ||
	       !bucket_is_open(meter->bucket);
}

/* After a launch. Until it is over it takes no lock: that another window is counted by mistake does
 * no harm. */
void window_close(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct window *window = &meter->window;

	if (!LOAD(window->span) || !is_of(window, work))
		return;
	STORE(window->used_ns, now_ns);
	ADD(window->launches, 1);
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
	done = window->span && is_of(window, work) && LOAD(window->launches) > 0 &&
	       split(meter, work, now_ns);
	lock_release(&window->lock);
	return done;
}

/* Where the stream has come to its end, the device's time is known only to be no more than that. */
void window_cut(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool is_busy)
{
	struct window *window = &meter->window;
	struct span *span;

	if (!LOAD(window->span) || !lock_try(&window->lock))
		return;
	span = window->span;
	if (span && is_of(window, work) && LOAD(window->launches) > 0 &&
	    end(meter, work, now_ns, is_busy))
		span_close(span);
	lock_release(&window->lock);
}

/*
 * By what the last windows found, together: the proportion of each would be too high on the whole,
 * where what lies between two events is a matter of chance. None counts for much more than others,
 * as the cost of a launch that is far off says nothing of the next ones; short ones count for less,
 * and make less be forgotten. Of no window that tells, slowly back. One that tells little confirms
 * what is above what samples say, nearly; never what is below, as the device may have been busy
 * when it was taken to be idle.
 */
static void trim(struct meter *meter, int64_t busy_ns, int64_t seen_ns, double told)
{
	double untrimmed = (double)seen_ns * TRIM_ONE / LOAD(meter->trim), busy, rest, part;
	struct window *window = &meter->window;

	if (!lock_try(&window->lock))
		return;
	if (busy_ns >= 0 && seen_ns > 0) {
		busy = within((double)busy_ns / untrimmed, TRIM_LEAST, TRIM_MOST);
		rest = window->busy_ns / window->untrimmed_ns;
		rest = rest > 1 ? rest + (1 - rest) * TRIM_WINDOWS / TRIM_BACK : 1;
		busy = told * busy + (1 - told) * rest;
		untrimmed = within(untrimmed, 0, WINDOW_WEIGHS_NS);
		part = within(untrimmed / (double)WINDOW_NS, 0, 1) / TRIM_WINDOWS;
		window->busy_ns += busy * untrimmed - part * window->busy_ns;
		window->untrimmed_ns += untrimmed - part * window->untrimmed_ns;
		set_trim(meter);
	} else {
		trim_back(meter);
	}
	lock_release(&window->lock);
}

void window_reset(struct meter *meter)
{
	meter->trim = TRIM_ONE;
	meter->window.busy_ns = meter->window.untrimmed_ns = TRIM_WINDOWS * (double)WINDOW_NS;
}

uint64_t window_trim(const struct meter *meter, uint64_t cost_ns)
{
	if (LOAD(meter->neighbours)) /* windows tell too little */
		return cost_ns;
	return (uint64_t)((double)cost_ns * LOAD(meter->trim) / TRIM_ONE);
}

static int64_t idle_of(const struct span *span)
{
	int64_t idle = (int64_t)(span->to.idle_ns - span->from.idle_ns);

	return idle > 0 ? idle : 0; /* or what was taken for it turned out to be none */
}

/*
 * What is charged of a window in which the device worked for the process, or for neighbours, and
 * for the process for half of that at least. Neighbours come in time slices, which are whole in
 * one window and missing in the next: so the least holds for the sum of windows.
 */
static int64_t beside_neighbours(struct meter *meter, int64_t both, int64_t seen)
{
	int64_t owed = LOAD(meter->owed_ns) + both / 2 - seen;
	int64_t more = owed > WINDOW_OWED_NS ? owed - WINDOW_OWED_NS : 0;

	STORE(meter->owed_ns, owed > more ? owed - more : 0);
	return seen + more;
}

/*
 * How long the device worked for the process, which charged it `seen`; negative: as long as that.
 * It was idle for no longer than it would have been if what is sure was all that it did; for less,
 * if it did what was charged.
 */
static int64_t busy_of(const struct span *span, int64_t took, int64_t seen)
{
	int64_t idle = idle_of(span), least, most;
	int64_t unsure = seen - (span->to.sure - span->from.sure);

	if (!span->clear || idle * WINDOW_IDLE_PART > took)
		return span->alone && seen > 2 * took ? took : -1;
	least = took - idle;
	most = least + (unsure < 0 ? 0 : unsure < idle ? unsure : idle) + WINDOW_EVENT_SLACK_NS;
	if (LOAD(span->meter->neighbours))
		least = beside_neighbours(span->meter, least, seen);
	return seen < least ? least : seen < most ? seen : most;
}

/* How much it tells of costs: 1 where the device was never idle, 0 where it was for too long. */
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
	int64_t more = tally_compare(&meter->tally, from, to, busy);

	meter_correct(meter, more);
	if (!LOAD(meter->neighbours))
		trim(meter, busy, to - from, told_by(span, took));
	return more;
}

void window_end_context(struct meter *meter, const void *context)
{
	struct window *window = &meter->window;

	if (!LOAD(window->span))
		return;
	lock_acquire(&window->lock);
	if (window->span && window->context == context) {
		span_drop(window->span);
		STORE(window->span, NULL);
	}
	lock_release(&window->lock);
}
