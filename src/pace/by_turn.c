/*
 * A launch of a slice that takes turns. docs/design/turns.md ("Who takes turns") says what happens
 * when another slice comes to the device, which is shared from then on, and what the bucket is
 * charged meanwhile.
 *
 * When no other slice is left, work in flight is charged the time until it should have ended.
 */
#include "by_turn.h"

#include "backlog.h"
#include "bucket.h"
#include "clock.h"
#include "constants.h"
#include "cores.h"
#include "gate.h"
#include "in_flight.h"
#include "member.h"
#include "sys.h"
#include "trace.h"
#include "turns.h"
#include "utilisation.h"

#define PERCENT 100

struct by_turn {
	struct in_flight in_flight;
	bool is_shared;        /* launches ask, and in_flight has them; atomic */
	uint64_t taken_up;     /* launches up to this number are done at taken_up_due; atomic */
	uint64_t taken_up_due; /* a guess by costs, from the change to shared; atomic */
	uint64_t ended_ns;     /* when the device last finished the process's work; atomic */
	uint64_t mean_ns;      /* a launch's mean time on the device; 0: not known; atomic */
	uint64_t seen;         /* in_flight.reached as it was last seen; atomic */
	uint64_t seen_ns;      /* in_flight.reached_ns, likewise; atomic */
	uint64_t shown_ns;     /* until when the process's time is in the meter's backlog; atomic */
};

static struct by_turn devices[VGPU_DEVICES_MAX]; /* by CUDA ordinal */

void by_turn_forked(void)
{
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		devices[device] = (struct by_turn){.is_shared = false};
	turns_forked();
}

/* -- payments --------------------------------------------------------------------------------- */

/* Charges the bucket the slice's payments since the last call. */
static void charge_paid(struct meter *meter, struct vgpu_region_turn *account, unsigned pct,
			uint64_t now_ns)
{
	uint64_t paid_ns = RELAXED_LOAD(account->paid_ns),
		 before_ns = RELAXED_LOAD(account->charged_ns);

	if (pct)
		bucket_refill(meter->bucket, pct, now_ns);
	if (paid_ns == before_ns || !RELAXED_CAS(account->charged_ns, before_ns, paid_ns) || !pct)
		return;
	bucket_charge_used(meter->bucket, (int64_t)(paid_ns - before_ns), INT64_MIN / 2);
}

/* Moves the credit or debt of the bucket to ready_at. in_flight_ns was charged by cost, and is
 * refunded, because the slice will pay for it by its time. */
static void begin_account(struct meter *meter, struct vgpu_region_turn *account,
			  uint64_t in_flight_ns, uint64_t now_ns)
{
	unsigned pct = cores_limit(meter);
	uint32_t no = 0;
	int64_t level_ns;

	if (!RELAXED_CAS(account->shared, no, 1))
		return;
	RELAXED_STORE(account->charged_ns, RELAXED_LOAD(account->paid_ns));
	if (!pct) {
		RELAXED_STORE(account->ready_at, now_ns);
		return;
	}
	bucket_refill(meter->bucket, pct, now_ns);
	level_ns = bucket_level(meter->bucket) + (int64_t)in_flight_ns;
	bucket_charge_used(meter->bucket, -(int64_t)in_flight_ns, INT64_MIN / 2);
	RELAXED_STORE(account->ready_at, now_ns - (uint64_t)(level_ns * PERCENT / (int64_t)pct));
}

/* -- work in flight --------------------------------------------------------------------------- */

/* Learns a launch's mean time from the marks that were reached since the last look. The time from a
 * period's begin to its first mark is only an upper bound: the device may have had another slice's
 * work at first. */
static void learn(struct by_turn *by)
{
	const struct in_flight *it = &by->in_flight;
	uint64_t reached = RELAXED_LOAD(it->reached), reached_ns = RELAXED_LOAD(it->reached_ns);
	uint64_t seen = RELAXED_LOAD(by->seen), seen_ns = RELAXED_LOAD(by->seen_ns),
		 mean_ns = RELAXED_LOAD(by->mean_ns);
	uint64_t took_ns;

	if (reached == seen)
		return;
	RELAXED_STORE(by->seen, reached);
	RELAXED_STORE(by->seen_ns, reached_ns);
	if (reached < seen || seen < RELAXED_LOAD(by->taken_up))
		return;
	took_ns = meter_since(reached_ns, seen_ns) / (reached - seen);
	if (!mean_ns || (seen == RELAXED_LOAD(it->before) && took_ns < mean_ns))
		RELAXED_STORE(by->mean_ns, took_ns);
	else if (seen != RELAXED_LOAD(it->before))
		RELAXED_STORE(by->mean_ns, mean_ns - mean_ns / MEAN_PART + took_ns / MEAN_PART);
}

/* When the device should have finished the process's launches. */
static uint64_t due_ns(const struct by_turn *by, uint64_t now_ns)
{
	const struct in_flight *it = &by->in_flight;
	uint64_t left = RELAXED_LOAD(it->launches) - RELAXED_LOAD(it->reached),
		 mean_ns = RELAXED_LOAD(by->mean_ns);
	uint64_t reached_ns = RELAXED_LOAD(it->reached_ns), end_ns;

	if (!RELAXED_LOAD(it->is_busy))
		return now_ns;
	if (mean_ns)
		end_ns = reached_ns + left * mean_ns;
	else /* guess that each launch takes as long as the first one has taken so far */
		end_ns = now_ns + left * meter_since(now_ns, reached_ns);
	if (RELAXED_LOAD(it->reached) < RELAXED_LOAD(by->taken_up) &&
	    end_ns < RELAXED_LOAD(by->taken_up_due))
		end_ns = RELAXED_LOAD(by->taken_up_due);
	return end_ns > now_ns ? end_ns : now_ns;
}

/* Asks the driver whether work is in flight, and gives the turn the answer. */
static bool look(struct meter *meter, struct by_turn *by, struct turn *turn,
		 const struct pace_work *work, bool marks, uint64_t now_ns)
{
	struct in_flight *it = &by->in_flight;
	uint64_t ended_ns;
	bool was_busy = RELAXED_LOAD(it->is_busy);
	bool busy = in_flight_look(it, work, marks, now_ns, &ended_ns);

	learn(by);
	if (ended_ns) {
		RELAXED_STORE(by->ended_ns, ended_ns);
		backlog_show(&meter->backlog, &by->shown_ns, ended_ns);
	}
	if (busy) {
		backlog_show(&meter->backlog, &by->shown_ns, now_ns);
		turn_submitted(turn, due_ns(by, now_ns), now_ns);
	} else if (was_busy && work && !marks &&
		   meter_since(now_ns, RELAXED_LOAD(by->ended_ns)) >= TURN_GAP_NS) {
		turn_idle(turn, RELAXED_LOAD(by->ended_ns),
			  now_ns); /* the host did not launch meanwhile */
	} else if (was_busy) {
		turn_over(turn, RELAXED_LOAD(by->ended_ns), now_ns);
	}
	if (was_busy && !busy)
		member_rest((int)(by - devices), now_ns);
	return busy;
}

/* -- alone, and shared ------------------------------------------------------------------------ */

static void begin_shared(struct meter *meter, struct by_turn *by, struct turn *turn,
			 const struct pace_work *work, uint64_t now_ns)
{
	struct vgpu_region_turn *account = turns_account(meter);
	uint64_t ahead_ns = backlog_ahead_ns(&meter->backlog, now_ns);
	bool no = false;

	if (!account || !RELAXED_CAS(by->is_shared, no, true))
		return;
	member_begin_turns(meter, work->device, now_ns);
	in_flight_adopt(&by->in_flight, work, now_ns);
	RELAXED_STORE(by->taken_up, RELAXED_LOAD(by->in_flight.launches));
	RELAXED_STORE(by->taken_up_due, now_ns + ahead_ns);
	RELAXED_STORE(by->shown_ns, now_ns);
	trace_write(TRACE_TURNS_BEGIN, meter->quota.index, (int64_t)ahead_ns, 0);
	begin_account(meter, account, ahead_ns, now_ns);
	if (ahead_ns)
		turn_submitted(turn, now_ns + ahead_ns, now_ns);
	if (turns_note(work->device, true))
		gate_recheck();
}

/* settles: the bucket enforces the slice's quota from now on, so the account is closed. */
static void end_shared(struct meter *meter, struct by_turn *by, int device, bool settles,
		       uint64_t now_ns)
{
	struct vgpu_region_turn *account = turns_account(meter);
	uint64_t due = due_ns(by, now_ns);
	bool yes = true;

	if (!RELAXED_CAS(by->is_shared, yes, false))
		return;
	trace_write(TRACE_TURNS_END, meter->quota.index, (int64_t)(due - now_ns), 0);
	member_end_turns(meter, device, now_ns);
	backlog_show(&meter->backlog, &by->shown_ns, now_ns);
	if (account && settles) {
		charge_paid(meter, account, cores_limit(meter), now_ns);
		RELAXED_STORE(account->shared, 0);
	}
	if (due > now_ns)
		meter_charge(meter, due - now_ns, 0, now_ns);
	if (turns_note(device, false))
		gate_recheck();
}

bool by_turn_update(struct meter *meter, int device)
{
	struct turn *turn = turns_of(meter, device);

	if (turn && !turn_is_alone(turn))
		return true;
	if (device >= 0 && device < VGPU_DEVICES_MAX && RELAXED_LOAD(devices[device].is_shared))
		end_shared(meter, &devices[device], device, turn != NULL, clock_steady_ns());
	return false;
}

void by_turn_stop(struct meter *meter, int device)
{
	struct by_turn *by = &devices[device];
	struct turn *turn;
	uint64_t now_ns;

	if (!RELAXED_LOAD(by->is_shared))
		return;
	now_ns = clock_steady_ns();
	turn = turns_of(meter, device);
	/* The gang's buckets are charged for its own work, and not for its turns. */
	end_shared(meter, by, device, true, now_ns);
	if (turn)
		turn_idle(turn, now_ns, now_ns);
}

/* -- the way through -------------------------------------------------------------------------- */

/* Whether a launch waits for the process's first one in its turns, which shows how long launches
 * take. It waits for TURN_UNKNOWN_NS at most. */
static bool is_unknown(const struct by_turn *by, uint64_t now_ns)
{
	const struct in_flight *it = &by->in_flight;

	return RELAXED_LOAD(it->is_busy) && !RELAXED_LOAD(by->mean_ns) &&
	       meter_since(now_ns, RELAXED_LOAD(it->reached_ns)) < TURN_UNKNOWN_NS;
}

/* For how long the launch has to wait because too much work is in flight before it, ns; 0: it is
 * admitted. It is also admitted where that work is overdue, because the work may wait for it. */
static uint64_t ahead_wait_ns(const struct by_turn *by, uint64_t now_ns)
{
	uint64_t due = due_ns(by, now_ns), until_ns = due + RELAXED_LOAD(by->mean_ns);
	uint64_t most_ns = now_ns + TURN_AHEAD_NS;

	if (due <= now_ns || until_ns <= most_ns)
		return 0;
	return due - now_ns < until_ns - most_ns ? due - now_ns : until_ns - most_ns;
}

static struct turn_answer wait_for(uint64_t wait_ns, uint32_t bell)
{
	return (struct turn_answer){.kind = TURN_WAIT, .wait_ns = wait_ns, .bell = bell};
}

/* *ret_for_peer: the launch waits for another process of the slice. */
static struct turn_answer ask(struct meter *meter, struct by_turn *by, struct turn *turn,
			      const struct pace_work *work, bool waits, uint64_t now_ns,
			      bool *ret_for_peer)
{
	struct vgpu_region_turn *account = turns_account(meter);
	struct turn_answer answer;
	unsigned pct = cores_limit(meter);
	uint64_t peer_ns = 0, ahead_ns;

	*ret_for_peer = false;
	if (waits || in_flight_is_due(&by->in_flight, now_ns))
		look(meter, by, turn, work, waits, now_ns);
	turns_set(meter, turn, pct ? pct : PERCENT, 0);
	if (!turn_is_own(turn))
		peer_ns = member_ask_turn(meter, work->device, RELAXED_LOAD(by->in_flight.is_busy),
					  now_ns, ret_for_peer);
	if (*ret_for_peer) {
		if (!RELAXED_LOAD(by->in_flight.is_busy))
			turn_give_way(turn, now_ns);
		return wait_for(peer_ns, 0);
	}
	answer = turn_ask(turn, now_ns);
	if (account)
		charge_paid(meter, account, cores_limit(meter), now_ns);
	if (answer.kind != TURN_ALONE)
		bucket_note_limit(meter->bucket, answer.by_limit);
	if (answer.kind != TURN_MINE)
		return answer;
	if (peer_ns)
		return wait_for(peer_ns, answer.bell);
	if (is_unknown(by, now_ns))
		return wait_for(TURN_UNKNOWN_POLL_NS, answer.bell);
	ahead_ns = ahead_wait_ns(by, now_ns);
	return ahead_ns ? wait_for(ahead_ns, answer.bell) : answer;
}

static void note_begin(struct by_turn *by, const struct pace_work *work, uint64_t now_ns)
{
	if (!RELAXED_LOAD(by->in_flight.is_busy)) {
		RELAXED_STORE(by->shown_ns, now_ns);
		RELAXED_STORE(by->seen, RELAXED_LOAD(by->in_flight.launches));
		RELAXED_STORE(by->seen_ns, now_ns);
	}
	in_flight_begin(&by->in_flight, work, now_ns);
}

int by_turn_begin_launch(struct meter *meter, const struct pace_work *work, uint64_t now_ns,
			 bool *ret_goes)
{
	struct by_turn *by = &devices[work->device];
	struct turn_answer answer;
	uint64_t from_ns = now_ns;
	bool held = false, for_peer;
	int error = 0;

	*ret_goes = false;
	for (;;) {
		struct turn *turn = turns_of(meter, work->device);

		if (!turn || !turn_takes_part(turn, now_ns))
			break;
		if (!RELAXED_LOAD(by->is_shared))
			begin_shared(meter, by, turn, work, now_ns);
		answer = ask(meter, by, turn, work, held, now_ns, &for_peer);
		if (answer.kind == TURN_MINE) {
			note_begin(by, work, now_ns);
			*ret_goes = true;
		}
		if (answer.kind != TURN_WAIT)
			break;
		if (!held) {
			trace_write(TRACE_TURN_HELD, meter->quota.index, (int64_t)answer.wait_ns,
				    0);
			/* Later, the device may have no work of the process, and be another's. */
			if (due_ns(by, now_ns) > now_ns)
				in_flight_mark(&by->in_flight, 0, now_ns);
		}
		held = true;
		if (RELAXED_LOAD(by->in_flight.is_busy) && answer.wait_ns > TURN_LOOK_NS)
			answer.wait_ns = TURN_LOOK_NS;
		if (for_peer)
			member_sleep(work->device, answer.wait_ns);
		else
			turn_sleep(turn, &answer);
		pace_driver->refresh_limits();
		error = pace_wait_monitor();
		if (error)
			return error;
		now_ns = clock_steady_ns();
	}
	if (held)
		bucket_count_held(meter->bucket);
	if (held && *ret_goes)
		trace_write(TRACE_TURN_GOES, meter->quota.index, (int64_t)(now_ns - from_ns), 0);
	/* Where other slices are present all the same, the process gets no turns, or too few. */
	if (!*ret_goes && by_turn_update(meter, work->device))
		end_shared(meter, by, work->device, true, now_ns);
	return 0;
}

void by_turn_end_launch(struct meter *meter, const struct pace_work *work, bool submitted,
			uint64_t now_ns)
{
	struct by_turn *by = &devices[work->device];
	struct turn *turn = turns_of(meter, work->device);

	if (submitted) {
		in_flight_submitted(&by->in_flight, work, false, now_ns);
		member_keep(work->device, now_ns);
		if (turn)
			turn_submitted(turn, due_ns(by, now_ns), now_ns);
	}
	in_flight_left(&by->in_flight);
}

/* -- waits ------------------------------------------------------------------------------------ */

/* Calls both functions for each device that goes by turns. */
static void tell_all(void (*mark)(struct in_flight *it, uint64_t now_ns),
		     void (*tell)(struct turn *turn, uint64_t now_ns))
{
	if (!turns_any_shared())
		return;
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		uint64_t now_ns;
		struct turn *turn;

		if (!RELAXED_LOAD(devices[device].is_shared))
			continue;
		now_ns = clock_steady_ns();
		mark(&devices[device].in_flight, now_ns);
		turn = turns_of(cores_meter_at(device), device);
		if (turn)
			tell(turn, now_ns);
	}
}

void by_turn_will_wait(void)
{
	tell_all(in_flight_will_wait, turn_will_wait);
}

void by_turn_will_look(void)
{
	tell_all(in_flight_will_look, turn_looked);
}

/* Whether the last mark is reached soon. It comes after all work that the thread has waited for. */
static bool is_over_soon(struct meter *meter, struct by_turn *by, struct turn *turn,
			 uint64_t from_ns)
{
	uint64_t now_ns = from_ns;

	while (look(meter, by, turn, NULL, false, now_ns)) {
		if (!in_flight_is_soon_over(&by->in_flight, due_ns(by, now_ns), from_ns, now_ns))
			return false;
		now_ns = clock_steady_ns();
	}
	return true;
}

static void waited(struct meter *meter, struct by_turn *by, struct turn *turn)
{
	uint64_t now_ns = clock_steady_ns();
	struct vgpu_region_turn *account;
	bool over = is_over_soon(meter, by, turn, now_ns);

	in_flight_waited(&by->in_flight, !over);
	if (!over)
		return;
	now_ns = clock_steady_ns();
	turn_idle(turn, RELAXED_LOAD(by->ended_ns), now_ns);
	account = turns_account(meter);
	if (account)
		charge_paid(meter, account, cores_limit(meter), now_ns);
	utilisation_rest(meter, now_ns);
}

void by_turn_waited(void)
{
	if (!turns_any_shared() || !cores_region())
		return;
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct by_turn *by = &devices[device];
		struct meter *meter = cores_meter(device);
		struct turn *turn;

		if (!RELAXED_LOAD(by->is_shared) || !meter)
			continue;
		turn = turns_of(meter, device);
		if (turn)
			turn_waited(turn, clock_steady_ns());
		if (turn && RELAXED_LOAD(by->in_flight.is_busy))
			waited(meter, by, turn);
	}
}

void by_turn_end_context(const void *context)
{
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		in_flight_end_context(&devices[device].in_flight, context);
}
