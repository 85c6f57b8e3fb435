/*
 * The spans of a process. Each context has SPAN_COUNT of them. A thread takes a span and gives it
 * back by one word, so no thread waits for another. While SPAN_CLOSED_MOST spans of a context are
 * closed, more of its work is not measured, and learned costs stand.
 *
 * A context's spans serve no other context while it lives. A thread that takes or settles spans is
 * submitting work to their context, which must not be destroyed meanwhile. Events of a span are
 * made when it is first taken, so a context that needs few spans at a time has few events.
 */
#include "spans.h"

#include "constants.h"
#include "lock.h"
#include "relaxed.h"
#include "sys.h"

enum span_state { FREE, HELD, CLOSED };

struct span_set {
	const void *context;   /* that the spans belong to; NULL: the set is free; atomic */
	uint32_t closed_count; /* closed spans of the set; atomic */
	struct lock settling;  /* held by a thread that asks which spans are over; only tried */
	struct span span[SPAN_COUNT];
};

/* The sets. Memory for a set is mapped when a context first needs it, and is used again for later
 * contexts. */
static struct span_set *sets[SPAN_CONTEXTS]; /* atomic */
static uint32_t set_count;                   /* sets from here on were never used; atomic */
static struct lock claiming = LOCK_INIT;     /* held while a context gets a set; only tried */
static uint32_t closed_count;                /* in all sets; atomic */
static uint64_t turns;                       /* spans closed since the start; atomic */

static struct span_set *set_at(unsigned i)
{
	return __atomic_load_n(&sets[i], __ATOMIC_ACQUIRE); /* pairs with map_set's release */
}

/* The context's set; NULL: the context has none. */
static struct span_set *find_set(const void *context)
{
	for (unsigned i = 0, count = RELAXED_LOAD(set_count); i < count; i++) {
		struct span_set *set = set_at(i);

		if (set && RELAXED_LOAD(set->context) == context)
			return set;
	}
	return NULL;
}

static struct span_set *map_set(unsigned i)
{
	struct span_set *set;

	if (sys_map_private(sizeof(*set), (void **)&set) != 0)
		return NULL;
	for (unsigned n = 0; n < SPAN_COUNT; n++)
		set->span[n].set = set;
	__atomic_store_n(&sets[i], set, __ATOMIC_RELEASE);
	return set;
}

/* A set for the context; NULL: all are taken. The caller holds `claiming`. */
static struct span_set *claim_set(const void *context)
{
	struct span_set *set = find_set(context);

	for (unsigned i = 0; !set && i < SPAN_CONTEXTS; i++) {
		struct span_set *other = set_at(i);

		if (other && RELAXED_LOAD(other->context))
			continue;
		set = other ? other : map_set(i);
		if (!set)
			return NULL;
		RELAXED_STORE(set->context, context);
		if (i >= RELAXED_LOAD(set_count))
			RELAXED_STORE(set_count, i + 1);
	}
	return set;
}

/* The context's set. NULL: no set is free, or another thread is making one at this moment. */
static struct span_set *set_of(const void *context)
{
	struct span_set *set = find_set(context);

	if (set || !lock_try(&claiming))
		return set;
	set = claim_set(context);
	lock_release(&claiming);
	return set;
}

static bool move(struct span *span, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&span->state, &from, to, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

static void set_state(struct span *span, uint32_t to)
{
	__atomic_store_n(&span->state, to, __ATOMIC_RELEASE); /* pairs with move's acquire */
}

/* Makes the span's two events if it has none, or only those of a context that has ended. */
static bool has_events(struct span *span, void *context)
{
	if (span->context == context)
		return true;
	RELAXED_STORE(span->context, NULL);
	span->before = NULL;
	RELAXED_STORE(span->given, NULL);
	span->begin = pace_driver->event_make(context);
	span->end = span->begin ? pace_driver->event_make(context) : NULL;
	if (!span->end)
		return false;
	RELAXED_STORE(span->context, context);
	return true;
}

/* Whether the span is closed and of that context. The caller does not hold the span. */
static bool is_closed_of(const struct span *span, const void *context)
{
	return RELAXED_LOAD(span->state) == CLOSED && RELAXED_LOAD(span->context) == context;
}

struct span *span_take(void *context)
{
	struct span_set *set = set_of(context);

	if (!set || RELAXED_LOAD(set->closed_count) >= SPAN_CLOSED_MOST)
		return NULL;
	for (unsigned i = 0; i < SPAN_COUNT; i++) {
		struct span *span = &set->span[i];

		if (!move(span, FREE, HELD))
			continue;
		if (has_events(span, context))
			return span;
		set_state(span, FREE);
		return NULL;
	}
	return NULL;
}

/* Until `before` is over, the end event of `before` is also the begin event of `span`. */
void span_follow(struct span *span, struct span *before)
{
	span->launch_waited_ns = 0;
	span->expected = false;
	span->fenced = before->fenced;
	span->before = before;
	span->own = span->begin;
	span->begin = before->end;
	RELAXED_STORE(before->given, span->own);
}

/* The span is over: the span that follows it keeps the shared event. */
static void leave_end(struct span *span)
{
	void *given = __atomic_exchange_n(&span->given, NULL, __ATOMIC_RELAXED);

	if (given)
		span->end = given;
}

/* The span is dropped: the span before it keeps the shared event, unless it is over. */
static void leave_begin(struct span *span)
{
	void *own = span->own;

	if (span->before && RELAXED_CAS(span->before->given, own, NULL))
		span->begin = own;
	span->before = NULL;
}

void span_drop(struct span *span)
{
	leave_begin(span);
	set_state(span, FREE);
}

static bool record(const struct span *span, void *event, const struct pace_work *work)
{
	return span->fenced ? pace_driver->fence(event, work) : pace_driver->record(event, work);
}

bool span_begin(struct span *span, const struct pace_work *work, bool fenced)
{
	span->launch_waited_ns = 0;
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
	span->turn = RELAXED_ADD(turns, 1);
	RELAXED_ADD(span->set->closed_count, 1);
	RELAXED_ADD(closed_count, 1);
	set_state(span, CLOSED);
}

bool spans_any(void)
{
	return RELAXED_LOAD(closed_count) > 0;
}

static void count_out(const struct span *span)
{
	RELAXED_SUB(span->set->closed_count, 1);
	RELAXED_SUB(closed_count, 1);
}

/* Whether a span that the caller holds is over. If so, it is free now; else it is closed again. */
static bool settle(struct span *span, span_done_fn *done)
{
	uint64_t took_ns;
	enum pace_answer answer = pace_driver->elapsed(span->begin, span->end, &took_ns);

	if (answer == PACE_NOT_YET) {
		done(span, SPANS_NOT_YET);
		set_state(span, CLOSED);
		return false;
	}
	count_out(span);
	done(span, answer == PACE_TOOK ? took_ns : SPANS_NONE);
	leave_end(span);
	leave_begin(span); /* the span before it is over, and nearly always free by now */
	set_state(span, FREE);
	return true;
}

/* Holds the closed spans of the context, in the order in which they were closed. Returns their
 * number. */
static unsigned hold_closed(struct span_set *set, const void *context,
			    struct span *ret_held[SPAN_COUNT])
{
	unsigned count = 0;

	for (unsigned i = 0, left = RELAXED_LOAD(set->closed_count); i < SPAN_COUNT && left; i++) {
		struct span *span = &set->span[i];
		unsigned at;

		left -= RELAXED_LOAD(span->state) == CLOSED;
		if (!is_closed_of(span, context) || !move(span, CLOSED, HELD))
			continue;
		for (at = count++; at > 0 && ret_held[at - 1]->turn > span->turn; at--)
			ret_held[at] = ret_held[at - 1];
		ret_held[at] = span;
	}
	return count;
}

/* A question to the driver costs as much as everything else here. So no span is asked for after a
 * span of the same stream that is not over, or after a fenced span of any stream that is not. */
static struct spans_left settle_all(struct span_set *set, const void *context,
				    const struct cost *cost, span_done_fn *done)
{
	struct span *held[SPAN_COUNT];
	unsigned count = hold_closed(set, context, held);
	struct spans_left left = {.due_ns = SPANS_NONE};
	unsigned left_count = 0;
	bool any_is_waited_for = false, window_is_left = false;
	const void *stream = NULL; /* of the last span that is not over */

	for (unsigned i = 0; i < count; i++) {
		struct span *span = held[i];
		bool is_window = span->kind == SPAN_WINDOW;
		bool same_cost = !is_window && span->cost == cost;
		const void *its_stream = span->stream;
		uint64_t due_ns = same_cost && span->expected ? 0 : span->due_ns;

		if ((left_count && (span->fenced || its_stream == stream)) ||
		    (is_window && window_is_left))
			set_state(span, CLOSED);
		else if (settle(span, done))
			continue;
		if (due_ns == 0 && left.due_ns != 0)
			left.after_known = any_is_waited_for;
		any_is_waited_for |= due_ns != SPANS_NONE;
		left_count++;
		window_is_left |= is_window;
		stream = its_stream;
		if (due_ns < left.due_ns)
			left.due_ns = due_ns, left.same_cost = same_cost;
		else if (due_ns == left.due_ns)
			left.same_cost |= same_cost;
	}
	left.full = left_count >= SPAN_CLOSED_MOST;
	return left;
}

struct spans_left spans_settle(void *context, const struct cost *cost, span_done_fn *done)
{
	struct spans_left left = {.due_ns = SPANS_NONE};
	struct span_set *set = find_set(context);

	if (!set)
		return left;
	if (!lock_try(&set->settling))
		return (struct spans_left){.contended = true};
	left = settle_all(set, context, cost, done);
	lock_release(&set->settling);
	return left;
}

unsigned spans_give_up(const void *context, uint64_t overdue_ns, uint64_t waited_ns)
{
	struct span_set *set = find_set(context);
	struct span *held[SPAN_COUNT];
	unsigned count, given_up = 0;

	if (!set || !lock_try(&set->settling))
		return 0;
	count = hold_closed(set, context, held);
	for (unsigned i = 0; i < count; i++) {
		struct span *span = held[i];

		if (overdue_ns >= span->due_ns) {
			span->due_ns = SPANS_NONE;
			span->launch_waited_ns = given_up++ ? 0 : waited_ns;
		}
		set_state(span, CLOSED);
	}
	lock_release(&set->settling);
	return given_up;
}

/* The caller breaks the contract if a thread still holds a span. That span keeps its events. */
void spans_end_context(const void *context, span_done_fn *done)
{
	struct span_set *set = find_set(context);

	for (unsigned i = 0; set && i < SPAN_COUNT; i++) {
		struct span *span = &set->span[i];
		bool closed = move(span, CLOSED, HELD);

		if (!closed && !move(span, FREE, HELD))
			continue;
		if (closed) {
			count_out(span);
			done(span, SPANS_NONE);
		}
		RELAXED_STORE(span->context, NULL);
		set_state(span, FREE);
	}
	if (set) /* last: from here on, another context may have the set */
		__atomic_store_n(&set->context, NULL, __ATOMIC_RELEASE);
}

void spans_forked(void)
{
	for (unsigned i = 0; i < SPAN_CONTEXTS; i++) {
		if (sets[i])
			sys_unmap(sets[i], sizeof(*sets[i]));
		sets[i] = NULL;
	}
	set_count = closed_count = 0;
	lock_init(&claiming);
}
