/*
 * The spans of a process: a fixed number, taken and given back by one word each, so that no thread
 * ever waits for another. When all are taken, work is not measured, and its learned cost stands.
 *
 * Events belong to a context, and go with it. So only who is submitting work to a context, which
 * must not be destroyed meanwhile, touches the spans of it.
 */
#include "spans.h"

#include "lock.h"
#include "words.h"

#define SPANS        64
#define CONTEXT_MOST 16 /* on their way in one context, so that others have some */

enum span_state { FREE, HELD, CLOSED };

static struct span spans[SPANS];
static struct lock settling = LOCK_INIT; /* only ever tried: by who looks which are over */
static uint32_t closed_count;            /* atomic */
static uint64_t turns;                   /* how many were closed, ever; atomic */

static bool move(struct span *span, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&span->state, &from, to, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

static void set(struct span *span, uint32_t to)
{
	__atomic_store_n(&span->state, to, __ATOMIC_RELEASE); /* pairs with move's acquire */
}

/* Those of another context may be gone with it, or be in use there: they are let go of, and end
 * when it does. */
static bool has_events(struct span *span, void *context)
{
	if (span->context == context)
		return true;
	STORE(span->context, NULL);
	span->before = NULL;
	STORE(span->given, NULL);
	span->begin = pace_driver->event_make(context);
	span->end = span->begin ? pace_driver->event_make(context) : NULL;
	if (!span->end)
		return false;
	STORE(span->context, context);
	return true;
}

/* A free one that is the context's or nobody's, or also another's; with events of it. */
static struct span *take(void *context, bool from_others)
{
	for (unsigned i = 0; i < SPANS; i++) {
		struct span *span = &spans[i];

		if (!move(span, FREE, HELD))
			continue;
		if ((span->context == context || !span->context || from_others) &&
		    has_events(span, context))
			return span;
		set(span, FREE);
	}
	return NULL;
}

/* Without holding it: a context that is not ours may be ending. */
static bool is_closed_of(const struct span *span, const void *context)
{
	return LOAD(span->state) == CLOSED && LOAD(span->context) == context;
}

static unsigned count_in_use(const void *context)
{
	unsigned count = 0;

	for (unsigned i = 0; i < SPANS; i++)
		count += is_closed_of(&spans[i], context);
	return count;
}

struct span *span_take(void *context)
{
	struct span *span;

	if (LOAD(closed_count) >= CONTEXT_MOST && count_in_use(context) >= CONTEXT_MOST)
		return NULL;
	span = take(context, false);
	return span ? span : take(context, true);
}

/* The two have one event, till it is only the other's. */
void span_follow(struct span *span, struct span *before)
{
	span->in_vain_ns = 0;
	span->expected = false;
	span->fenced = before->fenced;
	span->before = before;
	span->own = span->begin;
	span->begin = before->end;
	STORE(before->given, span->own);
}

/* It is over: what follows it keeps its end. */
static void leave_end(struct span *span)
{
	void *given = __atomic_exchange_n(&span->given, NULL, __ATOMIC_RELAXED);

	if (given)
		span->end = given;
}

/* It is dropped: what it follows keeps its begin, if that is not over. */
static void leave_begin(struct span *span)
{
	void *own = span->own;

	if (span->before && SWAP(span->before->given, own, NULL))
		span->begin = own;
	span->before = NULL;
}

void span_drop(struct span *span)
{
	leave_begin(span);
	set(span, FREE);
}

static bool record(const struct span *span, void *event, const struct pace_work *work)
{
	return span->fenced ? pace_driver->fence(event, work) : pace_driver->record(event, work);
}

bool span_begin(struct span *span, const struct pace_work *work, bool fenced)
{
	span->in_vain_ns = 0;
	span->expected = false;
	span->fenced = fenced;
	return record(span, span->begin, work);
}

bool span_end(struct span *span, const struct pace_work *work)
{
	return record(span, span->end, work);
}

bool span_is_begun(const struct span *span)
{
	return pace_driver->is_reached(span->begin);
}

void span_close(struct span *span)
{
	span->turn = ADD(turns, 1);
	ADD(closed_count, 1);
	set(span, CLOSED);
}

bool spans_any(void)
{
	return LOAD(closed_count) > 0;
}

/* Held. Whether it is over, and free; else it is closed again. */
static bool settle(struct span *span, span_done_fn *done)
{
	uint64_t took_ns;
	enum pace_answer answer = pace_driver->elapsed(span->begin, span->end, &took_ns);

	if (answer == PACE_NOT_YET) {
		done(span, SPANS_NOT_YET);
		set(span, CLOSED);
		return false;
	}
	SUB(closed_count, 1);
	done(span, answer == PACE_TOOK ? took_ns : SPANS_NONE);
	leave_end(span);
	leave_begin(span); /* what is before it is over, and settled, but for a moment at times */
	set(span, FREE);
	return true;
}

/* Holds the closed ones of the context: how many, in the order of their turns. */
static unsigned hold_closed(const void *context, struct span *ret_held[SPANS])
{
	unsigned count = 0;

	for (unsigned i = 0, left = LOAD(closed_count); i < SPANS && left; i++) {
		struct span *span = &spans[i];
		unsigned at;

		left -= LOAD(span->state) == CLOSED;
		if (!is_closed_of(span, context) || !move(span, CLOSED, HELD))
			continue;
		if (span->context != context) {
			set(span, CLOSED);
			continue;
		}
		for (at = count++; at > 0 && ret_held[at - 1]->turn > span->turn; at--)
			ret_held[at] = ret_held[at - 1];
		ret_held[at] = span;
	}
	return count;
}

/* Each question costs as much as the rest: none is asked of what is behind something that is not
 * over, be it in its stream, or anywhere if it is fenced. */
static struct spans_left settle_all(void *context, const struct cost *cost, span_done_fn *done)
{
	struct span *held[SPANS];
	unsigned count = hold_closed(context, held);
	struct spans_left left = {.due_ns = SPANS_NONE};
	unsigned left_count = 0;
	bool any_is_waited_for = false, window_is_left = false;
	const void *stream = NULL; /* of the last that is left */

	for (unsigned i = 0; i < count; i++) {
		struct span *span = held[i];
		bool is_window = span->kind == SPAN_WINDOW;
		bool alike = !is_window && span->cost == cost;
		const void *its_stream = span->stream;
		uint64_t due_ns = alike && span->expected ? 0 : span->due_ns;

		if ((left_count && (span->fenced || its_stream == stream)) ||
		    (is_window && window_is_left))
			set(span, CLOSED);
		else if (settle(span, done))
			continue;
		if (due_ns == 0 && left.due_ns != 0)
			left.behind = any_is_waited_for;
		any_is_waited_for |= due_ns != SPANS_NONE;
		left_count++;
		window_is_left |= is_window;
		stream = its_stream;
		if (due_ns < left.due_ns)
			left.due_ns = due_ns, left.alike = alike;
		else if (due_ns == left.due_ns)
			left.alike |= alike;
	}
	left.full = left_count >= CONTEXT_MOST;
	return left;
}

struct spans_left spans_settle(void *context, const struct cost *cost, span_done_fn *done)
{
	struct spans_left left = {.contended = true};

	if (!lock_try(&settling))
		return left;
	left = settle_all(context, cost, done);
	lock_release(&settling);
	return left;
}

unsigned spans_give_up(const void *context, uint64_t late_ns, uint64_t waited_ns)
{
	struct span *held[SPANS];
	unsigned count, given_up = 0;

	if (!lock_try(&settling))
		return 0;
	count = hold_closed(context, held);
	for (unsigned i = 0; i < count; i++) {
		struct span *span = held[i];

		if (late_ns >= span->due_ns) {
			span->due_ns = SPANS_NONE;
			span->in_vain_ns = given_up++ ? 0 : waited_ns;
		}
		set(span, CLOSED);
	}
	lock_release(&settling);
	return given_up;
}

/* What somebody holds is in use in that context, against the rules, or in another one. */
void spans_end_context(const void *context, span_done_fn *done)
{
	for (unsigned i = 0; i < SPANS; i++) {
		struct span *span = &spans[i];
		bool closed = move(span, CLOSED, HELD);

		if (!closed && !move(span, FREE, HELD))
			continue;
		if (span->context != context) {
			set(span, closed ? CLOSED : FREE);
			continue;
		}
		if (closed) {
			SUB(closed_count, 1);
			done(span, SPANS_NONE);
		}
		STORE(span->context, NULL);
		set(span, FREE);
	}
}

void spans_forget(void)
{
	for (unsigned i = 0; i < SPANS; i++)
		spans[i] = (struct span){.state = FREE};
	closed_count = 0;
	lock_init(&settling);
}
