/*
 * Windows: an event before, or behind, one launch and one behind a later one of the same stream,
 * when WINDOW_NS have been charged in between. If the slice always had work submitted meanwhile, as
 * far as costs tell, the device was busy all the time from one to the other, and what was charged
 * is corrected by that: for all streams and all processes at once, since work of theirs that ran
 * beside it, or in between, was charged in that time as well. Where the device was idle in between,
 * costs stand.
 *
 * There is one window at a time for a device in a process. One that its stream does not go on with
 * is dropped after STALE_NS.
 *
 * Kernels that run beside each other take less of the device together than their samples say, and
 * samples contain what other processes of the slice did meanwhile. Windows show that: all costs are
 * trimmed by the proportion that they find.
 *
 * The window is under its lock, which is held over the driver's recording of an event.
 */
#include "window.h"

#include "clock.h"

#define LOAD(field)         __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)

#define WINDOW_NS       (1 * NS_PER_MS)  /* of charges; what events cost is a thousandth of it */
#define WINDOW_LONG_NS  (50 * NS_PER_MS) /* and of time */
#define WINDOW_LAUNCHES 128 /* and of launches, lest many go whose cost is no longer that */
#define IDLE_PART       4   /* a window with more of it tells nothing: what idles is a guess */
#define IDLE_SLACK_NS   (100 * NS_PER_US) /* the host's, from opening one to its first launch */
#define STALE_NS        (20 * NS_PER_MS)
#define WINDOW_EVENT_NS 1300 /* what a pair adds that is no work (on an H200) */

#define TRIM_ONE   WINDOW_TRIM_ONE
#define TRIM_LEAST (TRIM_ONE >> 5)
#define TRIM_MOST  (TRIM_ONE << 1)

static bool is_of(const struct window *window, const struct pace_work *work)
{
	return window->context == work->context && window->stream == meter_stream(work);
}

/* Under its lock: whether it will tell something yet. */
static bool is_good(const struct meter *meter, uint64_t now_ns)
{
	const struct window *window = &meter->window;
	uint64_t idle_ns = bucket_mark(meter->bucket, now_ns).idle - window->from.idle;

	return now_ns - window->used_ns < STALE_NS && window->breaks == LOAD(meter->breaks) &&
	       idle_ns * IDLE_PART <= now_ns - window->opened_ns + IDLE_SLACK_NS;
}

/*
 * Before a launch where there is nothing to do for the device; else behind one. Then what was
 * submitted before it, to whatever stream, is left out at the begin as it is at the end.
 */
void window_open(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct window *window = &meter->window;
	struct span *span;

	if (!lock_try(&window->lock))
		return;
	if (window->span && is_good(meter, now_ns)) {
		lock_release(&window->lock);
		return;
	}
	if (window->span) {
		span_drop(window->span);
		STORE(window->span, NULL);
	}
	span = span_take(work->context);
	if (span && span_begin(span, work)) {
		span->kind = SPAN_WINDOW;
		span->meter = meter;
		window->context = work->context;
		window->stream = meter_stream(work);
		window->from = bucket_mark(meter->bucket, now_ns);
		window->opened_ns = now_ns;
		window->used_ns = now_ns;
		window->launches = 0;
		window->breaks = LOAD(meter->breaks);
		STORE(window->span, span);
	}
	lock_release(&window->lock);
}

/* Under its lock. tells: the stream was busy from its begin to now. */
static void end(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool tells)
{
	struct window *window = &meter->window;
	struct span *span = window->span;

	span->from = window->from;
	span->to = bucket_mark(meter->bucket, now_ns);
	span->clear = tells && window->breaks == LOAD(meter->breaks);
	span->due_ns = LOAD(meter->bucket->busy_until);
	STORE(window->span, NULL);
	span_close(span, work);
}

/* After a launch: once there is enough in it, or nothing more to come. */
void window_close(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct window *window = &meter->window;

	if (!LOAD(window->span) || !lock_try(&window->lock))
		return;
	if (window->span && is_of(window, work)) {
		int64_t charged = LOAD(meter->bucket->charged) - window->from.charged;

		window->used_ns = now_ns;
		window->launches++;
		if (window->launches >= WINDOW_LAUNCHES || charged >= (int64_t)WINDOW_NS ||
		    now_ns - window->opened_ns >= WINDOW_LONG_NS || !bucket_is_open(meter->bucket))
			end(meter, work, now_ns, true);
	}
	lock_release(&window->lock);
}

/* Where the stream has come to its end, the device's time is known only to be no more than that. */
void window_cut(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool is_busy)
{
	struct window *window = &meter->window;

	if (!LOAD(window->span) || !lock_try(&window->lock))
		return;
	if (window->span && is_of(window, work) && window->launches > 0)
		end(meter, work, now_ns, is_busy);
	lock_release(&window->lock);
}

void window_break(struct meter *meter)
{
	__atomic_fetch_add(&meter->breaks, 1, __ATOMIC_RELAXED);
}

/* Some of the way to what it should have been; of no window that tells, slowly back. */
static void trim(struct meter *meter, int64_t busy_ns, int64_t seen_ns)
{
	double now = LOAD(meter->trim), goal = TRIM_ONE;

	if (busy_ns >= 0 && seen_ns > 0) {
		double ratio = (double)busy_ns / (double)seen_ns;

		goal = now * (ratio < 0.5 ? 0.5 : ratio > 2 ? 2 : ratio);
		now += (goal - now) / 8;
	} else {
		now += (goal - now) / 64;
	}
	if (now < TRIM_LEAST)
		now = TRIM_LEAST;
	if (now > TRIM_MOST)
		now = TRIM_MOST;
	STORE(meter->trim, (uint32_t)now);
}

uint64_t window_trim(const struct meter *meter, uint64_t cost_ns)
{
	return (uint64_t)((double)cost_ns * LOAD(meter->trim) / TRIM_ONE);
}

void window_settle(const struct span *span, uint64_t took_ns)
{
	int64_t took = meter_less(took_ns, WINDOW_EVENT_NS),
		seen = span->to.charged - span->from.charged;
	int64_t idle = (int64_t)(span->to.idle - span->from.idle);
	bool tells = span->clear && idle * IDLE_PART <= took && !LOAD(span->meter->crowded);
	int64_t busy = tells ? took - idle : -1;

	if (busy < 0 && seen > 2 * took)
		busy = took; /* at most */
	bucket_measured(span->meter->bucket, &span->from, &span->to, busy);
	trim(span->meter, busy, seen);
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
