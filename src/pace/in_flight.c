#include "in_flight.h"

#include "clock.h"
#include "constants.h"
#include "meter.h"
#include "relaxed.h"

#define LEARN_PARTS 8

/* -- marks ------------------------------------------------------------------------------------ */

static struct in_flight_mark *mark_at(struct in_flight *it, uint32_t number)
{
	return &it->mark[number % IN_FLIGHT_MARKS];
}

static bool records_by_streams(const struct in_flight *it, uint64_t now_ns)
{
	uint64_t then_ns = RELAXED_LOAD(it->by_streams_ns);

	return then_ns && meter_since(now_ns, then_ns) < MARK_STREAMS_NS;
}

/* The next mark, with an event of the context; NULL if all marks are taken or no event can be made.
 */
static struct in_flight_mark *next(struct in_flight *it, void *context)
{
	struct in_flight_mark *mark = mark_at(it, it->tail);

	if (it->tail - it->head == IN_FLIGHT_MARKS)
		return NULL;
	if (!mark->event || mark->context != context)
		*mark = (struct in_flight_mark){.event = pace_driver->event_make(context),
						.context = context};
	return mark->event ? mark : NULL;
}

/* The last mark, if it is to be recorded again after the next launch: because it was made to move,
 * or because no other mark is free. NULL: it stays. */
static struct in_flight_mark *moving(struct in_flight *it)
{
	struct in_flight_mark *last = mark_at(it, it->tail - 1);
	uint32_t pending = it->tail - it->head;

	return pending && last->context == it->context && !last->stream &&
			       (last->moves || pending == IN_FLIGHT_MARKS)
		       ? last
		       : NULL;
}

static void note_mark(struct in_flight *it, struct in_flight_mark *mark, uint64_t launches)
{
	mark->launches = launches;
	RELAXED_STORE(it->marked, launches);
	RELAXED_STORE(it->mixed, false);
}

/* Records a mark after all streams of the context. stays: later launches do not move the mark. */
static bool mark_all(struct in_flight *it, bool stays, uint64_t now_ns)
{
	const struct pace_work all = {.device = it->device, .context = it->context};
	uint64_t launches = RELAXED_LOAD(it->launches);
	struct in_flight_mark *mark = moving(it);
	bool is_new = !mark;

	if (!it->context || records_by_streams(it, now_ns))
		return false;
	if (is_new)
		mark = next(it, it->context);
	if (!mark)
		return false;
	if (!pace_driver->fence(mark->event, &all)) {
		RELAXED_STORE(it->by_streams_ns, now_ns);
		return false;
	}
	mark->stream = NULL;
	mark->moves = !stays;
	it->tail += is_new;
	note_mark(it, mark, launches);
	if (stays) {
		RELAXED_STORE(it->marked_ns, now_ns);
		RELAXED_STORE(it->marked_at, launches);
	}
	return true;
}

/* Records a mark after the launch in its stream. A mark of the stream that is not reached moves. */
static void mark_stream(struct in_flight *it, const struct pace_work *work)
{
	const void *stream = meter_stream(work);
	uint64_t launches = RELAXED_LOAD(it->launches);
	struct in_flight_mark *mark;
	uint32_t number = it->head;
	bool is_new;

	while (number != it->tail && (mark_at(it, number)->stream != stream ||
				      mark_at(it, number)->context != work->context))
		number++;
	is_new = number == it->tail;
	mark = is_new ? next(it, work->context) : mark_at(it, number);
	if (!mark || !pace_driver->record(mark->event, work))
		return;
	mark->stream = stream;
	mark->moves = false;
	it->tail += is_new;
	note_mark(it, mark, launches);
}

/* Notes that the device reached a mark at about at_ns. The device did so after the last look that
 * found the mark not reached, and before this look, so the noted time is between the two. */
static void note_reached(struct in_flight *it, uint64_t at_ns, uint64_t now_ns)
{
	uint64_t least_ns = RELAXED_LOAD(it->pending_ns);

	at_ns = at_ns < least_ns ? least_ns : at_ns;
	RELAXED_STORE(it->reached_ns, at_ns < now_ns ? at_ns : now_ns);
}

/* Learns the mean time of the launches between two consecutive marks, or between the period's begin
 * and its first mark. Returns the time between the two, ns; UINT64_MAX: not known. */
static uint64_t learn(struct in_flight *it, const struct in_flight_mark *to, uint64_t now_ns)
{
	const struct in_flight_mark begin = {.event = it->begin_is_recorded ? it->begin : NULL,
					     .context = it->begin_context,
					     .launches = it->before},
				    *from = mark_at(it, it->head - 1);
	uint64_t took_ns, count, mean_ns = RELAXED_LOAD(it->mean_ns);

	if (!it->is_exact && mean_ns && meter_since(now_ns, it->learned_ns) < LEARN_EACH_NS)
		return UINT64_MAX;
	if (!from->event || from->launches <= it->before)
		from = &begin;
	if (!from->event || from->context != to->context || from->stream || to->stream ||
	    to->launches <= from->launches ||
	    pace_driver->elapsed(from->event, to->event, &took_ns) != PACE_TOOK)
		return UINT64_MAX;
	count = to->launches - from->launches;
	RELAXED_STORE(it->mean_ns,
		      mean_ns ? mean_ns - mean_ns / MEAN_PART + took_ns / count / MEAN_PART
			      : took_ns / count);
	it->learned_ns = now_ns;
	return took_ns;
}

/* Removes the marks that are reached. Whether any is left. over: all are known to be reached. */
static bool any_pending(struct in_flight *it, bool over, uint64_t now_ns)
{
	while (it->head != it->tail) {
		struct in_flight_mark *mark = mark_at(it, it->head);
		uint64_t took_ns = UINT64_MAX;

		if (mark->event && !over && !pace_driver->is_reached(mark->event)) {
			RELAXED_STORE(it->pending_ns, now_ns);
			return true;
		}
		if (mark->event) /* else its context was destroyed */
			took_ns = learn(it, mark, now_ns);
		/* reached_ns still is of the mark before, or of the period's begin */
		note_reached(it, took_ns < NS_PER_S ? it->reached_ns + took_ns : now_ns, now_ns);
		if (!mark->stream)
			RELAXED_STORE(it->reached, mark->launches);
		it->head++;
	}
	return false;
}

/* -- periods ---------------------------------------------------------------------------------- */

/* Whether the period that begins is measured, if it turns out to be short: it is the first
 * one in a part of time (LEARN_EACH_NS / LEARN_PARTS) that chance has chosen. All devices have the
 * same parts. Otherwise, periods of two devices that begin together would count in the gang's time
 * as if the devices had worked one after the other. */
static bool is_chosen(const struct in_flight *it, uint64_t now_ns)
{
	uint64_t part_ns = LEARN_EACH_NS / LEARN_PARTS;

	if (!RELAXED_LOAD(it->mean_ns) && !it->lasted_sum_ns)
		return true;
	return meter_since(now_ns, it->measured_ns) >= part_ns &&
	       meter_chance(now_ns / part_ns, LEARN_PARTS) == 0;
}

void in_flight_begin(struct in_flight *it, const struct pace_work *work, uint64_t now_ns)
{
	/* end_period writes and reads the two words in the other order. */
	__atomic_add_fetch(&it->entered, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&it->is_busy, __ATOMIC_SEQ_CST))
		return;
	lock_acquire(&it->lock);
	if (!it->is_busy) {
		RELAXED_STORE(it->began_ns, now_ns);
		it->before = RELAXED_LOAD(it->launches);
		RELAXED_STORE(it->stream, meter_stream(work));
		RELAXED_STORE(it->mixed_period, false);
		RELAXED_STORE(it->is_measured, is_chosen(it, now_ns));
		RELAXED_STORE(it->reached_ns, now_ns);
		/* From here on, other threads do not wait for the lock: the driver may keep this
		 * thread until they have launched. */
		RELAXED_STORE(it->is_busy, true);
		if (it->begin_context != work->context)
			it->begin = NULL;
		if (!it->begin)
			it->begin = pace_driver->event_make(work->context);
		it->begin_context = work->context;
		it->begin_is_recorded = it->begin && pace_driver->record(it->begin, work);
	}
	lock_release(&it->lock);
}

void in_flight_left(struct in_flight *it)
{
	RELAXED_SUB(it->entered, 1);
}

static uint64_t interval_of(const struct in_flight *it)
{
	uint64_t interval_ns = RELAXED_LOAD(it->interval_ns);

	return interval_ns ? interval_ns : MARK_LEAST_NS;
}

/* Whether the next mark or look is due, past_ns after the last one, with so many launches since. It
 * is after the interval, or if the launches keep the device busy for MARK_MOST_NS. */
static bool is_far(const struct in_flight *it, uint64_t past_ns, uint64_t launches)
{
	return past_ns >= interval_of(it) || launches * RELAXED_LOAD(it->mean_ns) >= MARK_MOST_NS;
}

/* Whether the period is measured, if it turns out to be short. Pauses between its launches then end
 * it, and each launch has a mark. */
static bool is_watched(const struct in_flight *it, uint64_t now_ns)
{
	return RELAXED_LOAD(it->is_measured) &&
	       meter_since(now_ns, RELAXED_LOAD(it->began_ns)) < LEARN_EACH_NS;
}

bool in_flight_is_due(const struct in_flight *it, uint64_t now_ns)
{
	uint64_t past_ns = meter_since(now_ns, RELAXED_LOAD(it->looked_ns));

	return !RELAXED_LOAD(it->mean_ns) || is_watched(it, now_ns) ||
	       (RELAXED_LOAD(it->waits_for_part) && past_ns >= MARK_LEAST_NS) ||
	       is_far(it, past_ns, RELAXED_LOAD(it->launches) - RELAXED_LOAD(it->looked_at));
}

static bool is_mark_due(const struct in_flight *it, const struct pace_work *work, uint64_t now_ns)
{
	return RELAXED_LOAD(it->context) != work->context || records_by_streams(it, now_ns) ||
	       is_far(it, meter_since(now_ns, RELAXED_LOAD(it->marked_ns)),
		      RELAXED_LOAD(it->launches) - RELAXED_LOAD(it->marked_at));
}

/* Whether the launch is marked because a long pause was charged. */
static bool is_tail_marked(struct in_flight *it)
{
	uint32_t left = RELAXED_LOAD(it->tail_marks);

	if (left)
		RELAXED_CAS(it->tail_marks, left, left - 1);
	return left != 0;
}

void in_flight_submitted(struct in_flight *it, const struct pace_work *work, bool at_once,
			 uint64_t now_ns)
{
	const void *stream = meter_stream(work);
	bool due, each;

	RELAXED_ADD(it->launches, 1);
	if (RELAXED_LOAD(it->stream) != stream) {
		RELAXED_STORE(it->stream, stream);
		RELAXED_STORE(it->mixed, true);
		RELAXED_STORE(it->mixed_period, true);
	}
	each = is_watched(it, now_ns) || is_tail_marked(it);
	due = at_once || is_mark_due(it, work, now_ns);
	if (!due && !each)
		return;
	if (each)
		lock_acquire(&it->lock);
	else if (!lock_try(&it->lock))
		return; /* the next launch is marked, or the next look marks */
	RELAXED_STORE(it->context, work->context);
	it->device = work->device;
	if (!mark_all(it, due, now_ns))
		mark_stream(it, work);
	lock_release(&it->lock);
}

void in_flight_mark(struct in_flight *it, uint64_t each_ns, uint64_t now_ns)
{
	if (!RELAXED_LOAD(it->is_busy) || RELAXED_LOAD(it->marked) == RELAXED_LOAD(it->launches) ||
	    meter_since(now_ns, RELAXED_LOAD(it->marked_ns)) < each_ns)
		return;
	if (!lock_try(&it->lock))
		return;
	mark_all(it, true, now_ns);
	lock_release(&it->lock);
}

void in_flight_will_look(struct in_flight *it, uint64_t now_ns)
{
	in_flight_mark(it, MARK_LEAST_NS, now_ns);
}

void in_flight_will_wait(struct in_flight *it, uint64_t now_ns)
{
	uint64_t launches = RELAXED_LOAD(it->launches);
	bool again = RELAXED_LOAD(it->waited_at) == launches;

	RELAXED_STORE(it->waited_at, launches);
	in_flight_mark(it, RELAXED_LOAD(it->waits_for_part) && !again ? MARK_LEAST_NS : 0, now_ns);
}

/* Whether the launches without a mark may be over. Then a mark is reached at once; otherwise it
 * costs time and shows nothing. In turns (is_exact), half of the time that the launches take, as
 * learned, must have passed, too. */
static bool may_be_over(const struct in_flight *it, uint64_t now_ns)
{
	uint64_t left = RELAXED_LOAD(it->launches) - RELAXED_LOAD(it->reached);
	uint64_t half_ns = left * RELAXED_LOAD(it->mean_ns) / 2;

	return it->head == it->tail &&
	       (!it->is_exact || RELAXED_LOAD(it->reached_ns) + half_ns <= now_ns);
}

bool in_flight_is_marked(const struct in_flight *it)
{
	return RELAXED_LOAD(it->marked) == RELAXED_LOAD(it->launches);
}

/* After a wait that had no mark: records a mark if the launches without one may have finished.
 * Returns whether it recorded one. */
static bool mark_waited(struct in_flight *it, uint64_t now_ns)
{
	bool marked;

	if (in_flight_is_marked(it) || !lock_try(&it->lock))
		return false;
	marked = it->is_busy && may_be_over(it, now_ns) && mark_all(it, true, now_ns);
	lock_release(&it->lock);
	return marked;
}

bool in_flight_is_soon_over(struct in_flight *it, uint64_t due_ns, uint64_t from_ns,
			    uint64_t now_ns)
{
	return mark_waited(it, now_ns) ||
	       (in_flight_is_marked(it) && due_ns <= now_ns + TURN_MARK_NS &&
		meter_since(now_ns, from_ns) <= TURN_MARK_NS);
}

void in_flight_waited(struct in_flight *it, bool busy)
{
	if (in_flight_is_marked(it))
		RELAXED_STORE(it->waits_for_part, busy);
}

/* The time from the period's begin to its last mark, ns; UINT64_MAX: events do not tell. */
static uint64_t took_until_mark(struct in_flight *it)
{
	const struct in_flight_mark *last = mark_at(it, it->head - 1);
	uint64_t took_ns;

	if (!it->begin_is_recorded || !last->event || last->context != it->begin_context ||
	    last->launches <= it->before ||
	    pace_driver->elapsed(it->begin, last->event, &took_ns) != PACE_TOOK)
		return UINT64_MAX;
	return took_ns;
}

/* A period has ended, and tail_ns after its last mark are charged. Plans the marks after a pause in
 * that time (TAIL_MARK_NS). A pause follows the last launch of a period. So no launch is marked if
 * the marks would not suffice for all launches of a period like this one. */
static void plan_tail_marks(struct in_flight *it, uint64_t tail_ns)
{
	uint64_t launches = RELAXED_LOAD(it->launches);
	uint64_t unmarked = launches - RELAXED_LOAD(it->marked);
	uint64_t pause_ns = meter_since(tail_ns, unmarked * RELAXED_LOAD(it->mean_ns));
	uint64_t marks = pause_ns / TAIL_MARK_NS;

	RELAXED_STORE(it->tail_marks, marks < launches - it->before ? 0 : (uint32_t)marks);
}

/* The length of a period that was seen to have ended after lasted_ns, ns. The time after its last
 * mark (the tail) is part of the length, TAIL_MOST_NS of it at most. */
static uint64_t measure_period(struct in_flight *it, uint64_t lasted_ns)
{
	bool is_marked = RELAXED_LOAD(it->marked) == RELAXED_LOAD(it->launches);
	uint64_t took_ns = took_until_mark(it), tail_ns;

	if (took_ns == UINT64_MAX)
		took_ns = is_marked ? meter_since(RELAXED_LOAD(it->reached_ns), it->began_ns) : 0;
	if (took_ns > lasted_ns)
		took_ns = lasted_ns;
	if (is_marked)
		return took_ns;
	tail_ns = lasted_ns - took_ns;
	tail_ns = tail_ns < TAIL_MOST_NS ? tail_ns : TAIL_MOST_NS;
	plan_tail_marks(it, tail_ns);
	return took_ns + tail_ns;
}

/* Notes which fraction of lasted_ns the period took: later short periods are charged that. */
static void note_period(struct in_flight *it, uint64_t took_ns, uint64_t lasted_ns, uint64_t now_ns)
{
	if (lasted_ns >= LEARN_EACH_NS)
		return;
	if (it->lasted_sum_ns >= PERIODS_NS) {
		it->took_sum_ns /= 2;
		it->lasted_sum_ns /= 2;
	}
	it->took_sum_ns += took_ns;
	it->lasted_sum_ns += lasted_ns;
	it->measured_ns = now_ns;
}

/* When the device finished the period. A question about events takes as long as a launch, so not
 * each short period is measured, unless `exact` is set. */
static uint64_t ended_ns(struct in_flight *it, bool exact, uint64_t now_ns)
{
	uint64_t lasted_ns = meter_since(now_ns, it->began_ns), took_ns;

	if (RELAXED_LOAD(it->launches) == it->before)
		return it->began_ns;
	if (!exact && !RELAXED_LOAD(it->is_measured) && lasted_ns < LEARN_EACH_NS &&
	    it->lasted_sum_ns)
		return it->began_ns + lasted_ns * it->took_sum_ns / it->lasted_sum_ns;
	took_ns = measure_period(it, lasted_ns);
	if (!exact)
		note_period(it, took_ns, lasted_ns, now_ns);
	return it->began_ns + took_ns;
}

/* Whether the launches after the last mark are over. The answer is known if all of them went to the
 * stream of the next launch. */
static bool is_through(struct in_flight *it, const struct pace_work *work)
{
	if (RELAXED_LOAD(it->marked) == RELAXED_LOAD(it->launches))
		return true;
	return work && !RELAXED_LOAD(it->mixed) && RELAXED_LOAD(it->stream) == meter_stream(work) &&
	       !pace_driver->is_busy(work);
}

/* Whether the launches after the last mark count as over, because no thread has looked for so long
 * that no more is paid for them. Launches after a mark follow it within MARK_MOST_NS. */
static bool is_tail_old(const struct in_flight *it, uint64_t now_ns)
{
	return meter_since(now_ns, RELAXED_LOAD(it->marked_ns)) >= TAIL_MOST_NS &&
	       meter_since(now_ns, RELAXED_LOAD(it->began_ns)) >= TAIL_MOST_NS;
}

/* False: a thread is inside the driver's call with a launch that belongs to the period. */
static bool end_period(struct in_flight *it)
{
	__atomic_store_n(&it->is_busy, false, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&it->entered, __ATOMIC_SEQ_CST))
		return true;
	RELAXED_STORE(it->is_busy, true);
	return false;
}

/* Adapts to a launch that found the device busy or idle. */
static void adapt(struct in_flight *it, bool busy)
{
	uint64_t interval_ns = busy ? 2 * interval_of(it) : MARK_LEAST_NS;

	RELAXED_STORE(it->interval_ns, interval_ns < MARK_MOST_NS ? interval_ns : MARK_MOST_NS);
}

/* Whether one question about the next launch's stream is likely to show that all work is over. It
 * did so for the last launch that looked. */
static bool is_soon_told(const struct in_flight *it, const struct pace_work *work)
{
	return work && !RELAXED_LOAD(it->mixed_period) &&
	       RELAXED_LOAD(it->stream) == meter_stream(work) && interval_of(it) == MARK_LEAST_NS;
}

static bool any_in_period(struct in_flight *it, const struct pace_work *work, bool marks,
			  uint64_t now_ns)
{
	bool over = !marks && is_soon_told(it, work) && !pace_driver->is_busy(work);

	if (any_pending(it, over, now_ns))
		return true;
	if (over || !it->context || is_through(it, work) || is_tail_old(it, now_ns))
		return false;
	if (marks)
		mark_all(it, true, now_ns);
	return true;
}

bool in_flight_look(struct in_flight *it, const struct pace_work *work, bool marks, uint64_t now_ns,
		    uint64_t *ret_ended_ns)
{
	bool busy = true;

	*ret_ended_ns = 0;
	if (work) {
		RELAXED_STORE(it->looked_ns, now_ns);
		RELAXED_STORE(it->looked_at, RELAXED_LOAD(it->launches));
	}
	if (!RELAXED_LOAD(it->is_busy))
		return false;
	if (!lock_try(&it->lock))
		return true;
	if (!it->is_busy) {
		busy = false;
	} else if (!any_in_period(it, work, marks, now_ns) && end_period(it)) {
		busy = false;
		*ret_ended_ns = ended_ns(it, marks || it->is_exact, now_ns);
		RELAXED_STORE(it->reached, RELAXED_LOAD(it->launches));
		RELAXED_STORE(it->reached_ns, *ret_ended_ns);
	}
	lock_release(&it->lock);
	if (work && !marks)
		adapt(it, busy);
	return busy;
}

uint64_t in_flight_ahead_ns(const struct in_flight *it)
{
	return (RELAXED_LOAD(it->launches) - RELAXED_LOAD(it->reached)) * RELAXED_LOAD(it->mean_ns);
}

void in_flight_adopt(struct in_flight *it, const struct pace_work *work, uint64_t now_ns)
{
	in_flight_begin(it, work, now_ns);
	lock_acquire(&it->lock);
	it->is_exact = true;
	it->begin_is_recorded = false; /* the event would be after launches that are in flight */
	RELAXED_STORE(it->mixed_period, true); /* and those may be in any stream */
	lock_release(&it->lock);
	in_flight_submitted(it, work, true, now_ns);
	in_flight_left(it);
}

void in_flight_end_context(struct in_flight *it, const void *context)
{
	lock_acquire(&it->lock);
	for (unsigned i = 0; i < IN_FLIGHT_MARKS; i++)
		if (it->mark[i].context == context)
			it->mark[i] = (struct in_flight_mark){.event = NULL};
	while (it->head != it->tail && !mark_at(it, it->head)->event)
		it->head++;
	if (it->begin_context == context) {
		it->begin = it->begin_context = NULL;
		it->begin_is_recorded = false;
	}
	if (it->context == context)
		RELAXED_STORE(it->context, NULL);
	lock_release(&it->lock);
}
