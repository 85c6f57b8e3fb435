#include "member.h"

#include "clock.h"
#include "constants.h"
#include "cores.h"
#include "gang.h"
#include "in_flight.h"
#include "joint.h"
#include "sys.h"
#include "trace.h"
#include "utilisation.h"

#define COUNT_NS   (10 * NS_PER_MS) /* how often living members are counted */
#define FULL_NS    (1 * NS_PER_S)   /* how often a gang is asked that had no entry left */
#define SPIN_NS    (2 * NS_PER_MS)  /* of closing, in which a waiting launch asks without a sleep */
#define SPIN_TIMES 50               /* empty loops between two questions */

struct member {
	struct gang_seat seat;
	struct in_flight in_flight;
	uint64_t reached;    /* launches that the device was through with at: */
	uint64_t reached_ns; /* atomic, both */
	uint64_t shown_ns;   /* until when the process's time is in the meter's tally */
};

static struct member members[VGPU_DEVICES_MAX]; /* by CUDA ordinal */
static uint32_t wanted;                         /* a bit for each device that is to join; atomic */
static enum pace_gang rule;
static struct region *joined;
static struct gang own;                   /* the slice's */
static const struct gang *present = &own; /* the gang that the members are in; atomic */
static unsigned living;                   /* members of the gang, as counted at: */
static uint64_t living_at_ns;             /* clock_coarse_ns(); atomic, both */
static uint64_t full_ns;                  /* when `own` had no entry left last; 0: never; atomic */
static unsigned seats;                    /* that the process has taken; written under: */
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
		.words = &region->file->own.gang,
		.devices = region->file->own.device,
		.lives = lives,
		.quota = cores_limit_at,
	};
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
	lock_init(&joining);
}

static const struct gang *gang(void)
{
	return __atomic_load_n(&present, __ATOMIC_ACQUIRE); /* pairs with choose_gang's release */
}

static bool is_member(int device)
{
	/* Pairs with gang_join's release: the seat's entry is there. */
	return __atomic_load_n(&members[device].seat.is_taken, __ATOMIC_ACQUIRE);
}

static bool is_wanted(int device)
{
	enum pace_gang now = LOAD(rule);

	return now == PACE_GANG_YES || now == PACE_GANG_NAMED ||
	       (now == PACE_GANG_FOUND && LOAD(wanted) >> device & 1);
}

static void leave(struct gang_seat *seat)
{
	SUB(seats, 1);
	if (gang() == &own)
		gang_leave(seat);
	else
		joint_leave(gang(), seat);
}

/* All members leave their gang for another: each joins that with its next launch. */
static void change_gang(const struct gang *to)
{
	for (int device = 0; device < VGPU_DEVICES_MAX; device++)
		if (is_member(device))
			leave(&members[device].seat);
	__atomic_store_n(&present, to, __ATOMIC_RELEASE);
}

static void choose_gang(void)
{
	const struct gang *joint = joint_is_due() ? joint_settle(joined) : gang();
	const struct gang *to = joint ? joint : &own;

	if (to != gang())
		change_gang(to);
}

static void join(struct gang_seat *seat, const struct meter *meter)
{
	uint32_t index = (uint32_t)meter->quota.index;

	if (gang() != &own && !joint_join(gang(), seat, index))
		change_gang(&own);
	if (gang() == &own &&
	    !gang_join(&own, seat, owner_of(joined, (unsigned)joined->slot), index))
		STORE(full_ns, clock_steady_ns());
	else
		trace_write(TRACE_GANG_JOINED, meter->quota.index, gang_members(gang()), 0);
	if (seat->is_taken)
		ADD(seats, 1);
	STORE(living_at_ns, 0);
}

/* Takes the device's seat in the gang that the policy says, and gives up those of devices that are
 * to have none: of them the process may never launch to one again. */
static void take_seat(const struct meter *meter, int device)
{
	lock_acquire(&joining);
	choose_gang();
	for (int other = 0; other < VGPU_DEVICES_MAX; other++)
		if (!is_wanted(other) && is_member(other))
			leave(&members[other].seat);
	if (is_wanted(device) && !is_member(device))
		join(&members[device].seat, meter);
	lock_release(&joining);
}

/* To ask a gang that is full takes a system call for each member. */
static bool is_full(void)
{
	uint64_t then_ns = LOAD(full_ns);

	return then_ns && meter_since(clock_steady_ns(), then_ns) < FULL_NS;
}

static void keep_seat(const struct meter *meter, int device)
{
	if ((is_wanted(device) != is_member(device) && !is_full()) || joint_is_due())
		take_seat(meter, device);
}

void pace_set_gang(enum pace_gang new_rule)
{
	joint_name(NULL, NULL);
	STORE(rule, new_rule);
}

void pace_set_named_gang(const char *path, void (*say)(const char *line))
{
	joint_name(path, say);
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
	return is_member(device) && count_living(clock_coarse_ns()) > 1;
}

/* -- what it has in flight --------------------------------------------------------------------- */

/* Asks the driver, and tells the gang. */
static bool look(struct meter *meter, struct member *member, const struct pace_work *work,
		 uint64_t now_ns)
{
	uint64_t ended_ns, reached;
	bool busy =
		in_flight_look(&member->in_flight, work, gang_is_shut(gang()), now_ns, &ended_ns);

	reached = LOAD(member->in_flight.reached);
	if (LOAD(member->reached) != reached) {
		STORE(member->reached, reached);
		STORE(member->reached_ns, now_ns);
	}
	if (busy) {
		gang_is_busy(gang(), &member->seat, now_ns);
		if (!LOAD(member->in_flight.is_busy)) /* another thread has just seen the end */
			gang_is_idle(gang(), &member->seat, now_ns, now_ns);
		tally_show(&meter->tally, &member->shown_ns, now_ns);
	} else {
		gang_is_idle(gang(), &member->seat, ended_ns ? ended_ns : now_ns, now_ns);
		if (ended_ns)
			tally_show(&meter->tally, &member->shown_ns, ended_ns);
	}
	return busy;
}

/* -- the way through --------------------------------------------------------------------------- */

/* Whether an open gang needs a look at a device that others launch to: they look by themselves. */
static bool is_look_due(const struct in_flight *in_flight, uint64_t now_ns)
{
	return LOAD(in_flight->is_busy) &&
	       (gang_is_shut(gang()) || in_flight_is_due(in_flight, now_ns));
}

/* Sees what the process's other members have in flight; whether there are any. */
static bool look_at_others(const struct member *but, uint64_t now_ns)
{
	bool several = false;

	for (int device = 0; device < VGPU_DEVICES_MAX; device++) {
		if (&members[device] == but || !is_member(device))
			continue;
		several = true;
		if (is_look_due(&members[device].in_flight, now_ns))
			look(cores_meter(device), &members[device], NULL, now_ns);
	}
	return several;
}

/* How long a launch is to wait as there is much in flight before it: not longer than patience
 * lasts while the device comes to no mark, as it may wait for this launch. */
static uint64_t ahead_wait_ns(struct member *member, const struct gang_sight *sight,
			      uint64_t now_ns)
{
	if (sight->ahead_ns < gang_ahead_most_ns(gang(), sight->level_ns))
		return 0;
	trace_write(TRACE_GANG_AHEAD, (int)member->seat.member->device, (int64_t)sight->ahead_ns,
		    0);
	if (meter_since(now_ns, LOAD(member->reached_ns)) < GANG_PATIENCE_NS)
		return GANG_AHEAD_POLL_NS;
	STORE(member->reached_ns, now_ns);
	return 0;
}

static uint64_t ask(struct meter *meter, struct member *member, const struct pace_work *work,
		    uint64_t now_ns)
{
	uint64_t wait_ns;
	unsigned pct = cores_limit(meter);
	struct gang_sight sight = {.several = look_at_others(member, now_ns),
				   .level_ns = BUCKET_FULL_NS};

	sight.in_flight = look(meter, member, work, now_ns);
	sight.ahead_ns = sight.in_flight ? in_flight_ahead_ns(&member->in_flight) : 0;
	gang_count(gang(), now_ns);
	if (pct) {
		bucket_refill(meter->bucket, pct, now_ns);
		sight.level_ns = bucket_level(meter->bucket);
		sight.ready_ns = bucket_wait_ns(meter->bucket, pct);
	}
	wait_ns = gang_ask(gang(), &member->seat, &sight, now_ns);
	return wait_ns || gang_is_shut(gang()) ? wait_ns : ahead_wait_ns(member, &sight, now_ns);
}

/* A closing is short, and each member's launches are awaited by others: it is spun through. */
static int nap(uint64_t wait_ns, uint64_t now_ns)
{
	if (wait_ns <= GANG_POLL_NS &&
	    meter_since(now_ns, LOAD(gang()->words->shut_at)) < SPIN_NS) {
		for (unsigned i = 0; i < SPIN_TIMES; i++)
			__asm__ volatile("" ::: "memory");
		return 0;
	}
	sys_sleep_ns(wait_ns < PACE_POLL_NS ? wait_ns : PACE_POLL_NS);
	pace_driver->look();
	return pace_wait();
}

int member_enter(struct meter *meter, const struct pace_work *work, uint64_t now_ns)
{
	struct member *member = &members[work->device];
	uint64_t wait_ns;
	bool held = false;
	int error = 0;

	if (gang_is_shut(gang()) || in_flight_is_due(&member->in_flight, now_ns))
		while (!error && (wait_ns = ask(meter, member, work, now_ns))) {
			held = true;
			error = nap(wait_ns, now_ns);
			now_ns = clock_steady_ns();
		}
	if (held)
		bucket_count_held(meter->bucket);
	if (error)
		return error;
	if (!LOAD(member->in_flight.is_busy))
		STORE(member->shown_ns, now_ns);
	in_flight_begin(&member->in_flight, work, now_ns);
	gang_is_busy(gang(), &member->seat, now_ns);
	return 0;
}

void member_leave(const struct pace_work *work, bool submitted, uint64_t now_ns)
{
	struct member *member = &members[work->device];

	if (submitted)
		in_flight_submitted(&member->in_flight, work, gang_is_shut(gang()), now_ns);
	if (submitted && is_member(work->device)) {
		/* another thread may have seen the last end */
		gang_is_busy(gang(), &member->seat, now_ns);
		if (work->collective)
			gang_launched_collective(gang(), &member->seat);
	}
	in_flight_left(&member->in_flight);
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

/* Programs ask before each launch, too: PyTorch does where it takes memory. */
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
