/*
 * To end a window and begin the next costs as much time as about two launches. In programs whose
 * waits mostly leave the device idle, each wait may end a window. In relaxed mode (meter.h) a wait
 * ends only a window that began after a wait, and such a window begins about once in SYNC_RELAXED
 * * SYNC_WINDOW_NS. A program that keeps the device busy waits for an event now and then, or before
 * each launch: such waits end no window.
 */
#include "sync.h"

#include "by_turn.h"
#include "clock.h"
#include "cores.h"
#include "lease.h"
#include "member.h"
#include "membership.h"
#include "turns.h"
#include "utilisation.h"
#include "window.h"

static PACE_OF_THREAD struct {
	struct meter *meter; /* of the device of the last launch; NULL: none */
	struct pace_work work;
	uint64_t streams_ended; /* the counter at the last launch */
	enum sync_state since;
	bool partial;      /* a wait may have been for less than all work */
	bool whole;        /* the last wait was for all work */
	bool settled;      /* all work is in windows that have ended, or has finished */
	bool clean;        /* the window begins after the last wait, so nothing idle is in it */
	uint64_t began_ns; /* when the last wait began */
	uint64_t due_ns;   /* when the first wait should have ended, by learned costs */
	uint64_t over_ns;  /* when the last wait ended that found work in flight */
} last;

static struct lock ending = LOCK_INIT; /* held while the driver uses a stream of `last` */
static uint64_t streams_ended;         /* calls of pace_end_streams(); written under `ending` */

void pace_end_streams(void)
{
	lock_acquire(&ending);
	RELAXED_ADD(streams_ended, 1);
	lock_release(&ending);
}

void sync_forked(void)
{
	lock_init(&ending);
	last.meter = NULL;
}

void sync_submitted(struct meter *meter, const struct pace_work *work)
{
	last.meter = meter;
	last.work = *work;
	last.streams_ended = RELAXED_LOAD(streams_ended);
	last.since = SYNC_NONE;
	last.partial = last.settled = false;
}

void sync_go_by_gang(void)
{
	last.meter = NULL;
	last.since = SYNC_NONE;
}

bool pace_is_last(const struct pace_work *work)
{
	return last.meter && meter_stream(work) == meter_stream(&last.work);
}

/* -- before a wait ---------------------------------------------------------------------------- */

/* Whether an event after this thread's last launch is after all work of the process on the device.
 * No other thread launched since, and with several streams the event is a fence. The streams must
 * be this thread's, as another thread's next launch would run before a fence that begins a window.
 * current: the context whose default stream the event may go to. */
static bool is_all(const struct meter *meter, const void *current, uint64_t now_ns)
{
	if ((uintptr_t)last.work.stream <= PACE_LAST_DEFAULT_STREAM && last.work.context != current)
		return false;
	if (!meter_is_own(meter) || meter_mixes_contexts(meter, now_ns))
		return false;
	return !meter_is_mixed(meter, now_ns) ||
	       (RELAXED_LOAD(meter->fenced) && !meter_mixes_threads(meter, now_ns));
}

static bool is_worth_it(const struct meter *meter, bool of_all)
{
	return (of_all || RELAXED_LOAD(meter->idle_waits) > 0) &&
	       (last.clean || meter_relax_factor(meter) == 1);
}

/* Ends the window, after the launches under a lease were charged to it. NOTHING: it stays; IDLE:
 * the device has no work, so no event was recorded. */
static enum { NOTHING, ENDED, IDLE } end_window(struct meter *meter, uint64_t now_ns)
{
	bool busy, ended;

	lease_return();
	if (!RELAXED_LOAD(meter->window.launches) || !lock_try(&ending))
		return NOTHING;
	if (last.streams_ended != RELAXED_LOAD(streams_ended)) { /* the stream may be destroyed */
		lock_release(&ending);
		return NOTHING;
	}
	busy = meter_is_busy(meter, &last.work, now_ns) ||
	       (meter_is_mixed(meter, now_ns) && !backlog_is_idle(&meter->backlog, now_ns));
	ended = busy && window_split(meter, &last.work, now_ns);
	lock_release(&ending);
	last.settled = ended || !busy;
	return ended ? ENDED : busy ? NOTHING : IDLE;
}

/* Whether a window is open that may end at this point. */
static bool may_end(struct meter *meter, const void *current, uint64_t now_ns)
{
	return RELAXED_LOAD(meter->window.span) && is_all(meter, current, now_ns);
}

static void end_before_wait(const void *current, bool of_all)
{
	struct meter *meter = last.meter;
	uint64_t now_ns;

	if (!meter || !cores_region())
		return;
	now_ns = clock_steady_ns();
	if (last.since == SYNC_NONE) {
		last.since = SYNC_MAYBE;
		last.due_ns = last.over_ns = now_ns + backlog_ahead_ns(&meter->backlog, now_ns);
	}
	last.began_ns = now_ns;
	last.partial |= !of_all;
	last.whole = of_all;
	if (!last.settled && may_end(meter, current, now_ns) && is_worth_it(meter, of_all) &&
	    end_window(meter, now_ns) == ENDED) {
		RELAXED_STORE(meter->settle_at_ns,
			      0); /* the window finishes with the wait, and spans are few */
		if (last.since == SYNC_MAYBE)
			last.since = SYNC_ENDED;
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

/* Whether the process has no work on the device: this thread waited for all of it, or all of it
 * should have finished by learned costs. */
static bool is_drained(struct meter *meter, uint64_t now_ns)
{
	if (RELAXED_LOAD(meter->entered) > 0)
		return false;
	return (last.whole && meter_is_own(meter) && !meter_is_mixed(meter, now_ns)) ||
	       backlog_is_idle(&meter->backlog, now_ns);
}

/* A program may wait for many events that have occurred already. Such short waits do not move
 * over_ns, as the time between them is the host's. */
void pace_waited(void)
{
	uint64_t now_ns;

	pace_until_check = PACE_RECHECK;
	members_waited();
	by_turn_waited();
	if (!last.meter || last.since == SYNC_NONE)
		return;
	now_ns = clock_steady_ns();
	if (meter_since(now_ns, last.began_ns) >= SYNC_AT_ONCE_NS)
		last.over_ns = now_ns;
	if (is_drained(last.meter, now_ns))
		utilisation_rest(last.meter, now_ns);
}

bool pace_has_waited(void)
{
	return last.meter && last.since != SYNC_NONE && meter_relax_factor(last.meter) > 1 &&
	       !membership_exists() && !turns_any_shared();
}

void pace_found_over(void)
{
	uint64_t now_ns;

	if (!RELAXED_LOAD(last.meter->work_at_ns))
		return;
	now_ns = clock_steady_ns();
	if (is_drained(last.meter, now_ns))
		utilisation_rest(last.meter, now_ns);
}

void pace_found_busy(void)
{
	pace_until_check = PACE_RECHECK;
	if (last.meter && last.since != SYNC_NONE)
		last.over_ns = last.began_ns;
}

/* Counts a wait that may have been for less than all work. */
static void note(struct meter *meter, bool is_idle)
{
	int32_t idle_waits = RELAXED_LOAD(meter->idle_waits);

	if (is_idle && idle_waits < SYNC_IDLE)
		RELAXED_STORE(meter->idle_waits, idle_waits + 2);
	else if (!is_idle && idle_waits > -SYNC_IDLE)
		RELAXED_STORE(meter->idle_waits, idle_waits - 1);
}

/* Whether another window may begin after a wait. The interval is random, because a program that
 * repeats itself would otherwise be measured at the same place each time. */
static bool is_time(struct meter *meter, uint64_t now_ns)
{
	uint64_t mean_ns = SYNC_WINDOW_NS * (meter_relax_factor(meter) > 1 ? SYNC_RELAXED : 1);

	if (now_ns < RELAXED_LOAD(meter->next_window_at_ns))
		return false;
	RELAXED_STORE(meter->next_window_at_ns, now_ns + meter_chance(now_ns, 2 * mean_ns));
	return true;
}

void pace_will_copy(const struct pace_work *copy, uint64_t bytes)
{
	struct meter *meter = last.meter;
	uint64_t now_ns;

	if (bytes < SYNC_COPY_BYTES || !pace_is_last(copy) || !cores_region())
		return;
	now_ns = clock_steady_ns();
	if (!may_end(meter, copy->context, now_ns))
		return;
	if ((bytes < SYNC_COPY_LONG || meter_relax_factor(meter) > 1) && !is_time(meter, now_ns))
		return;
	if (end_window(meter, now_ns) == IDLE && last.since == SYNC_MAYBE && last.partial)
		note(meter, true);
	if (!RELAXED_LOAD(meter->window.launches))
		last.since = SYNC_COPIED;
}

/* With kernels in several streams, a stream mostly waits for another stream's kernels, as libraries
 * order their work by events. The device is busy then, so this is no stall. */
void pace_will_stall(const struct pace_work *work)
{
	struct meter *meter = last.meter;
	uint64_t now_ns;

	if (!meter || !pace_is_last(work) || !cores_region())
		return;
	now_ns = clock_steady_ns();
	if (meter_is_mixed(meter, now_ns))
		return;
	RELAXED_STORE(meter->stalls_at_ns, now_ns);
	if (may_end(meter, work->context, now_ns) &&
	    (meter_relax_factor(meter) == 1 || is_time(meter, now_ns)))
		end_window(meter, now_ns);
	if (RELAXED_LOAD(meter->window.launches)) /* a window with a stall in it measures nothing */
		meter_break(meter);
	else
		last.since = SYNC_COPIED;
}

/* -- after a wait ----------------------------------------------------------------------------- */

enum sync_state sync_since(const struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	bool same =
		last.meter == meter && last.work.context == work->context &&
		(meter_stream(&last.work) == meter_stream(work) || meter_is_mixed(meter, now_ns));

	return same ? last.since : SYNC_NONE;
}

/* Adds to meter->unexplained_ns how much longer the waits took than learned costs say, less the
 * time that a host takes to wake up. The sum falls as time passes. */
static void add_unexplained(struct meter *meter, uint64_t now_ns)
{
	uint64_t more_ns = meter_since(last.over_ns, last.due_ns),
		 ns = RELAXED_LOAD(meter->unexplained_ns);
	uint64_t less_ns =
		meter_since(now_ns, RELAXED_LOAD(meter->unexplained_at_ns)) / SYNC_UNEXPLAINED_PART;

	more_ns = more_ns > SYNC_WAKE_NS ? more_ns - SYNC_WAKE_NS : 0;
	ns = ns > less_ns ? ns - less_ns : 0;
	RELAXED_STORE(meter->unexplained_ns, ns + more_ns < SYNC_UNEXPLAINED_MOST_NS
						     ? ns + more_ns
						     : SYNC_UNEXPLAINED_MOST_NS);
	RELAXED_STORE(meter->unexplained_at_ns, now_ns);
}

/* No window begins after a wait while another thread is inside a launch, which would be in no
 * window. In relaxed mode, a window that did not end at the wait is dropped for the new one. */
void sync_open_window(struct meter *meter, const struct pace_work *work, uint64_t now_ns,
		      enum sync_state since, bool is_idle)
{
	bool is_relaxed, alone = meter_is_own(meter) && RELAXED_LOAD(meter->entered) <= 0;

	add_unexplained(meter, now_ns);
	is_relaxed = meter_relax_factor(meter) > 1;
	if (since == SYNC_COPIED && alone && !RELAXED_LOAD(meter->window.launches)) {
		last.clean = window_reopen(meter, work, now_ns, true);
		return;
	}
	if (since == SYNC_ENDED && alone && (!is_relaxed || is_time(meter, now_ns)))
		last.clean = is_idle = window_reopen(meter, work, now_ns, false);
	else if (since == SYNC_MAYBE && alone && is_relaxed && is_idle && is_time(meter, now_ns))
		last.clean = window_reopen(meter, work, now_ns, true);
	else
		window_open(meter, work, now_ns, is_idle && since != SYNC_ENDED);
	if (last.partial)
		note(meter, is_idle);
}
