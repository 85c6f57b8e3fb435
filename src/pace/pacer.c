/*
 * The compute quota: when a launch is admitted, and what it is charged. docs/design/pacing.md has
 * the whole way of a launch; pace_enter and pace_leave are the last steps before the driver's call,
 * and the first ones after it.
 *
 * Launches that a gang or turns pace are passed on (member.c, by_turn.c). Any other launch is
 * charged its learned cost after the driver's call or, if the cost is unknown, when its sample
 * (sample.c) has finished. Windows (window.c) measure many launches at once, and make the sum
 * right.
 */
#include <errno.h>

#include "by_turn.h"
#include "clock.h"
#include "cores.h"
#include "gate.h"
#include "lease.h"
#include "member.h"
#include "meter.h"
#include "others.h"
#include "overdue.h"
#include "relaxed.h"
#include "sample.h"
#include "sync.h"
#include "sys.h"
#include "trace.h"
#include "turns.h"
#include "utilisation.h"
#include "window.h"

/* -- what was measured ------------------------------------------------------------------------ */

/* The span has not finished, so the work that was submitted after it has not finished either. If
 * costs are too low, the backlog would say that the device has finished everything and is idle; it
 * is corrected here. It is not corrected where the device may be working for neighbours, or for
 * another stream. Then the unfinished span says nothing of how much work is left. */
static void note_behind(const struct span *span)
{
	struct meter *meter = span->meter;
	uint64_t now_ns = clock_steady_ns();

	if (!meter_others(meter) && !meter_stalls(meter, now_ns) &&
	    RELAXED_LOAD(meter->stuck) <= 0 && span->stream == RELAXED_LOAD(meter->stream) &&
	    !meter_is_mixed(meter, now_ns) && !meter_mixes_contexts(meter, now_ns))
		backlog_extend_after(&meter->backlog, span->to.sure, now_ns);
}

static void settle(const struct span *span, uint64_t took_ns)
{
	int64_t more_ns = 0;
	bool waited;

	if (took_ns == SPANS_NOT_YET) {
		note_behind(span);
		return;
	}
	waited = overdue_settle(span, took_ns);
	if (span->kind == SPAN_SAMPLE)
		more_ns = sample_settle(span, took_ns, waited);
	else if (took_ns != SPANS_NONE)
		more_ns = window_settle(span, took_ns);
	overdue_refund(span, more_ns);
	trace_write_of(span->kind == SPAN_SAMPLE ? TRACE_SAMPLE : TRACE_WINDOW, span->meter->bucket,
		       took_ns == SPANS_NONE ? -1 : (int64_t)took_ns, more_ns);
}

/* -- waiting ---------------------------------------------------------------------------------- */

/* Returns for how long a thread sleeps that waits for the bucket. Submitted work may take less time
 * than was charged, so the sleep ends when that work should finish. Work that has not finished by
 * then takes longer than was charged. The sooner this is known, the fewer launches are admitted
 * before it is charged. */
static uint64_t nap_ns(uint64_t wait_ns, uint64_t due_ns, uint64_t now_ns)
{
	uint64_t most_ns = PACE_POLL_NS;

	if (due_ns != SPANS_NONE)
		most_ns = (due_ns > now_ns ? due_ns - now_ns : 0) + NAP_AFTER_NS;
	if (most_ns > PACE_POLL_NS)
		most_ns = PACE_POLL_NS;
	return wait_ns < most_ns ? wait_ns : most_ns;
}

/* Of the threads that wait for the bucket, one is admitted at a time, and the next one looks
 * after that launch has been charged. Otherwise all threads would use the credit of one launch. A
 * thread that the driver's call keeps for CHARGING_MOST_NS is not waited for, because that call may
 * wait for another thread's launch. */
static bool begin_charging(struct meter *meter, struct pace_pass *pass)
{
	uint64_t then_ns = RELAXED_LOAD(meter->charging_ns), now_ns = clock_steady_ns();

	if (then_ns && meter_since(now_ns, then_ns) < CHARGING_MOST_NS)
		return false;
	/* Pairs with end_charging's release: the launch before has been charged. */
	if (!__atomic_compare_exchange_n(&meter->charging_ns, &then_ns, now_ns, false,
					 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return false;
	pass->charging_ns = now_ns;
	return true;
}

static void end_charging(struct meter *meter, struct pace_pass *pass)
{
	uint64_t charging_ns = pass->charging_ns;

	if (charging_ns) /* which may be another's by now */
		__atomic_compare_exchange_n(&meter->charging_ns, &charging_ns, 0, false,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	pass->charging_ns = 0;
}

/* Whether the thread is admitted. If so, the others wait until end_charging(). */
static bool may_go(struct meter *meter, struct pace_pass *pass)
{
	if (!bucket_is_open(meter->bucket) || !begin_charging(meter, pass))
		return false;
	if (bucket_is_open(meter->bucket))
		return true;
	end_charging(meter, pass);
	return false;
}

/* Counts a launch that has to wait for the bucket, once. *held_at_ns is 0 before, and then the
 * time at which the wait began. */
static void note_held(struct meter *meter, bool open, unsigned pct, uint64_t *held_at_ns)
{
	if (*held_at_ns)
		return;
	*held_at_ns = clock_steady_ns();
	bucket_count_held(meter->bucket);
	trace_write_of(open ? TRACE_HELD_CHARGING : TRACE_HELD_SHUT, meter->bucket,
		       bucket_level(meter->bucket),
		       open ? 0 : (int64_t)bucket_wait_ns(meter->bucket, pct));
}

static void note_released(const struct meter *meter, uint64_t held_at_ns)
{
	if (held_at_ns && trace_is_wanted())
		trace_add_of(TRACE_RELEASED, meter->bucket,
			     (int64_t)meter_since(clock_steady_ns(), held_at_ns),
			     bucket_level(meter->bucket));
}

/* Whether something else than the bucket throttles the launch. That may be the gang of the device,
 * the group of processes that share the device, or turns, because another slice has come. */
static bool goes_elsewhere(struct meter *meter, int device, uint64_t now_ns)
{
	return member_update_gang(meter, device) || turns_are_due(meter, device, now_ns) ||
	       member_update_group(meter, device, now_ns);
}

/* Waits until the bucket admits the launch, or the device has no quota any more: 0, -EAGAIN when
 * something else throttles the launch, or an error of pace_wait_monitor. */
static int wait_for_bucket(struct meter *meter, const struct pace_work *work,
			   struct pace_pass *pass)
{
	uint64_t held_at_ns = 0;
	int error = 0;

	while (!error) {
		uint64_t due_ns = spans_settle(work->context, NULL, settle).due_ns,
			 now_ns = clock_steady_ns();
		unsigned pct = cores_limit(meter);
		bool open;

		if (!pct)
			break;
		if (goes_elsewhere(meter, work->device, now_ns)) {
			error = -EAGAIN;
			break;
		}
		bucket_refill(meter->bucket, pct, now_ns);
		if (may_go(meter, pass))
			break;
		open = bucket_is_open(meter->bucket);
		note_held(meter, open, pct, &held_at_ns);
		if (open) {
			sys_sleep_ns(NAP_CHARGING_NS);
		} else {
			if (meter_is_blind(meter, now_ns))
				meter_break(meter);
			sys_sleep_ns(nap_ns(bucket_wait_ns(meter->bucket, pct), due_ns, now_ns));
		}
		pace_driver->refresh_limits();
		error = pace_wait_monitor();
	}
	note_released(meter, held_at_ns);
	return error;
}

/* Asks the driver whether the stream is busy, and keeps the answer for a while, because the
 * question takes half as long as a launch. */
static bool ask_if_busy(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	bool busy = meter_is_busy(meter, work, now_ns);

	RELAXED_STORE(meter->asked_at_ns, now_ns);
	RELAXED_STORE(meter->was_busy, busy);
	return busy;
}

/*
 * Whether the device has no work of this process. The backlog answers this from costs, which may be
 * wrong. So the driver is asked, too:
 *
 *     if the backlog says    the driver is asked
 *     busy                   never while launches use several streams; else after a wait for the
 *                            bucket, and once in ASK_EACH_NS
 *     idle                   after a wait for the bucket, and once in ASK_IDLE_NS
 *
 * In relaxed mode, the two times are longer. The time at which the device became idle, as costs
 * give it, is good enough for an open window. The time is not good enough after a wait, and it is
 * unknown where only the driver says that the device is idle. Then the open window ends now, or is
 * dropped.
 */
static bool is_idle(struct meter *meter, const struct pace_work *work, uint64_t now_ns, bool waited)
{
	bool expected = backlog_is_idle(&meter->backlog, now_ns), busy;
	uint64_t since_ns = meter_since(now_ns, RELAXED_LOAD(meter->asked_at_ns));
	unsigned relax = meter_relax_factor(meter);

	busy = RELAXED_LOAD(meter->was_busy);
	if (!expected &&
	    (meter_is_mixed(meter, now_ns) || (!waited && since_ns < ASK_EACH_NS * relax)))
		return false;
	if (!expected || waited || since_ns >= ASK_IDLE_NS * (busy ? 1 : relax))
		busy = ask_if_busy(meter, work, now_ns);
	if (busy)
		return false;
	if (!expected) {
		window_cut(meter, work, now_ns, false);
		backlog_set_idle(&meter->backlog, now_ns);
	}
	if (!expected || waited)
		meter_break(meter);
	return true;
}

/* Ends the open window before a wait, or before a launch of unknown cost. While launches use
 * several streams, an idle stream does not show that the device is idle, so the backlog is asked,
 * too. */
static void cut_window(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	if (!RELAXED_LOAD(meter->window.span) || meter_is_blind(meter, now_ns))
		return;
	window_cut(meter, work, now_ns,
		   meter_is_busy(meter, work, now_ns) ||
			   (meter_is_mixed(meter, now_ns) &&
			    !backlog_is_idle(&meter->backlog, now_ns)));
}

/* -- the region ------------------------------------------------------------------------------- */

void pace_attach(struct region *region, const struct pace_quota *quotas, enum pace_rule rule,
		 const struct pace_driver *driver)
{
	if (region->slot < 0 || !region->writable) {
		pace_open();
		return;
	}
	pace_driver = driver;
	for (int device = 0; device < VGPU_DEVICES_MAX; device++)
		meter_reset(cores_meter_at(device));
	cores_attach(region, quotas, rule);
	members_attach(region);
	gate_attach(region);
}

void pace_forked(void)
{
	gate_forked();
	cores_forked();
	spans_forked();
	costs_forked();
	lease_forked();
	sync_forked();
	members_forked();
	by_turn_forked();
}

void pace_begin_exit(void)
{
	turns_leave(clock_steady_ns());
}

/* -- the contract ----------------------------------------------------------------------------- */

/* Whether the gang of several devices paces the launch. */
static bool goes_by_own_gang(struct meter *meter, int device)
{
	bool goes = member_update_gang(meter, device);

	cores_note_gang(meter, goes);
	return goes;
}

/* The gang charges by itself. */
static int enter_gang(struct pace_pass *pass, struct meter *meter, const struct pace_work *work)
{
	uint64_t now_ns = clock_steady_ns();

	*pass = (struct pace_pass){.meter = meter, .gang = true};
	by_turn_stop(meter, work->device);
	cores_note_limit(meter, false);
	sync_go_by_gang();
	utilisation_begin(meter, now_ns);
	return member_begin_launch(meter, work, now_ns);
}

/* If *ret_goes is false, the caller has to pace the launch in another way. */
static int enter_turn(struct pace_pass *pass, struct meter *meter, const struct pace_work *work,
		      bool *ret_goes)
{
	uint64_t now_ns = clock_steady_ns();
	int error;

	cores_note_limit(meter, false);
	utilisation_begin(meter, now_ns);
	error = by_turn_begin_launch(meter, work, now_ns, ret_goes);
	if (*ret_goes) {
		*pass = (struct pace_pass){.meter = meter, .turn = true};
		sync_go_by_gang();
	}
	return error;
}

/* -EAGAIN: another way applies since the launch began to wait. The caller enters it again. */
static int enter(struct pace_pass *ret_pass, struct meter *meter, const struct pace_work *work)
{
	bool waited = false;
	enum sync_state since;
	unsigned pct;
	uint64_t now_ns;
	bool goes = false;
	int error;

	*ret_pass = (struct pace_pass){.meter = NULL};
	if (goes_by_own_gang(meter, work->device))
		return enter_gang(ret_pass, meter, work);
	pct = cores_limit(meter);
	if (by_turn_update(meter, work->device)) {
		error = enter_turn(ret_pass, meter, work, &goes);
		if (error || goes)
			return error;
		pct = cores_limit(meter);
	}
	now_ns = clock_steady_ns();
	if (pct && member_update_group(meter, work->device, now_ns))
		return enter_gang(ret_pass, meter, work);
	cores_note_limit(meter, pct != 0);
	if (!pct)
		return 0;
	ret_pass->cost = cost_find(&work->what);
	utilisation_begin(meter, now_ns);
	error = overdue_wait(meter, work, ret_pass, settle, &now_ns);
	bucket_refill(meter->bucket, pct, now_ns);
	if (!error && !ret_pass->bypasses_bucket && !bucket_is_open(meter->bucket)) {
		cut_window(meter, work, now_ns);
		error = wait_for_bucket(meter, work, ret_pass);
		waited = ret_pass->held = true;
		now_ns = clock_steady_ns();
	}
	if (error)
		return error;
	ret_pass->at_ns = now_ns;
	ret_pass->meter = meter;
	ret_pass->cost_ns = cost_ns(ret_pass->cost);
	if (ret_pass->cost_ns == COST_UNKNOWN && !waited)
		cut_window(meter, work, now_ns);
	since = sync_since(meter, work, now_ns);
	ret_pass->was_idle = is_idle(meter, work, now_ns, waited);
	if (ret_pass->was_idle)
		others_probe(meter, work, now_ns);
	if (since != SYNC_NONE && !meter_is_blind(meter, now_ns))
		sync_open_window(meter, work, now_ns, since, ret_pass->was_idle);
	else if (ret_pass->was_idle && !meter_is_blind(meter, now_ns))
		window_open(meter, work, now_ns, true);
	ret_pass->sample = sample_begin(meter, ret_pass->cost, work, now_ns);
	RELAXED_ADD(meter->entered, 1);
	return 0;
}

int pace_enter(struct pace_pass *ret_pass, const struct pace_work *work)
{
	struct meter *meter = cores_meter(work->device);
	int error;

	*ret_pass = (struct pace_pass){.meter = NULL};
	lease_return();
	if (!meter)
		return 0;
	do
		error = enter(ret_pass, meter, work);
	while (error == -EAGAIN);
	return error;
}

void pace_leave(struct pace_pass *pass, const struct pace_work *work, bool submitted)
{
	struct meter *meter = pass->meter;
	struct span *sample = pass->sample;
	uint64_t now_ns, cost_ns = pass->cost_ns, charge_ns;
	bool unknown = cost_ns == COST_UNKNOWN;

	if (!meter)
		return;
	if (pass->gang || pass->turn) {
		now_ns = clock_steady_ns();
		if (pass->gang)
			member_end_launch(work, submitted, now_ns);
		else
			by_turn_end_launch(meter, work, submitted, now_ns);
		utilisation_show(meter, now_ns);
		return;
	}
	if (!submitted) {
		RELAXED_SUB(meter->entered, 1);
		end_charging(meter, pass);
		if (sample)
			span_drop(sample);
		return;
	}
	now_ns = clock_steady_ns(); /* the driver's call may have been long */
	if (unknown) {
		meter_break(meter);
		cost_ns = charge_ns = sample ? 0 : SAMPLE_BLIND_NS;
	} else {
		charge_ns = window_scale(meter, cost_ns);
	}
	if (!pass->was_idle)
		backlog_extend_to_due(&meter->backlog, now_ns);
	meter_charge(meter, charge_ns, meter_sure(cost_ns, charge_ns), now_ns);
	if (trace_is_wanted())
		trace_add_of(unknown ? TRACE_CHARGED_LATER : TRACE_CHARGED, meter->bucket,
			     (int64_t)charge_ns, bucket_level(meter->bucket));
	if (sample && !sample_end(sample, work, unknown, now_ns) && unknown)
		meter_charge(meter, SAMPLE_BLIND_NS, SAMPLE_BLIND_NS, now_ns);
	RELAXED_SUB(meter->entered, 1);
	end_charging(meter, pass);
	overdue_note_admitted(meter, pass, now_ns);
	meter_note_stream(meter, work, now_ns);
	sync_submitted(meter, work);
	window_close_if_done(meter, work, now_ns);
	if (!meter_is_blind(meter, now_ns) || bucket_is_open(meter->bucket))
		window_open(meter, work, now_ns, pass->was_idle);
	utilisation_show(meter, now_ns);
	if (!unknown)
		lease_take(meter, work, pass->at_ns, now_ns);
}

void pace_end_context(const void *context)
{
	for (int device = 0; device < VGPU_DEVICES_MAX; device++)
		window_end_context(cores_meter_at(device), context);
	spans_end_context(context, settle);
	members_end_context(context);
	by_turn_end_context(context);
}
