#include "member.h"

#include <errno.h>

#include "clock.h"
#include "constants.h"
#include "cores.h"
#include "gang.h"
#include "gang_table.h"
#include "gang_time.h"
#include "gang_turn.h"
#include "holder.h"
#include "in_flight.h"
#include "membership.h"
#include "sys.h"
#include "trace.h"
#include "turns.h"
#include "utilisation.h"

#define SPIN_NS    (2 * NS_PER_MS) /* of closing, in which a waiting launch asks without a sleep */
#define SPIN_TIMES 50              /* empty loops between two questions */

/* The work that the process has in flight on a device. Each device has this state, also while it is
 * no member of a gang. */
struct member {
	struct in_flight in_flight;
	uint64_t reached;    /* launches that the device had finished at reached_ns; atomic */
	uint64_t reached_ns; /* atomic */
	uint64_t shown_ns;   /* until when the process's time is in the meter's backlog */
	bool by_turns;       /* launches to the device go by turns; atomic */
};

static struct member members[VGPU_DEVICES_MAX]; /* by CUDA ordinal */

static int device_of(const struct member *member)
{
	return (int)(member - members);
}

static const struct gang *gang_of(const struct member *member)
{
	return membership_gang(device_of(member));
}

static struct gang_member *self_of(const struct member *member)
{
	return membership_self(device_of(member));
}

static bool is_joined(const struct member *member)
{
	return membership_is_any(device_of(member));
}

/* The turn for which a launch of the gang's member has to ask; NULL: no other slice is present. */
static struct turn *turn_of(const struct meter *meter, const struct member *member)
{
	struct turn *turn = gang_turn_of(meter, gang_of(member), device_of(member));

	return gang_turn_is_due(turn) ? turn : NULL;
}

/* Whether a launch of the open gang has to ask for its turn. */
static bool is_turn_due(const struct meter *meter, const struct member *member, uint64_t now_ns)
{
	const struct turn *turn = turn_of(meter, member);

	return turn && !gang_turn_goes_on(turn, gang_of(member), self_of(member), now_ns);
}

/* -- work in flight --------------------------------------------------------------------------- */

/* When the member's work ended, on a device that others use as well. Events measure from the time
 * at which the device reached the work, which may be the end of the others' work. The time of the
 * switch between processes is not charged. */
static uint64_t end_beside(const struct member *member, const struct gang *in, uint64_t ended_ns,
			   uint64_t now_ns)
{
	uint64_t took_ns = meter_since(ended_ns, member->in_flight.began_ns);
	uint64_t others_ns = gang_others_ended_ns(in, self_of(member));

	if (others_ns && others_ns + took_ns > ended_ns)
		ended_ns = others_ns + took_ns;
	return ended_ns < now_ns ? ended_ns : now_ns;
}

/* Until when the work in flight will have ended, as far as the learned times show. */
static uint64_t expected_ns(const struct member *member, uint64_t now_ns)
{
	if (!RELAXED_LOAD(member->in_flight.mean_ns))
		return now_ns + GANG_STALE_NS;
	return now_ns + 2 * in_flight_ahead_ns(&member->in_flight) + GANG_EXPECT_NS;
}

/* The member has work in flight, or is about to launch. */
static void note_busy(const struct member *member, const struct gang *in, uint64_t now_ns)
{
	RELAXED_STORE(self_of(member)->expects_ns, expected_ns(member, now_ns));
	gang_is_busy(in, self_of(member), now_ns);
}

/* Asks the driver what is in flight, and notes it in the gang. marks: as for in_flight_look. If
 * another thread has left that gang meanwhile, nothing is noted: the entry may be another
 * process's.
 */
static bool look_with(struct meter *meter, struct member *member, const struct pace_work *work,
		      bool marks, uint64_t now_ns)
{
	uint64_t ended_ns, reached;
	const struct gang *in = gang_of(member);
	bool busy = in_flight_look(&member->in_flight, work, marks, now_ns, &ended_ns);

	if (ended_ns && in->kind == GANG_OF_DEVICE)
		ended_ns = end_beside(member, in, ended_ns, now_ns);
	reached = RELAXED_LOAD(member->in_flight.reached);
	if (RELAXED_LOAD(member->reached) != reached) {
		RELAXED_STORE(member->reached, reached);
		RELAXED_STORE(member->reached_ns, now_ns);
	}
	if (!is_joined(member) || RELAXED_LOAD(member->by_turns))
		return busy;
	if (busy) {
		gang_turn_is_busy(gang_turn_of(meter, in, device_of(member)),
				  in_flight_ahead_ns(&member->in_flight), now_ns);
		note_busy(member, in, now_ns);
		if (!RELAXED_LOAD(
			    member->in_flight.is_busy)) /* another thread has just seen the end */
			gang_is_idle(in, self_of(member), now_ns, now_ns);
		backlog_show(&meter->backlog, &member->shown_ns, now_ns);
	} else {
		gang_is_idle(in, self_of(member), ended_ns ? ended_ns : now_ns, now_ns);
		if (ended_ns) {
			gang_turn_is_idle(gang_turn_of(meter, in, device_of(member)), in, ended_ns,
					  false, now_ns);
			backlog_show(&meter->backlog, &member->shown_ns, ended_ns);
		}
	}
	return busy;
}

/* Whether a look records a mark after the launches that have none. While the gang is not open, it
 * does, so that the end of the work is measured. It does not if the work is overdue. Such work
 * ended earlier, and a mark would date its end to now. */
static bool needs_marks(const struct member *member, uint64_t now_ns)
{
	const struct gang *in = gang_of(member);

	return !gang_is_open(in) &&
	       !(is_joined(member) && gang_table_is_overdue(in, self_of(member)->entry, now_ns));
}

static bool look(struct meter *meter, struct member *member, const struct pace_work *work,
		 uint64_t now_ns)
{
	return look_with(meter, member, work, needs_marks(member, now_ns), now_ns);
}

/* No mark is made: the driver may block a thread that records an event. */
static void look_before_leaving(int device, uint64_t now_ns)
{
	struct meter *meter = cores_meter(device);
	struct member *member = &members[device];

	look_with(meter, member, NULL, false, now_ns);
	if (!RELAXED_LOAD(member->by_turns))
		gang_turn_leave(meter, gang_of(member), device, now_ns);
}

void members_attach(struct region *region)
{
	membership_attach(region, look_before_leaving);
}

void members_forked(void)
{
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		members[device] = (struct member){.reached = 0};
	membership_forked();
}

bool member_update_gang(struct meter *meter, int device)
{
	if (!membership_is_attached())
		return false;
	membership_update_gang(meter, device);
	return membership_is_of_gang(device) && membership_living(clock_coarse_ns()) > 1;
}

/* -- a launch --------------------------------------------------------------------------------- */

/* Whether a thread that launches to another device has to look at this one. While the gang is open,
 * launches to this device look, too, so a look is due only if none was made for a while. */
static bool is_look_due(const struct member *member, uint64_t now_ns)
{
	return RELAXED_LOAD(member->in_flight.is_busy) &&
	       (!gang_is_open(gang_of(member)) || in_flight_is_due(&member->in_flight, now_ns));
}

/* Whether the device stays in its group although no other process launches to it: until its work in
 * flight has ended, because the group pays for that work. */
static bool stays(struct meter *meter, int device, uint64_t now_ns)
{
	struct member *member = &members[device];

	if (!membership_is_of_group(device) || !RELAXED_LOAD(member->in_flight.is_busy))
		return false;
	return !is_look_due(member, now_ns) || look(meter, member, NULL, now_ns);
}

bool member_update_group(struct meter *meter, int device, uint64_t now_ns)
{
	bool shares;

	if (!membership_is_attached() || membership_wants_gang(device))
		return false;
	shares = membership_show_launch(meter, device, now_ns) || stays(meter, device, now_ns);
	return membership_update_group(meter, device, shares);
}

/* The process's next member of the same gang, from that device on; NULL: there is none. */
static struct member *next_other(const struct member *but, int device)
{
	for (; device < VGPU_DEVICES_MAX; device++)
		if (&members[device] != but && membership_is_any(device) &&
		    gang_of(&members[device]) == gang_of(but))
			return &members[device];
	return NULL;
}

/* For a member other than the one that launches: it has its turn at the same date. */
static void ready_other(struct meter *meter, struct member *member, uint64_t now_ns)
{
	struct turn *turn = turn_of(meter, member);
	unsigned pct = cores_limit(meter);
	struct gang_sight sight = {.in_flight = RELAXED_LOAD(member->in_flight.is_busy)};

	if (!turn || gang_is_open(gang_of(member)) || sight.in_flight)
		return;
	if (pct) {
		bucket_refill(meter->bucket, pct, now_ns);
		sight.ready_ns = bucket_wait_ns(meter->bucket, pct);
	}
	gang_turn_date(turn, meter, gang_of(member), self_of(member), &sight, now_ns);
	gang_note_ready(gang_of(member), self_of(member), sight.ready_ns, sight.for_turn, now_ns);
	gang_turn_wish(turn, gang_of(member), self_of(member), false, now_ns);
}

/* Looks at the work in flight of the process's other members of the gang. Whether there are any. */
static bool look_at_others(const struct member *but, uint64_t now_ns)
{
	struct member *member = next_other(but, 0);
	bool several = member != NULL;

	while (member) {
		int device = device_of(member);

		if (is_look_due(member, now_ns))
			look(cores_meter(device), member, NULL, now_ns);
		ready_other(cores_meter(device), member, now_ns);
		member = next_other(but, device + 1);
	}
	return several;
}

/* For how long a launch has to wait because much work is in flight before it, ns. If the device
 * reaches no mark, the wait is limited: the work may wait for this launch. */
static uint64_t ahead_wait_ns(struct member *member, const struct gang_sight *sight,
			      uint64_t now_ns)
{
	if (sight->ahead_ns < gang_ahead_most_ns(gang_of(member), sight->level_ns, now_ns))
		return 0;
	trace_write(TRACE_GANG_AHEAD, (int)self_of(member)->entry->device, (int64_t)sight->ahead_ns,
		    0);
	if (meter_since(now_ns, RELAXED_LOAD(member->reached_ns)) < GANG_PATIENCE_NS)
		return GANG_AHEAD_POLL_NS;
	RELAXED_STORE(member->reached_ns, now_ns);
	return 0;
}

/* Whether a launch waits for the first one of the group's member, which shows how long launches
 * take. It waits for TURN_UNKNOWN_NS at most. */
static bool is_unknown(const struct member *member, uint64_t now_ns)
{
	const struct in_flight *it = &member->in_flight;

	return gang_of(member)->kind == GANG_OF_DEVICE && RELAXED_LOAD(it->is_busy) &&
	       !RELAXED_LOAD(it->mean_ns) &&
	       meter_since(now_ns, RELAXED_LOAD(it->reached_ns)) < TURN_UNKNOWN_NS;
}

static uint64_t ask(struct meter *meter, struct member *member, const struct pace_work *work,
		    uint64_t now_ns)
{
	const struct gang *in = gang_of(member);
	struct turn *turn = turn_of(meter, member);
	unsigned pct = cores_limit(meter);
	uint64_t wait_ns, turn_wait_ns = 0;
	bool was_open = gang_is_open(in);
	struct gang_sight sight = {.several = look_at_others(member, now_ns),
				   .level_ns = BUCKET_FULL_NS};

	sight.in_flight = look(meter, member, work, now_ns);
	sight.ahead_ns = sight.in_flight ? in_flight_ahead_ns(&member->in_flight) : 0;
	gang_count(in, now_ns);
	if (pct) {
		bucket_refill(meter->bucket, pct, now_ns);
		sight.level_ns = bucket_level(meter->bucket);
		sight.ready_ns = bucket_wait_ns(meter->bucket, pct);
	}
	/* The slice has no quota. Its own gang then throttles no launch, but a gang of several
	 * slices does: the slice's kernels may wait for those of a slice that has a quota. */
	if (!cores_any_limit() && in->kind != GANG_OF_SLICES) {
		if (turn)
			turn_wish(turn, 0, false, now_ns);
		return 0;
	}
	if (turn) {
		turn_wait_ns = gang_turn_ask(turn, meter, in, self_of(member), &sight, now_ns);
		turn = turn_of(meter, member); /* NULL: no turns from now on */
	}
	wait_ns = gang_ask(in, self_of(member), &sight, now_ns);
	if (turn && wait_ns && !sight.in_flight)
		gang_turn_wish(turn, in, self_of(member), true, now_ns);
	if (in->kind != GANG_OF_DEVICE && turns_are_possible() && wait_ns > GANG_DATE_POLL_NS)
		wait_ns = GANG_DATE_POLL_NS; /* the date may come sooner, as others become idle */
	if (turn && !wait_ns && gang_is_open(in))
		wait_ns = was_open ? turn_wait_ns : GANG_POLL_NS;
	if (!turn && !wait_ns && gang_is_open(in) &&
	    !gang_turn_begin_alone(in, self_of(member), now_ns))
		wait_ns = GANG_TURN_POLL_NS;
	if (!wait_ns && is_unknown(member, now_ns))
		return TURN_UNKNOWN_POLL_NS;
	return wait_ns || !gang_is_open(in) ? wait_ns : ahead_wait_ns(member, &sight, now_ns);
}

/* Sleeps. While the gang closes, which is short and delays every member, the thread spins instead.
 */
static int nap(const struct gang *in, uint64_t wait_ns, uint64_t now_ns)
{
	if (wait_ns <= GANG_POLL_NS && in->kind != GANG_OF_DEVICE &&
	    meter_since(now_ns, RELAXED_LOAD(in->words->shut_at)) < SPIN_NS) {
		for (unsigned i = 0; i < SPIN_TIMES; i++)
			__asm__ volatile("" ::: "memory");
		return 0;
	}
	wait_ns = wait_ns < PACE_POLL_NS ? wait_ns : PACE_POLL_NS;
	if (in->kind == GANG_OF_DEVICE)
		holder_sleep(in, wait_ns);
	else
		sys_sleep_ns(wait_ns);
	pace_driver->refresh_limits();
	return pace_wait_monitor();
}

/* The launch was throttled since from_ns, and is not any more. Of a device's group this is traced
 * here; of other gangs, gang.c traces the decisions. */
static void note_release(const struct meter *meter, const struct member *member, uint64_t from_ns,
			 uint64_t now_ns)
{
	bucket_count_held(meter->bucket);
	if (gang_of(member)->kind != GANG_OF_DEVICE)
		return;
	if (is_joined(member))
		holder_note_wait(self_of(member), false, now_ns);
	trace_write_of(TRACE_RELEASED, meter->bucket, (int64_t)(now_ns - from_ns),
		       bucket_level(meter->bucket));
}

/*
 * Whether the member's gang still paces the launch. It does not if another thread has left the
 * gang. A device's group does not either
 *
 *     - if the device has no quota;
 *     - if another slice has come: the slice's other processes take turns then, and a process that
 *       stayed in the group would wait for them;
 *     - if no other process has launched to the device for MEET_NS, and this one has nothing in
 *       flight there: it is about to leave the group.
 */
static bool goes_by_its_gang(const struct meter *meter, struct member *member, uint64_t now_ns)
{
	if (!is_joined(member) || gang_of(member)->kind != GANG_OF_DEVICE)
		return is_joined(member);
	return cores_limit(meter) != 0 && !turns_are_due(meter, device_of(member), now_ns) &&
	       (membership_show_launch(meter, device_of(member), now_ns) ||
		RELAXED_LOAD(member->in_flight.is_busy));
}

/* Waits until the gang admits the launch: 0, -EAGAIN, or an error of pace_wait_monitor. */
static int wait_for_gang(struct meter *meter, struct member *member, const struct pace_work *work,
			 uint64_t *now_ns)
{
	uint64_t from_ns = *now_ns, wait_ns = UINT64_MAX;
	bool held = false;
	int error = 0;

	while (!error && goes_by_its_gang(meter, member, *now_ns)) {
		wait_ns = ask(meter, member, work, *now_ns);
		if (!wait_ns)
			break;
		if (!held && gang_of(member)->kind == GANG_OF_DEVICE)
			trace_write_of(TRACE_HELD_SHUT, meter->bucket, bucket_level(meter->bucket),
				       (int64_t)wait_ns);
		held = true;
		error = nap(gang_of(member), wait_ns, *now_ns);
		*now_ns = clock_steady_ns();
	}
	if (held)
		note_release(meter, member, from_ns, *now_ns);
	return error || !wait_ns ? error : -EAGAIN;
}

int member_begin_launch(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct member *member = &members[work->device];
	int error = 0;

	if (!gang_is_open(gang_of(member)) || is_turn_due(meter, member, now_ns) ||
	    !gang_turn_has_begun(gang_of(member), self_of(member)) ||
	    holder_is_other(gang_of(member), self_of(member)) ||
	    in_flight_is_due(&member->in_flight, now_ns))
		error = wait_for_gang(meter, member, work, &now_ns);
	if (!error && !is_joined(member))
		error = -EAGAIN;
	if (error)
		return error;
	if (!RELAXED_LOAD(member->in_flight.is_busy))
		RELAXED_STORE(member->shown_ns, now_ns);
	in_flight_begin(&member->in_flight, work, now_ns);
	note_busy(member, gang_of(member), now_ns);
	return 0;
}

void member_end_launch(const struct pace_work *work, bool submitted, uint64_t now_ns)
{
	struct member *member = &members[work->device];
	const struct gang *in = gang_of(member);

	if (submitted)
		in_flight_submitted(&member->in_flight, work, !gang_is_open(in), now_ns);
	if (submitted && membership_is_any(work->device) && !RELAXED_LOAD(member->by_turns)) {
		/* another thread may have seen the last work end, and have noted the device as idle
		 */
		note_busy(member, in, now_ns);
		if (work->collective)
			gang_launched_collective(in, self_of(member));
	}
	in_flight_left(&member->in_flight);
}

/* -- launches in turns ------------------------------------------------------------------------ */

/* The device leaves its group, and pays for the work in flight until now. */
void member_begin_turns(const struct meter *meter, int device, uint64_t now_ns)
{
	if (membership_is_of_group(device))
		membership_update_group(meter, device, false);
	if (membership_is_attached())
		gang_begin_turns(membership_group(device), now_ns);
	RELAXED_STORE(members[device].by_turns, true);
}

uint64_t member_ask_turn(const struct meter *meter, int device, bool in_flight, uint64_t now_ns,
			 bool *ret_waits)
{
	struct member *member = &members[device];
	const struct gang *in;
	uint64_t wait_ns;

	*ret_waits = false;
	if (!membership_is_attached() || membership_wants_gang(device))
		return 0;
	if (!membership_update_group(meter, device, membership_show_launch(meter, device, now_ns)))
		return 0;
	in = gang_of(member);
	wait_ns = holder_ask(in, self_of(member), in_flight, now_ns);
	if ((!wait_ns || in_flight) && !holder_claim(in, self_of(member), now_ns) && !wait_ns)
		wait_ns = GANG_POLL_NS;
	*ret_waits = holder_is_other(in, self_of(member));
	if (*ret_waits && !in_flight)
		holder_unclaim(in, self_of(member), now_ns);
	return wait_ns;
}

void member_sleep(int device, uint64_t wait_ns)
{
	holder_sleep(gang_of(&members[device]), wait_ns);
}

void member_rest(int device, uint64_t now_ns)
{
	struct member *member = &members[device];

	if (membership_is_of_group(device) && RELAXED_LOAD(member->by_turns))
		holder_unclaim(gang_of(member), self_of(member), now_ns);
}

void member_keep(int device, uint64_t now_ns)
{
	struct member *member = &members[device];

	if (membership_is_of_group(device) && RELAXED_LOAD(member->by_turns))
		holder_claim(gang_of(member), self_of(member), now_ns);
}

/* Without a quota, the device has no group from then on. */
void member_end_turns(const struct meter *meter, int device, uint64_t now_ns)
{
	member_rest(device, now_ns);
	RELAXED_STORE(membership_self(device)->waits_ns, 0);
	if (membership_is_of_group(device))
		holder_note_wait(membership_self(device), false, now_ns);
	RELAXED_STORE(members[device].by_turns, false);
	if (!cores_limit(meter) && membership_is_of_group(device))
		membership_update_group(meter, device, false);
}

static void mark_all(void (*mark)(struct in_flight *it, uint64_t now_ns))
{
	if (!membership_exists())
		return;
	for (int device = 0; device < VGPU_DEVICES_MAX; device++)
		if (membership_is_any(device))
			mark(&members[device].in_flight, clock_steady_ns());
}

/* Tells the turns of the members of gangs what the host does. It comes after the marks, as a turn
 * whose file was lost takes another seat first. */
static void tell_turns(void (*tell)(struct turn *turn, uint64_t now_ns))
{
	if (!membership_exists())
		return;
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct turn *turn = NULL;

		if (membership_is_any(device))
			turn = turn_of(cores_meter_at(device), &members[device]);
		if (turn)
			tell(turn, clock_steady_ns());
	}
}

void members_will_wait(void)
{
	mark_all(in_flight_will_wait);
	tell_turns(turn_will_wait);
}

void members_will_look(void)
{
	mark_all(in_flight_will_look);
	tell_turns(turn_looked);
}

/* Whether the member has no work in flight after a wait. */
static bool is_over_soon(struct meter *meter, struct member *member, uint64_t from_ns)
{
	struct in_flight *it = &member->in_flight;
	uint64_t now_ns = from_ns;

	while (look(meter, member, NULL, now_ns)) {
		uint64_t due_ns = RELAXED_LOAD(it->reached_ns) + in_flight_ahead_ns(it);

		if (!in_flight_is_soon_over(it, due_ns, from_ns, now_ns))
			return false;
		now_ns = clock_steady_ns();
	}
	return true;
}

void members_waited(void)
{
	if (!membership_exists())
		return;
	tell_turns(turn_waited);
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct meter *meter;
		bool over;

		if (!RELAXED_LOAD(members[device].in_flight.is_busy))
			continue;
		meter = cores_meter(device);
		if (!meter)
			continue;
		over = is_over_soon(meter, &members[device], clock_steady_ns());
		in_flight_waited(&members[device].in_flight, !over);
		if (!over)
			continue;
		if (membership_is_of_gang(device))
			gang_turn_is_idle(gang_turn_of(meter, gang_of(&members[device]), device),
					  gang_of(&members[device]),
					  RELAXED_LOAD(membership_self(device)->entry->ended), true,
					  clock_steady_ns());
		utilisation_rest(meter, clock_steady_ns());
	}
}

void members_end_context(const void *context)
{
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		in_flight_end_context(&members[device].in_flight, context);
}
