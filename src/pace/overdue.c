/*
 * When a wait ends without success, the spans that it waited for are given up (due_ns is
 * SPANS_NONE), and no launch waits for them again. The span of a kernel that is known to wait for
 * launches begins in that state. Some launches after such a kernel go at once, even into debt; the
 * next kernel of that kind waits until the debt is paid. A kernel may be marked wrongly, because it
 * ended by chance when a launch was released. After some runs it is measured again (COST_WAITS).
 */
#include "overdue.h"

#include "clock.h"
#include "relaxed.h"
#include "sys.h"
#include "trace.h"

#define LONG_AGO 1 /* a time; 0 would mean unknown */

/* -- waiting ---------------------------------------------------------------------------------- */

/* Sleeps that get longer. The first eight only spin, as short kernels finish at once. */
static void nap(unsigned *naps)
{
	unsigned count = (*naps)++;

	if (count < 8)
		for (unsigned i = 0; i < 100; i++)
			__asm__ volatile("" ::: "memory");
	else
		sys_sleep_ns(count < 16   ? 20 * NS_PER_US
			     : count < 32 ? 200 * NS_PER_US
					  : NS_PER_MS);
}

static void prepay(struct meter *meter, int64_t more_ns)
{
	RELAXED_ADD(meter->prepaid_ns, more_ns);
	meter_correct(meter, more_ns);
}

/* The device was busy for waited_ns with the overdue work or with work before it. The process pays
 * first, as another thread may find the work finished at once. before: meter->given_up before the
 * wait. */
static void give_up(struct meter *meter, const struct pace_work *work, uint64_t overdue_ns,
		    uint64_t waited_ns, int32_t before)
{
	unsigned count;

	prepay(meter, (int64_t)waited_ns);
	count = spans_give_up(work->context, overdue_ns, waited_ns);
	if (!count && RELAXED_LOAD(meter->given_up) >= before) {
		RELAXED_STORE(meter->no_progress, true);
		prepay(meter, -(int64_t)waited_ns);
		return;
	}
	RELAXED_STORE(meter->awaited, OVERDUE_AWAITED);
	if (!count)
		return;
	RELAXED_ADD(meter->given_up, (int32_t)count);
	RELAXED_ADD(meter->stuck, (int32_t)count);
	RELAXED_ADD(meter->timeouts, 1);
}

/* Work that was due by the returned time is overdue at now_ns. */
static uint64_t overdue_at(const struct meter *meter, uint64_t now_ns)
{
	bool after_known =
		meter_others(meter) || meter_stalls(meter, now_ns) || meter_is_mixed(meter, now_ns);

	return now_ns - (after_known ? OVERDUE_BEHIND_NS : OVERDUE_NS);
}

/* Whether the work of unknown cost has not begun, because known work is before it. False while a
 * kernel in flight may wait for launches. */
static bool is_behind(const struct meter *meter, const struct spans_left *left)
{
	return left->after_known && RELAXED_LOAD(meter->stuck) <= 0;
}

/* How long a launch waits. The time doubles for each wait that ended without success and whose work
 * has not finished. A kernel may well wait for the next launch, but hardly for the third. */
static uint64_t patience(const struct meter *meter, const struct spans_left *left)
{
	int32_t timeouts = RELAXED_LOAD(meter->timeouts);
	uint64_t ns = RELAXED_LOAD(meter->patience_ns) << (timeouts < 0   ? 0
							   : timeouts > 8 ? 8
									  : timeouts);

	if (left->same_cost)
		ns *= PATIENCE_ALIKE;
	else if (left->due_ns || is_behind(meter, left))
		ns *= PATIENCE_KNOWN;
	return ns < PATIENCE_MOST_NS ? ns : PATIENCE_MOST_NS;
}

/* Whether finished spans are to be settled: now and then, and at once while work of unknown cost is
 * in flight. */
static bool is_due(const struct meter *meter, uint64_t now_ns)
{
	return now_ns >= RELAXED_LOAD(meter->settle_at_ns);
}

/* The next settling is when the first span is due, within SETTLE_MOST_NS; and at once if a span is
 * overdue, as launches wait for it. */
static void plan_settling(struct meter *meter, uint64_t due_ns, uint64_t now_ns)
{
	uint64_t at_ns = now_ns + SETTLE_EACH_NS * meter_relax_factor(meter);

	if (due_ns > at_ns)
		at_ns = due_ns < now_ns + SETTLE_MOST_NS ? due_ns : now_ns + SETTLE_MOST_NS;
	RELAXED_STORE(meter->settle_at_ns, due_ns <= overdue_at(meter, now_ns) ? 0 : at_ns);
}

/* Whether a kernel in flight may wait for a launch of that cost. */
static bool is_awaited(struct meter *meter, const struct cost *cost)
{
	int32_t awaited = RELAXED_LOAD(meter->awaited);

	if (awaited <= 0 || RELAXED_LOAD(meter->stuck) <= 0 || cost_ns(cost) == COST_UNKNOWN ||
	    bucket_level(meter->bucket) < OVERDUE_AWAITED_NS)
		return false;
	RELAXED_STORE(meter->awaited, awaited - 1); /* two threads at once may count as one */
	return true;
}

/* If the table of spans is full, the first span counts as overdue. Launches until it has finished
 * would be paid by learned costs alone, and if those are too low, ever more work would be in
 * flight. */
static struct spans_left look(const struct meter *meter, const struct pace_work *work,
			      const struct pace_pass *pass, span_done_fn *settle)
{
	struct spans_left left = spans_settle(work->context, pass->cost, settle);

	if (left.full && left.due_ns && !RELAXED_LOAD(meter->no_progress))
		left.due_ns = LONG_AGO;
	return left;
}

static void note_held(const struct meter *meter, const struct spans_left *left)
{
	uint64_t patience_ns = patience(meter, left);

	if (!left->due_ns)
		trace_write_of(TRACE_HELD_UNKNOWN, meter->bucket, (int64_t)patience_ns, 0);
	else
		trace_write_of(TRACE_HELD_OVERDUE, meter->bucket,
			       left->due_ns == LONG_AGO
				       ? -1
				       : (int64_t)meter_since(clock_steady_ns(), left->due_ns),
			       (int64_t)patience_ns);
}

/* Waits until the overdue work has finished, until patience ends, or until the slice has no limit.
 */
static int wait(struct meter *meter, const struct pace_work *work, struct pace_pass *pass,
		span_done_fn *settle, struct spans_left left)
{
	bool open = bucket_is_open(meter->bucket);
	uint64_t began_ns = clock_steady_ns(), overdue_ns;
	const uint64_t held_ns = began_ns;
	int32_t given_up = RELAXED_LOAD(meter->given_up);
	unsigned naps = 0;
	int error = 0;

	if (trace_is_wanted())
		note_held(meter, &left);
	while (!error && left.due_ns <= (overdue_ns = overdue_at(meter, clock_steady_ns()))) {
		uint64_t patience_ns = patience(meter, &left);
		struct spans_left now;
		bool after_known = is_behind(meter, &left);

		if (clock_steady_ns() - began_ns >= patience_ns) {
			give_up(meter, work, overdue_ns, patience_ns, given_up);
			if (trace_is_wanted())
				trace_add_of(TRACE_GAVE_UP, meter->bucket, (int64_t)patience_ns,
					     bucket_level(meter->bucket));
			pass->bypasses_bucket = open;
			pass->held = true;
			break;
		}
		nap(&naps);
		if (naps % 16 == 0) {
			pace_driver->refresh_limits();
			error = pace_wait_monitor();
			if (!pace_is_limited(work->device))
				break;
		}
		now = look(meter, work, pass, settle);
		if (!now.contended)
			left = now;
		if (after_known && !is_behind(meter, &left))
			began_ns = clock_steady_ns();
	}
	if (trace_is_wanted())
		trace_add_of(TRACE_RELEASED, meter->bucket, (int64_t)(clock_steady_ns() - held_ns),
			     bucket_level(meter->bucket));
	return error;
}

int overdue_wait(struct meter *meter, const struct pace_work *work, struct pace_pass *pass,
		 span_done_fn *settle, uint64_t *now_ns)
{
	struct spans_left left = {.due_ns = SPANS_NONE};
	int error = 0;

	if (!spans_any())
		return 0;
	if (cost_waits(pass->cost) || is_due(meter, *now_ns)) {
		left = look(meter, work, pass, settle);
		plan_settling(meter, left.due_ns, *now_ns);
		*now_ns = clock_steady_ns();
	}
	if (is_awaited(meter, pass->cost)) {
		pass->bypasses_bucket = true;
		pass->held = !bucket_is_open(meter->bucket);
	} else if (left.due_ns != SPANS_NONE && left.due_ns <= overdue_at(meter, *now_ns)) {
		error = wait(meter, work, pass, settle, left);
		*now_ns = clock_steady_ns();
	}
	return error;
}

/* -- after waits without success ------------------------------------------------------------- */

/* Learns from work that was given up. If the work finished soon after a waiting launch was
 * admitted, it probably waited for that launch. Then the next wait is shorter, and the function
 * returns true. If it took more than twice as long as the wait, the next wait is longer. */
static bool learn(const struct span *span, uint64_t took_ns)
{
	struct meter *meter = span->meter;
	uint64_t patience_ns = RELAXED_LOAD(meter->patience_ns),
		 let_go_ns = RELAXED_LOAD(meter->let_go_ns);

	if (took_ns >= PATIENCE_LEAST_NS &&
	    span->closed_ns + took_ns - let_go_ns < OVERDUE_WAITED_NS) {
		if (patience_ns > PATIENCE_LEAST_NS)
			RELAXED_STORE(meter->patience_ns, patience_ns / 2);
		return true;
	}
	if (span->launch_waited_ns && took_ns > 2 * span->launch_waited_ns &&
	    patience_ns < PATIENCE_MORE_NS)
		RELAXED_STORE(meter->patience_ns, patience_ns * 2);
	return false;
}

/* Finished spans are settled before the next launch, so that their end is not ascribed to it. */
void overdue_note_admitted(struct meter *meter, const struct pace_pass *pass, uint64_t now_ns)
{
	if (RELAXED_LOAD(meter->stuck) <= 0)
		return;
	if (pass->held)
		RELAXED_STORE(meter->let_go_ns, now_ns);
	if (RELAXED_LOAD(meter->awaited) > 0)
		RELAXED_STORE(meter->settle_at_ns, 0);
}

void overdue_mark_spinner(struct span *span)
{
	struct meter *meter = span->meter;

	span->due_ns = SPANS_NONE;
	span->expected = true;
	RELAXED_ADD(meter->stuck, 1);
	RELAXED_STORE(meter->awaited, OVERDUE_AWAITED);
}

bool overdue_settle(const struct span *span, uint64_t took_ns)
{
	struct meter *meter = span->meter;

	RELAXED_STORE(meter->no_progress, false);
	if (span->due_ns != SPANS_NONE)
		return false;
	if (RELAXED_SUB(meter->stuck, 1) <= 0)
		RELAXED_STORE(meter->awaited, 0);
	if (span->launch_waited_ns)
		RELAXED_SUB(meter->timeouts, 1);
	return took_ns != SPANS_NONE && span->kind == SPAN_SAMPLE && span->unknown &&
	       !span->expected && learn(span, took_ns);
}

/* Gives back what was paid for waits. Each finished span that had been given up gives back as much
 * as it was charged too little (more_ns). The last one gives back the rest. */
void overdue_refund(const struct span *span, int64_t more_ns)
{
	struct meter *meter = span->meter;
	int64_t prepaid_ns, back_ns = more_ns > 0 ? more_ns : 0;

	if (span->due_ns != SPANS_NONE || span->expected)
		return;
	prepaid_ns = RELAXED_LOAD(meter->prepaid_ns);
	if (RELAXED_SUB(meter->given_up, 1) <= 0 || back_ns > prepaid_ns)
		back_ns = prepaid_ns;
	prepay(meter, -back_ns);
}
