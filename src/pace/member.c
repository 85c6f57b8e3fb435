#include "member.h"

#include <errno.h>
#include <stdio.h>

#include "clock.h"
#include "constants.h"
#include "cores.h"
#include "gang.h"
#include "gang_time.h"
#include "holder.h"
#include "in_flight.h"
#include "joint.h"
#include "sys.h"
#include "trace.h"
#include "turns.h"
#include "utilisation.h"

#define COUNT_NS   (10 * NS_PER_MS) /* how often living members are counted */
#define FULL_NS    (1 * NS_PER_S)   /* how often a gang is asked that had no entry left */
#define SPIN_NS    (2 * NS_PER_MS)  /* of closing, in which a waiting launch asks without a sleep */
#define SPIN_TIMES 50               /* empty loops between two questions */

struct member {
	struct gang_seat seat;
	const struct gang *gang; /* that the seat is in; NULL: it never had one; atomic */
	struct in_flight in_flight;
	uint64_t reached;    /* launches that the device had finished at reached_ns; atomic */
	uint64_t reached_ns; /* atomic */
	uint64_t shown_ns;   /* until when the process's time is in the meter's backlog */
	uint64_t noted_ns;   /* when the process last showed that it launches; atomic */
	bool by_turns;       /* launches to the device go by turns; atomic */
};

static struct member members[VGPU_DEVICES_MAX]; /* by CUDA ordinal */
static uint32_t wanted;                         /* a bit for each device that is to join; atomic */
static enum pace_gang rule;
static struct region *joined;
static struct gang own;                         /* the slice's gang */
static const struct gang *present = &own;       /* own, or the gang of several slices; atomic */
static struct gang of_device[VGPU_DEVICES_MAX]; /* by CUDA ordinal */
static unsigned living;                         /* members of the gang at living_at_ns; atomic */
static uint64_t living_at_ns;                   /* clock_coarse_ns(); atomic */
static uint64_t full_ns; /* when `own` last had no free entry; 0: never; atomic */
static unsigned seats;   /* that the process has; written under `joining` */
static bool said_full;   /* a message has said that `own` is full; written under `joining` */
static struct lock joining = LOCK_INIT;

/* -- who is a member -------------------------------------------------------------------------- */

static uint32_t owner_of(const struct region *region, unsigned slot)
{
	uint64_t claims = LOAD(region->file->own.slots[slot].claims);

	return (slot + 1) | (uint32_t)(claims << VGPU_GANG_OWNER_SLOTS);
}

static bool lives(const struct gang *gang, uint32_t owner)
{
	unsigned slot = (owner & ((1u << VGPU_GANG_OWNER_SLOTS) - 1)) - 1;

	(void)gang;
	return slot < VGPU_SLOTS_MAX && region_slot_alive(joined, slot) &&
	       owner_of(joined, slot) == owner;
}

void members_attach(struct region *region)
{
	own = (struct gang){
		.kind = GANG_OF_SLICE,
		.words = &region->file->own.gang.group,
		.table = &region->file->own.gang,
		.devices = region->file->own.device,
		.turns = region->file->turn,
		.lives = lives,
		.quota = cores_limit_at,
	};
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		const struct meter *meter = cores_meter(device);
		unsigned index = meter ? (unsigned)meter->quota.index : 0;

		of_device[device] = own;
		of_device[device].kind = GANG_OF_DEVICE;
		of_device[device].words = &region->file->group[index];
		of_device[device].slice = VGPU_MEMBER_OF_DEVICE + index;
	}
	joined = region;
}

void members_forget(void)
{
	joined = NULL;
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		members[device] = (struct member){.reached = 0};
	present = &own;
	joint_forget();
	living_at_ns = full_ns = 0;
	seats = 0;
	said_full = false;
	lock_init(&joining);
}

/* The gang that devices of this process join. */
static const struct gang *gang(void)
{
	return __atomic_load_n(&present, __ATOMIC_ACQUIRE); /* pairs with change_gang's release */
}

static const struct gang *gang_of(const struct member *member)
{
	return __atomic_load_n(&member->gang, __ATOMIC_ACQUIRE); /* pairs with join's release */
}

static bool is_seated(const struct member *member)
{
	/* Pairs with gang_join's release: the seat's entry is there. */
	return __atomic_load_n(&member->seat.is_taken, __ATOMIC_ACQUIRE);
}

static bool is_member(int device)
{
	return is_seated(&members[device]);
}

static bool is_in(int device, bool of_one_device)
{
	return is_member(device) &&
	       (gang_of(&members[device])->kind == GANG_OF_DEVICE) == of_one_device;
}

static bool is_wanted(int device)
{
	enum pace_gang now = LOAD(rule);

	return now == PACE_GANG_YES || now == PACE_GANG_NAMED ||
	       (now == PACE_GANG_FOUND && LOAD(wanted) >> device & 1);
}

/* -- work in flight --------------------------------------------------------------------------- */

/* When the member's work ended, on a device that others use as well. Events measure from the time
 * at which the device reached the work, which may be the end of the others' work. The time of the
 * switch between processes is not charged. */
static uint64_t end_beside(const struct member *member, const struct gang *in, uint64_t ended_ns,
			   uint64_t now_ns)
{
	uint64_t took_ns = meter_since(ended_ns, member->in_flight.began_ns);
	uint64_t others_ns = gang_others_ended_ns(in, &member->seat);

	if (others_ns && others_ns + took_ns > ended_ns)
		ended_ns = others_ns + took_ns;
	return ended_ns < now_ns ? ended_ns : now_ns;
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
	reached = LOAD(member->in_flight.reached);
	if (LOAD(member->reached) != reached) {
		STORE(member->reached, reached);
		STORE(member->reached_ns, now_ns);
	}
	if (!is_seated(member) || LOAD(member->by_turns))
		return busy;
	if (busy) {
		gang_is_busy(in, &member->seat, now_ns);
		if (!LOAD(member->in_flight.is_busy)) /* another thread has just seen the end */
			gang_is_idle(in, &member->seat, now_ns, now_ns);
		backlog_show(&meter->backlog, &member->shown_ns, now_ns);
	} else {
		gang_is_idle(in, &member->seat, ended_ns ? ended_ns : now_ns, now_ns);
		if (ended_ns)
			backlog_show(&meter->backlog, &member->shown_ns, ended_ns);
	}
	return busy;
}

static bool look(struct meter *meter, struct member *member, const struct pace_work *work,
		 uint64_t now_ns)
{
	return look_with(meter, member, work, gang_is_shut(gang_of(member)), now_ns);
}

/* -- taking and giving up seats ---------------------------------------------------------------- */

/* Leaves the gang. The gang is paid for the member's work in flight, until now or until it ended.
 * No mark is made for that: the driver may block a thread that records an event, and the caller
 * holds `joining`. */
static void leave(int device)
{
	struct member *member = &members[device];
	const struct gang *from = gang_of(member);
	uint64_t now_ns = clock_steady_ns();

	SUB(seats, 1);
	look_with(cores_meter(device), member, NULL, false, now_ns);
	gang_is_idle(from, &member->seat, now_ns, now_ns);
	gang_count(from, now_ns);
	if (from->kind == GANG_OF_SLICES)
		joint_leave(from, &member->seat);
	else
		gang_leave(&member->seat);
}

/* All members leave their gang. Each joins the gang `to` with its next launch. */
static void change_gang(const struct gang *to)
{
	for (int device = 0; device < VGPU_DEVICES_MAX; device++)
		if (is_in(device, false))
			leave(device);
	__atomic_store_n(&present, to, __ATOMIC_RELEASE);
}

static void choose_gang(void)
{
	const struct gang *joint = joint_is_due() ? joint_settle(joined) : gang();
	const struct gang *to = joint ? joint : &own;

	if (to != gang())
		change_gang(to);
}

static bool sit_down(struct member *member, const struct gang *in, uint32_t index)
{
	__atomic_store_n(&member->gang, in, __ATOMIC_RELEASE);
	if (in->kind == GANG_OF_SLICES)
		return joint_join(in, &member->seat, index);
	return gang_join(in, &member->seat, owner_of(joined, (unsigned)joined->slot), index);
}

static void say_full(void)
{
	char line[320];

	if (said_full)
		return;
	said_full = true;
	snprintf(line, sizeof(line),
		 "the slice has no entry left for this program among the %d, one for each process "
		 "and GPU, that are throttled together; until one is free, this program is "
		 "throttled by itself, less exactly: run fewer programs in the slice, or give "
		 "some of them another slice",
		 VGPU_GANG_MEMBERS_MAX);
	pace_driver->say(line);
}

static void join(struct member *member, const struct gang *in, const struct meter *meter)
{
	uint32_t index = (uint32_t)meter->quota.index;
	bool done = sit_down(member, in, index);

	if (!done && in->kind == GANG_OF_SLICES) {
		change_gang(&own);
		done = sit_down(member, &own, index);
	}
	STORE(living_at_ns, 0);
	if (!done) {
		STORE(full_ns, clock_steady_ns());
		say_full();
		return;
	}
	ADD(seats, 1);
	trace_write(TRACE_GANG_JOINED, meter->quota.index, gang_members(gang_of(member)), 0);
}

/* Takes the device's seat in the gang that the policy names; or, with `shares`, in the gang of its
 * device; or in none. Gives up the seats of devices that are to have none, because the process may
 * never launch to such a device again. */
static void take_seat(const struct meter *meter, int device, bool shares)
{
	struct member *member = &members[device];
	const struct gang *in;

	lock_acquire(&joining);
	choose_gang();
	for (int other = 0; other < VGPU_DEVICES_MAX; other++)
		if (!is_wanted(other) && is_in(other, false))
			leave(other);
	in = is_wanted(device) ? gang() : shares ? &of_device[device] : NULL;
	if (is_member(device) && gang_of(member) != in)
		leave(device);
	if (in && !is_member(device))
		join(member, in, meter);
	lock_release(&joining);
}

/* Whether the gang was found full less than FULL_NS ago. To find out again takes a system call for
 * each member. */
static bool is_full(void)
{
	uint64_t then_ns = LOAD(full_ns);

	return then_ns && meter_since(clock_steady_ns(), then_ns) < FULL_NS;
}

static void keep_seat(const struct meter *meter, int device)
{
	if ((is_wanted(device) != is_in(device, false) && !is_full()) || joint_is_due())
		take_seat(meter, device, is_in(device, true));
}

/* Notes, once in MEET_EACH_NS, that this process launches to the device. Returns whether another
 * process did so as well: within MEET_NS, some process found that the last note was not its own. */
static bool meets(struct member *member, const struct meter *meter, uint64_t now_ns)
{
	struct vgpu_region_group *group = &joined->file->group[meter->quota.index];
	uint32_t self = 1 + (uint32_t)joined->slot, last;
	uint64_t met_ns;

	if (meter_since(now_ns, LOAD(member->noted_ns)) >= MEET_EACH_NS) {
		STORE(member->noted_ns, now_ns);
		last = LOAD(group->launcher);
		if (last != self) {
			STORE(group->launcher, self);
			if (last)
				STORE(group->met_at, now_ns);
		}
	}
	met_ns = LOAD(group->met_at);
	return met_ns && meter_since(now_ns, met_ns) < MEET_NS;
}

void pace_set_gang(enum pace_gang new_rule)
{
	joint_name(NULL);
	STORE(rule, new_rule);
}

void pace_set_named_gang(const char *path)
{
	joint_name(path);
	STORE(rule, PACE_GANG_NAMED);
}

void pace_join_gang(int device)
{
	const struct meter *meter = cores_meter(device);

	if (device < 0 || device >= VGPU_DEVICES_MAX)
		return;
	__atomic_fetch_or(&wanted, 1u << device, __ATOMIC_RELAXED);
	if (meter && cores_region())
		keep_seat(meter, device);
}

static unsigned count_living(uint64_t now_ns)
{
	uint64_t then_ns = LOAD(living_at_ns);

	if (!then_ns || meter_since(now_ns, then_ns) >= COUNT_NS) {
		STORE(living_at_ns, now_ns);
		joint_watch();
		STORE(living, gang_members(gang()));
	}
	return LOAD(living);
}

bool member_is(struct meter *meter, int device)
{
	if (!joined)
		return false;
	keep_seat(meter, device);
	return is_in(device, false) && count_living(clock_coarse_ns()) > 1;
}

/* -- a launch --------------------------------------------------------------------------------- */

/* Whether the device needs a look by a thread that launches to another device. While the gang is
 * open, launches to the device look as well. */
static bool is_look_due(const struct member *member, uint64_t now_ns)
{
	return LOAD(member->in_flight.is_busy) &&
	       (gang_is_shut(gang_of(member)) || in_flight_is_due(&member->in_flight, now_ns));
}

/* Whether the device keeps its seat. The group pays for work in flight, so it leaves after that. */
static bool keeps_seat(struct meter *meter, int device, uint64_t now_ns)
{
	struct member *member = &members[device];

	if (!is_in(device, true) || !LOAD(member->in_flight.is_busy))
		return false;
	return !is_look_due(member, now_ns) || look(meter, member, NULL, now_ns);
}

bool member_shares(struct meter *meter, int device, uint64_t now_ns)
{
	bool shares;

	if (!joined || is_wanted(device))
		return false;
	shares = meets(&members[device], meter, now_ns) || keeps_seat(meter, device, now_ns);
	if (shares != is_in(device, true) && !(shares && is_full()))
		take_seat(meter, device, shares);
	return is_in(device, true);
}

/* Looks at the work in flight of the process's other members of the gang. Whether there are any. */
static bool look_at_others(const struct member *but, uint64_t now_ns)
{
	bool several = false;

	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		if (&members[device] == but || !is_member(device) ||
		    gang_of(&members[device]) != gang_of(but))
			continue;
		several = true;
		if (is_look_due(&members[device], now_ns))
			look(cores_meter(device), &members[device], NULL, now_ns);
	}
	return several;
}

/* For how long a launch has to wait because much work is in flight before it, ns. If the device
 * reaches no mark, the wait is limited: the work may wait for this launch. */
static uint64_t ahead_wait_ns(struct member *member, const struct gang_sight *sight,
			      uint64_t now_ns)
{
	if (sight->ahead_ns < gang_ahead_most_ns(gang_of(member), sight->level_ns))
		return 0;
	trace_write(TRACE_GANG_AHEAD, (int)member->seat.member->device, (int64_t)sight->ahead_ns,
		    0);
	if (meter_since(now_ns, LOAD(member->reached_ns)) < GANG_PATIENCE_NS)
		return GANG_AHEAD_POLL_NS;
	STORE(member->reached_ns, now_ns);
	return 0;
}

/* Whether no launch has been measured yet, and nobody waits for this one. Then the first launch is
 * waited for, unless it is long. */
static bool is_unknown(const struct member *member, uint64_t now_ns)
{
	const struct in_flight *it = &member->in_flight;

	return gang_of(member)->kind == GANG_OF_DEVICE && LOAD(it->is_busy) && !LOAD(it->mean_ns) &&
	       meter_since(now_ns, LOAD(it->reached_ns)) < TURN_UNKNOWN_NS;
}

static uint64_t ask(struct meter *meter, struct member *member, const struct pace_work *work,
		    uint64_t now_ns)
{
	const struct gang *in = gang_of(member);
	unsigned pct = cores_limit(meter);
	uint64_t wait_ns;
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
	if (!cores_any_limit())
		return 0; /* the quotas were lifted, so no gang throttles any more */
	wait_ns = gang_ask(in, &member->seat, &sight, now_ns);
	if (!wait_ns && is_unknown(member, now_ns))
		return TURN_UNKNOWN_POLL_NS;
	return wait_ns || gang_is_shut(in) ? wait_ns : ahead_wait_ns(member, &sight, now_ns);
}

/* Sleeps. While the gang closes, which is short and delays every member, the thread spins instead.
 */
static int nap(const struct gang *in, uint64_t wait_ns, uint64_t now_ns)
{
	if (wait_ns <= GANG_POLL_NS && in->kind != GANG_OF_DEVICE &&
	    meter_since(now_ns, LOAD(in->words->shut_at)) < SPIN_NS) {
		for (unsigned i = 0; i < SPIN_TIMES; i++)
			__asm__ volatile("" ::: "memory");
		return 0;
	}
	wait_ns = wait_ns < PACE_POLL_NS ? wait_ns : PACE_POLL_NS;
	if (in->kind == GANG_OF_DEVICE)
		holder_sleep(in, wait_ns);
	else
		sys_sleep_ns(wait_ns);
	pace_driver->look();
	return pace_wait();
}

/* Traces a launch that the gang of a device delays. The slice's gang is traced by its decisions. */
static void trace_held(const struct meter *meter, const struct member *member, uint64_t wait_ns)
{
	if (gang_of(member)->kind == GANG_OF_DEVICE)
		trace_write_of(TRACE_HELD_SHUT, meter->bucket, bucket_level(meter->bucket),
			       (int64_t)wait_ns);
}

static void trace_released(const struct meter *meter, const struct member *member, uint64_t held_ns)
{
	if (gang_of(member)->kind == GANG_OF_DEVICE)
		trace_write_of(TRACE_RELEASED, meter->bucket, (int64_t)held_ns,
			       bucket_level(meter->bucket));
}

/* Whether the member's gang throttles the launch. Another thread may have given the seat up, and a
 * device without a quota is not throttled by its group. A process that is alone in its group and
 * has nothing in flight is about to leave it. When another slice comes, the slice's processes take
 * turns: one that stayed in the group would wait for the peers that go by turns. */
static bool goes_by_its_gang(const struct meter *meter, struct member *member, uint64_t now_ns)
{
	if (!is_seated(member) || gang_of(member)->kind != GANG_OF_DEVICE)
		return is_seated(member);
	return cores_limit(meter) != 0 && !turns_are_due(meter, (int)(member - members), now_ns) &&
	       (meets(member, meter, now_ns) || LOAD(member->in_flight.is_busy));
}

/* Waits until the gang admits the launch: 0, -EAGAIN, or an error of pace_wait. */
static int wait_for_gang(struct meter *meter, struct member *member, const struct pace_work *work,
			 uint64_t *now_ns, bool *ret_held)
{
	uint64_t wait_ns;
	int error;

	*ret_held = false;
	while (goes_by_its_gang(meter, member, *now_ns)) {
		wait_ns = ask(meter, member, work, *now_ns);
		if (!wait_ns)
			return 0;
		if (!*ret_held)
			trace_held(meter, member, wait_ns);
		*ret_held = true;
		error = nap(gang_of(member), wait_ns, *now_ns);
		*now_ns = clock_steady_ns();
		if (error)
			return error;
	}
	return -EAGAIN;
}

int member_enter(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct member *member = &members[work->device];
	uint64_t from_ns = now_ns;
	bool held = false;
	int error = 0;

	if (gang_is_shut(gang_of(member)) || holder_is_other(gang_of(member), &member->seat) ||
	    in_flight_is_due(&member->in_flight, now_ns))
		error = wait_for_gang(meter, member, work, &now_ns, &held);
	if (held) {
		bucket_count_held(meter->bucket);
		trace_released(meter, member, now_ns - from_ns);
	}
	if (!error && !is_seated(member))
		error = -EAGAIN;
	if (error)
		return error;
	if (!LOAD(member->in_flight.is_busy))
		STORE(member->shown_ns, now_ns);
	in_flight_begin(&member->in_flight, work, now_ns);
	gang_is_busy(gang_of(member), &member->seat, now_ns);
	return 0;
}

void member_leave(const struct pace_work *work, bool submitted, uint64_t now_ns)
{
	struct member *member = &members[work->device];
	const struct gang *in = gang_of(member);

	if (submitted)
		in_flight_submitted(&member->in_flight, work, gang_is_shut(in), now_ns);
	if (submitted && is_member(work->device) && !LOAD(member->by_turns)) {
		/* another thread may have seen the last work end, and have noted the device as idle
		 */
		gang_is_busy(in, &member->seat, now_ns);
		if (work->collective)
			gang_launched_collective(in, &member->seat);
	}
	in_flight_left(&member->in_flight);
}

/* -- launches by turns ------------------------------------------------------------------------ */

/* The group is paid for what is in flight until now. */
void member_begin_turns(const struct meter *meter, int device, uint64_t now_ns)
{
	if (joined && is_in(device, true))
		take_seat(meter, device, false);
	if (joined)
		gang_begin_turns(&of_device[device], now_ns);
	STORE(members[device].by_turns, true);
}

uint64_t member_ask_turn(const struct meter *meter, int device, bool in_flight, uint64_t now_ns,
			 bool *ret_waits)
{
	struct member *member = &members[device];
	const struct gang *in;
	uint64_t wait_ns;
	bool shares;

	*ret_waits = false;
	if (!joined || is_wanted(device))
		return 0;
	shares = meets(member, meter, now_ns);
	if (shares != is_in(device, true) && !(shares && is_full()))
		take_seat(meter, device, shares);
	if (!is_in(device, true))
		return 0;
	in = gang_of(member);
	wait_ns = holder_ask(in, &member->seat, in_flight, now_ns);
	if ((!wait_ns || in_flight) && !holder_claim(in, &member->seat, now_ns) && !wait_ns)
		wait_ns = GANG_POLL_NS;
	*ret_waits = holder_is_other(in, &member->seat);
	if (*ret_waits && !in_flight)
		holder_unclaim(in, &member->seat, now_ns);
	return wait_ns;
}

void member_sleep(int device, uint64_t wait_ns)
{
	holder_sleep(gang_of(&members[device]), wait_ns);
}

void member_rest(int device, uint64_t now_ns)
{
	struct member *member = &members[device];

	if (is_in(device, true) && LOAD(member->by_turns))
		holder_unclaim(gang_of(member), &member->seat, now_ns);
}

void member_keep(int device, uint64_t now_ns)
{
	struct member *member = &members[device];

	if (is_in(device, true) && LOAD(member->by_turns))
		holder_claim(gang_of(member), &member->seat, now_ns);
}

/* Without a quota, the device has no group from then on. */
void member_end_turns(const struct meter *meter, int device, uint64_t now_ns)
{
	member_rest(device, now_ns);
	STORE(members[device].seat.waits_ns, 0);
	STORE(members[device].by_turns, false);
	if (joined && !cores_limit(meter) && is_in(device, true))
		take_seat(meter, device, false);
}

bool members_any(void)
{
	return LOAD(seats) && cores_region();
}

static void mark_all(uint64_t each_ns)
{
	if (!members_any())
		return;
	for (int device = 0; device < VGPU_DEVICES_MAX; device++)
		if (is_member(device))
			in_flight_mark(&members[device].in_flight, each_ns, clock_steady_ns());
}

void members_will_wait(void)
{
	mark_all(0);
}

/* Some programs query events before each launch: PyTorch does when it allocates memory. So a mark
 * is made once in MARK_LEAST_NS at most. */
void members_will_look(void)
{
	mark_all(MARK_LEAST_NS);
}

void members_waited(void)
{
	if (!members_any())
		return;
	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		struct meter *meter;
		uint64_t now_ns;

		if (!LOAD(members[device].in_flight.is_busy))
			continue;
		meter = cores_meter(device);
		if (!meter)
			continue;
		now_ns = clock_steady_ns();
		if (!look(meter, &members[device], NULL, now_ns))
			utilisation_rest(meter, now_ns);
	}
}

void members_end_context(const void *context)
{
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		in_flight_end_context(&members[device].in_flight, context);
}
