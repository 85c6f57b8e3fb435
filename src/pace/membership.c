#include "membership.h"

#include <stdio.h>

#include "clock.h"
#include "constants.h"
#include "cores.h"
#include "gang_time.h"
#include "joint.h"
#include "lock.h"
#include "trace.h"

#define COUNT_NS (10 * NS_PER_MS) /* how often living members are counted */
#define FULL_NS  (1 * NS_PER_S)   /* how often a gang is asked that had no entry left */

/* A device of the process. */
struct membership {
	struct gang_member self;
	const struct gang
		*gang;     /* that `self` is of; NULL: the device never was a member; atomic */
	uint64_t noted_ns; /* when the process last showed that it launches; atomic */
};

static struct membership members[VGPU_DEVICES_MAX]; /* by CUDA ordinal */
static uint32_t wanted; /* a bit for each device that is to join; atomic */
static enum pace_gang rule;
static struct region *joined;
static void (*look)(int device, uint64_t now_ns);
static struct gang own;                         /* the slice's gang */
static const struct gang *present = &own;       /* own, or the gang of several slices; atomic */
static struct gang of_device[VGPU_DEVICES_MAX]; /* by CUDA ordinal */
static unsigned living;                         /* members of the gang at living_at_ns; atomic */
static uint64_t living_at_ns;                   /* clock_coarse_ns(); atomic */
static uint64_t full_ns; /* when `own` last had no free entry; 0: never; atomic */
static unsigned count;   /* members that the process has; written under `joining`; atomic */
static bool said_full;   /* a message has said that `own` is full; written under `joining` */
static struct lock joining = LOCK_INIT;

static uint32_t owner_of(const struct region *region, unsigned slot)
{
	uint64_t claims = RELAXED_LOAD(region->file->own.slots[slot].claims);

	return (slot + 1) | (uint32_t)(claims << VGPU_GANG_OWNER_SLOTS);
}

static bool lives(const struct gang *gang, uint32_t owner)
{
	unsigned slot = (owner & ((1u << VGPU_GANG_OWNER_SLOTS) - 1)) - 1;

	(void)gang;
	return slot < VGPU_SLOTS_MAX && region_slot_alive(joined, slot) &&
	       owner_of(joined, slot) == owner;
}

void membership_attach(struct region *region, void (*its_look)(int device, uint64_t now_ns))
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
	look = its_look;
	joined = region;
}

void membership_forked(void)
{
	joined = NULL;
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		members[device] = (struct membership){.gang = NULL};
	present = &own;
	joint_forked();
	living_at_ns = full_ns = 0;
	count = 0;
	said_full = false;
	lock_init(&joining);
}

/* The gang that devices of this process join. */
static const struct gang *gang(void)
{
	return __atomic_load_n(&present, __ATOMIC_ACQUIRE); /* pairs with change_gang's release */
}

const struct gang *membership_gang(int device)
{
	/* pairs with try_join's release */
	return __atomic_load_n(&members[device].gang, __ATOMIC_ACQUIRE);
}

const struct gang *membership_group(int device)
{
	return &of_device[device];
}

struct gang_member *membership_self(int device)
{
	return &members[device].self;
}

bool membership_is_any(int device)
{
	/* Pairs with gang_join's release: the entry is there. */
	return __atomic_load_n(&members[device].self.is_joined, __ATOMIC_ACQUIRE);
}

bool membership_is_of_gang(int device)
{
	return membership_is_any(device) && membership_gang(device)->kind != GANG_OF_DEVICE;
}

bool membership_is_of_group(int device)
{
	return membership_is_any(device) && membership_gang(device)->kind == GANG_OF_DEVICE;
}

bool membership_is_attached(void)
{
	return joined != NULL;
}

bool membership_exists(void)
{
	return RELAXED_LOAD(count) && cores_region();
}

bool membership_wants_gang(int device)
{
	enum pace_gang now = RELAXED_LOAD(rule);

	return now == PACE_GANG_YES || now == PACE_GANG_NAMED ||
	       (now == PACE_GANG_FOUND && RELAXED_LOAD(wanted) >> device & 1);
}

/* -- joining and leaving ----------------------------------------------------------------------- */

/* Leaves the gang. The gang is paid for the member's work in flight, until now or until it ended.
 */
static void leave(int device)
{
	struct gang_member *self = &members[device].self;
	const struct gang *from = membership_gang(device);
	uint64_t now_ns = clock_steady_ns();

	RELAXED_SUB(count, 1);
	look(device, now_ns);
	gang_is_idle(from, self, now_ns, now_ns);
	gang_count(from, now_ns);
	if (from->kind == GANG_OF_SLICES)
		joint_leave(from, self);
	else
		gang_leave(self);
}

/* All members leave their gang. Each joins the gang `to` with its next launch. */
static void change_gang(const struct gang *to)
{
	for (int device = 0; device < VGPU_DEVICES_MAX; device++)
		if (membership_is_of_gang(device))
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

static bool try_join(struct membership *member, const struct gang *in, uint32_t index)
{
	__atomic_store_n(&member->gang, in, __ATOMIC_RELEASE);
	if (in->kind == GANG_OF_SLICES)
		return joint_join(in, &member->self, index);
	return gang_join(in, &member->self, owner_of(joined, (unsigned)joined->slot), index);
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

static void join(struct membership *member, const struct gang *in, const struct meter *meter)
{
	uint32_t index = (uint32_t)meter->quota.index;
	bool done = try_join(member, in, index);

	if (!done && in->kind == GANG_OF_SLICES) {
		change_gang(&own);
		done = try_join(member, &own, index);
	}
	RELAXED_STORE(living_at_ns, 0);
	if (!done) {
		RELAXED_STORE(full_ns, clock_steady_ns());
		say_full();
		return;
	}
	RELAXED_ADD(count, 1);
	trace_write(TRACE_GANG_JOINED, meter->quota.index, gang_members(RELAXED_LOAD(member->gang)),
		    0);
}

/* Makes the device a member of the gang that the policy names; or, with `shares`, of its device's
 * group; or of none. Other devices that are to be in no gang leave theirs, because the process may
 * never launch to them again. */
static void change(const struct meter *meter, int device, bool shares)
{
	struct membership *member = &members[device];
	const struct gang *in;

	lock_acquire(&joining);
	choose_gang();
	for (int other = 0; other < VGPU_DEVICES_MAX; other++)
		if (!membership_wants_gang(other) && membership_is_of_gang(other))
			leave(other);
	in = membership_wants_gang(device) ? gang() : shares ? &of_device[device] : NULL;
	if (membership_is_any(device) && membership_gang(device) != in)
		leave(device);
	if (in && !membership_is_any(device))
		join(member, in, meter);
	lock_release(&joining);
}

/* Whether the gang was found full less than FULL_NS ago. To find out again takes a system call for
 * each member. */
static bool is_full(void)
{
	uint64_t then_ns = RELAXED_LOAD(full_ns);

	return then_ns && meter_since(clock_steady_ns(), then_ns) < FULL_NS;
}

void membership_update_gang(const struct meter *meter, int device)
{
	if ((membership_wants_gang(device) != membership_is_of_gang(device) && !is_full()) ||
	    joint_is_due())
		change(meter, device, membership_is_of_group(device));
}

bool membership_update_group(const struct meter *meter, int device, bool shares)
{
	if (shares != membership_is_of_group(device) && !(shares && is_full()))
		change(meter, device, shares);
	return membership_is_of_group(device);
}

/* Each process notes itself once in MEET_EACH_NS, and finds out then whether the last note was its
 * own. */
bool membership_show_launch(const struct meter *meter, int device, uint64_t now_ns)
{
	struct membership *member = &members[device];
	struct vgpu_region_group *group = &joined->file->group[meter->quota.index];
	uint32_t self = 1 + (uint32_t)joined->slot, last;
	uint64_t met_ns;

	if (meter_since(now_ns, RELAXED_LOAD(member->noted_ns)) >= MEET_EACH_NS) {
		RELAXED_STORE(member->noted_ns, now_ns);
		last = RELAXED_LOAD(group->launcher);
		if (last != self) {
			RELAXED_STORE(group->launcher, self);
			if (last)
				RELAXED_STORE(group->met_at, now_ns);
		}
	}
	met_ns = RELAXED_LOAD(group->met_at);
	return met_ns && meter_since(now_ns, met_ns) < MEET_NS;
}

void pace_set_gang(enum pace_gang new_rule)
{
	joint_name(NULL);
	RELAXED_STORE(rule, new_rule);
}

void pace_set_named_gang(const char *path)
{
	joint_name(path);
	RELAXED_STORE(rule, PACE_GANG_NAMED);
}

void pace_join_gang(int device)
{
	const struct meter *meter = cores_meter(device);

	if (device < 0 || device >= VGPU_DEVICES_MAX)
		return;
	__atomic_fetch_or(&wanted, 1u << device, __ATOMIC_RELAXED);
	if (meter && cores_region())
		membership_update_gang(meter, device);
}

unsigned membership_living(uint64_t now_ns)
{
	uint64_t then_ns = RELAXED_LOAD(living_at_ns);

	if (!then_ns || meter_since(now_ns, then_ns) >= COUNT_NS) {
		RELAXED_STORE(living_at_ns, now_ns);
		joint_watch();
		RELAXED_STORE(living, gang_members(gang()));
	}
	return RELAXED_LOAD(living);
}
