/*
 * To end a window and to begin the next takes about as long as two launches. Where waits mostly are
 * for all that there is, as the device is idle behind them, each may end one; in relaxed mode
 * (meter.h) only what has begun behind one, which is one in WAITS_RELAXED * WAITS_NS. A program
 * that keeps the device busy waits for an event now and then, or before each launch: such waits end
 * no window.
 */
#include "waits.h"

#include "by_turn.h"
#include "clock.h"
#include "cores.h"
#include "lease.h"
#include "member.h"
#include "turns.h"
#include "utilisation.h"
#include "window.h"

static PACE_OF_THREAD struct {
	struct meter *meter; /* of the device that was given something last; NULL: none */
	struct pace_work work;
	uint64_t streams_ended; /* as it was then */
	enum waits since;
	bool partial;      /* it has waited for what may be less than all */
	bool whole;        /* the last wait was for all */
	bool settled;      /* all of it is in windows that have ended, or is over */
	bool clean;        /* nothing idle is in the window: it begins behind the last wait */
	uint64_t began_ns; /* the last wait */
	uint64_t due_ns;   /* when the first should be over, as costs say, and */
	uint64_t over_ns;  /* when the last was that had something to wait for */
} last;

static struct lock ending = LOCK_INIT; /* held while the driver is given a stream of `last` */
static uint64_t streams_ended;         /* how often; written under `ending` */

void pace_end_streams(void)
{
	lock_acquire(&ending);
	ADD(streams_ended, 1);
	lock_release(&ending);
}

void waits_forget(void)
{
	lock_init(&ending);
	last.meter = NULL;
}

void waits_submitted(struct meter *meter, const struct pace_work *work)
{
	last.meter = meter;
	last.work = *work;
	last.streams_ended = LOAD(streams_ended);
	last.since = WAITS_NONE;
	last.partial = last.settled = false;
}

void waits_go_by_gang(void)
{
	last.meter = NULL;
	last.since = WAITS_NONE;
}

bool pace_is_last(const struct pace_work *work)
{
	return last.meter && meter_stream(work) == meter_stream(&last.work);
}

/* -- before it -------------------------------------------------------------------------------- */

/* Whether an event behind this thread's last launch is behind all that the process has on the
 * device: nobody launched since, and it is a fence if there are several streams. Those are not
 * other threads': what one is about to submit would run before a fence that is to begin a window.
 * current: the default stream is that context's. */
static bool is_all(const struct meter *meter, const void *current, uint64_t now_ns)
{
	if ((uintptr_t)last.work.stream <= PACE_LAST_DEFAULT_STREAM && last.work.context != current)
		return false;
	if (!meter_is_own(meter) || meter_mixes_contexts(meter, now_ns))
		return false;
	return !meter_is_mixed(meter, now_ns) ||
	       (LOAD(meter->fenced) && !meter_mixes_threads(meter, now_ns));
}

static bool is_worth_it(const struct meter *meter, bool of_all)
{
	return (of_all || LOAD(meter->idle_waits) > 0) &&
	       (last.clean || meter_relax_factor(meter) == 1);
}

/* With what has gone by a lease. What becomes of it: */
static enum { NOTHING, ENDED, IDLE } end_window(struct meter *meter, uint64_t now_ns)
{
	bool busy, ended;

	lease_return();
	if (!LOAD(meter->window.launches) || !lock_try(&ending))
		return NOTHING;
	if (last.streams_ended != LOAD(streams_ended)) { /* it may be gone */
		lock_release(&ending);
		return NOTHING;
	}
	busy = meter_is_busy(meter, &last.work, now_ns) ||
	       (meter_is_mixed(meter, now_ns) && !tally_is_idle(&meter->tally, now_ns));
	ended = busy && window_split(meter, &last.work, now_ns);
	lock_release(&ending);
	last.settled = ended || !busy;
	return ended ? ENDED : busy ? NOTHING : IDLE;
}

/* Whether there is a window whose end may be now. */
static bool may_end(struct meter *meter, const void *current, uint64_t now_ns)
{
	return LOAD(meter->window.span) && is_all(meter, current, now_ns);
}

static void end_before_wait(const void *current, bool of_all)
{
	struct meter *meter = last.meter;
	uint64_t now_ns;

	if (!meter || !cores_region())
		return;
	now_ns = clock_steady_ns();
	if (last.since == WAITS_NONE) {
		last.since = WAITS_MAYBE;
		last.due_ns = last.over_ns = now_ns + tally_ahead_ns(&meter->tally, now_ns);
	}
	last.began_ns = now_ns;
	last.partial |= !of_all;
	last.whole = of_all;
	if (!last.settled && may_end(meter, current, now_ns) && is_worth_it(meter, of_all) &&
	    end_window(meter, now_ns) == ENDED) {
		STORE(meter->settle_at_ns, 0); /* it is over then, and spans are few */
		if (last.since == WAITS_MAYBE)
			last.since = WAITS_ENDED;
	}
	last.clean = false;
}

void pace_will_wait(const void *current, bool of_all)
{
	members_will_wait();
	by_turn_will_wait();
	end_before_wait(current, of_all);
}

void pace_will_look(const void *current, bool of_all)
{
	members_will_look();
	by_turn_will_look();
	end_before_wait(current, of_all);
}

/* Whether the process has nothing on the device: this thread waited for all of it, or it should be
 * over as costs say. */
static bool is_drained(struct meter *meter, uint64_t now_ns)
{
	if (LOAD(meter->entered) > 0)
		return false;
	return (last.whole && meter_is_own(meter) && !meter_is_mixed(meter, now_ns)) ||
	       tally_is_idle(&meter->tally, now_ns);
}

/* Programs look at each event of many that are over: between those waits it is the host that takes
 * its time. */
void pace_waited(void)
{
	uint64_t now_ns;

	pace_left = PACE_ANEW;
	members_waited();
	by_turn_waited();
	if (!last.meter || last.since == WAITS_NONE)
		return;
	now_ns = clock_steady_ns();
	if (meter_since(now_ns, last.began_ns) >= WAITS_AT_ONCE_NS)
		last.over_ns = now_ns;
	if (is_drained(last.meter, now_ns))
		utilisation_rest(last.meter, now_ns);
}

bool pace_has_waited(void)
{
	return last.meter && last.since != WAITS_NONE && meter_relax_factor(last.meter) > 1 &&
	       !members_any() && !turns_any_shared();
}

void pace_found_over(void)
{
	uint64_t now_ns;

	if (!LOAD(last.meter->work_at_ns))
		return;
	now_ns = clock_steady_ns();
	if (is_drained(last.meter, now_ns))
		utilisation_rest(last.meter, now_ns);
}

void pace_found_busy(void)
{
	pace_left = PACE_ANEW;
	if (last.meter && last.since != WAITS_NONE)
		last.over_ns = last.began_ns;
}

/* Of a wait that may have been for less than all. */
static void note(struct meter *meter, bool is_idle)
{
	int32_t idle_waits = LOAD(meter->idle_waits);

	if (is_idle && idle_waits < WAITS_IDLE)
		STORE(meter->idle_waits, idle_waits + 2);
	else if (!is_idle && idle_waits > -WAITS_IDLE)
		STORE(meter->idle_waits, idle_waits - 1);
}

/* Whether it is time for one more. By chance: what recurs would else always be met at the same
 * place. */
static bool is_time(struct meter *meter, uint64_t now_ns)
{
	uint64_t mean_ns = WAITS_NS * (meter_relax_factor(meter) > 1 ? WAITS_RELAXED : 1);

	if (now_ns < LOAD(meter->anew_at_ns))
		return false;
	STORE(meter->anew_at_ns, now_ns + meter_chance(now_ns, 2 * mean_ns));
	return true;
}

void pace_will_copy(const struct pace_work *copy, uint64_t bytes)
{
	struct meter *meter = last.meter;
	uint64_t now_ns;

	if (bytes < WAITS_COPY_BYTES || !pace_is_last(copy) || !cores_region())
		return;
	now_ns = clock_steady_ns();
	if (!may_end(meter, copy->context, now_ns))
		return;
	if ((bytes < WAITS_COPY_LONG || meter_relax_factor(meter) > 1) && !is_time(meter, now_ns))
		return;
	if (end_window(meter, now_ns) == IDLE && last.since == WAITS_MAYBE && last.partial)
		note(meter, true);
	if (!LOAD(meter->window.launches))
		last.since = WAITS_COPIED;
}

/* Where several streams have kernels, it is one of those that the other waits for, mostly, as
 * libraries order their work by events: then the device is busy meanwhile. */
void pace_will_stall(const struct pace_work *work)
{
	struct meter *meter = last.meter;
	uint64_t now_ns;

	if (!meter || !pace_is_last(work) || !cores_region())
		return;
	now_ns = clock_steady_ns();
	if (meter_is_mixed(meter, now_ns))
		return;
	STORE(meter->stalls_at_ns, now_ns);
	if (may_end(meter, work->context, now_ns) &&
	    (meter_relax_factor(meter) == 1 || is_time(meter, now_ns)))
		end_window(meter, now_ns);
	if (LOAD(meter->window.launches)) /* what has the stall in it says nothing */
		meter_break(meter);
	else
		last.since = WAITS_COPIED;
}

/* -- behind it -------------------------------------------------------------------------------- */

enum waits waits_since(const struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	bool same =
		last.meter == meter && last.work.context == work->context &&
		(meter_stream(&last.work) == meter_stream(work) || meter_is_mixed(meter, now_ns));

	return same ? last.since : WAITS_NONE;
}

/* How much longer waits take than costs say, above what a host takes to wake up, less a part of the
 * time that goes by. */
static void doubt(struct meter *meter, uint64_t now_ns)
{
	uint64_t more_ns = meter_since(last.over_ns, last.due_ns), ns = LOAD(meter->doubt_ns);
	uint64_t less_ns = meter_since(now_ns, LOAD(meter->doubted_at_ns)) / WAITS_DOUBT_PART;

	more_ns = more_ns > WAITS_WAKE_NS ? more_ns - WAITS_WAKE_NS : 0;
	ns = ns > less_ns ? ns - less_ns : 0;
	STORE(meter->doubt_ns,
	      ns + more_ns < WAITS_DOUBT_MOST_NS ? ns + more_ns : WAITS_DOUBT_MOST_NS);
	STORE(meter->doubted_at_ns, now_ns);
}

/* Not behind what another thread is just giving to the driver, which would be in no window. In
 * relaxed mode, what is in a window that did not end at the wait is given up for the new one. */
void waits_open(struct meter *meter, const struct pace_work *work, uint64_t now_ns,
		enum waits since, bool is_idle)
{
	bool is_relaxed, alone = meter_is_own(meter) && LOAD(meter->entered) <= 0;

	doubt(meter, now_ns);
	is_relaxed = meter_relax_factor(meter) > 1;
	if (since == WAITS_COPIED && alone && !LOAD(meter->window.launches)) {
		last.clean = window_open_anew(meter, work, now_ns, true);
		return;
	}
	if (since == WAITS_ENDED && alone && (!is_relaxed || is_time(meter, now_ns)))
		last.clean = is_idle = window_open_anew(meter, work, now_ns, false);
	else if (since == WAITS_MAYBE && alone && is_relaxed && is_idle && is_time(meter, now_ns))
		last.clean = window_open_anew(meter, work, now_ns, true);
	else
		window_open(meter, work, now_ns, is_idle && since != WAITS_ENDED);
	if (last.partial)
		note(meter, is_idle);
}
