#include "gang.h"

#include "constants.h"
#include "gang_table.h"
#include "holder.h"
#include "relaxed.h"
#include "trace.h"

/* -- members ---------------------------------------------------------------------------------- */

unsigned gang_members(const struct gang *gang)
{
	struct vgpu_region_member *member;
	unsigned count = 0;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));)
		count += gang_table_is_taken(gang, member);
	return count;
}

/* The first living member of the process's slice on that device, or NULL. */
static struct vgpu_region_member *first_on(const struct gang *gang, uint32_t device)
{
	struct vgpu_region_member *member;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));)
		if (gang_table_own_device(gang, member) == device &&
		    gang_table_is_taken(gang, member))
			return member;
	return NULL;
}

/* With fewer members than these, the gang throttles no launch. */
static unsigned least_members(const struct gang *gang)
{
	return gang->kind == GANG_OF_DEVICE ? 1 : 2;
}

/* Opens a gang that has too few members to throttle launches. If all members left while it was
 * shut, no other call opens it. Its devices do not count as throttled. */
static void open_if_small(const struct gang *gang)
{
	if (gang_members(gang) < least_members(gang))
		RELAXED_STORE(gang->words->shut_at, 0);
}

static void raise_members(const struct gang *gang, uint32_t to)
{
	uint32_t seen = RELAXED_LOAD(gang->table->group.members);

	while (seen < to && !RELAXED_CAS(gang->table->group.members, seen, to))
		;
}

/* Fills in the entry, which is the caller's. */
static void set_entry(const struct gang *gang, struct gang_member *self, unsigned entry,
		      uint32_t device)
{
	struct vgpu_region_member *member = &gang->table->member[entry];

	RELAXED_STORE(member->in_flight, 0);
	RELAXED_STORE(member->began, 0);
	RELAXED_STORE(member->ended, 0);
	RELAXED_STORE(member->ready, 0);
	RELAXED_STORE(member->collectives, 0);
	RELAXED_STORE(member->slice, gang->slice);
	RELAXED_STORE(member->device, device);
	raise_members(gang, entry + 1);
	RELAXED_STORE(self->closing_since, 0);
	RELAXED_STORE(self->waits_ns, 0);
	RELAXED_STORE(self->free_ns, 0);
	RELAXED_STORE(self->dated_for, 0);
	RELAXED_STORE(self->device, device);
	RELAXED_STORE(self->entry, member);
	__atomic_store_n(&self->is_joined, true, __ATOMIC_RELEASE);
}

void gang_join_at(const struct gang *gang, struct gang_member *self, unsigned entry, uint32_t owner,
		  uint32_t device)
{
	RELAXED_STORE(gang->table->member[entry].owner, 0); /* a dead one's, maybe */
	open_if_small(gang);
	set_entry(gang, self, entry, device);
	RELAXED_STORE(gang->table->member[entry].owner, owner);
}

bool gang_join(const struct gang *gang, struct gang_member *self, uint32_t owner, uint32_t device)
{
	open_if_small(gang);
	for (unsigned i = 0; i < VGPU_GANG_MEMBERS_MAX; i++) {
		struct vgpu_region_member *member = &gang->table->member[i];
		uint32_t nobody = 0;

		if (gang_table_is_taken(gang, member) || !RELAXED_CAS(member->owner, nobody, owner))
			continue;
		set_entry(gang, self, i, device);
		return true;
	}
	return false;
}

void gang_leave(struct gang_member *self)
{
	RELAXED_STORE(self->is_joined, false);
	RELAXED_STORE(self->entry->in_flight, 0);
	RELAXED_STORE(self->entry->owner, 0);
}

/* -- collectives ------------------------------------------------------------------------------ */

/* Names the time from one opening of the gang to the next, in the high half of a word. */
static uint64_t epoch_of(const struct gang *gang)
{
	return RELAXED_LOAD(gang->words->opened_at) << 32;
}

void gang_launched_collective(const struct gang *gang, struct gang_member *self)
{
	uint64_t *word = &self->entry->collectives, epoch = epoch_of(gang);

	if (gang->kind == GANG_OF_DEVICE)
		return;
	if ((RELAXED_LOAD(*word) & ~(uint64_t)UINT32_MAX) == epoch)
		RELAXED_ADD(*word, 1);
	else /* of two threads at once, one is not counted */
		RELAXED_STORE(*word, epoch | 1);
}

static uint32_t collectives_of(const struct gang *gang, const struct vgpu_region_member *member)
{
	uint64_t word = RELAXED_LOAD(member->collectives);

	return (word & ~(uint64_t)UINT32_MAX) == epoch_of(gang) ? (uint32_t)word : 0;
}

static uint32_t most_collectives(const struct gang *gang)
{
	const struct vgpu_region_member *member;
	uint32_t most = 0;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));) {
		uint32_t count = collectives_of(gang, member);

		most = count > most ? count : most;
	}
	return most;
}

/* At a cut, learns this member's part of the largest count of collectives. Counts differ in a
 * pipeline, where members in the middle both send and receive. */
static void learn_part(const struct gang *gang, struct gang_member *self)
{
	uint64_t most = most_collectives(gang), own = collectives_of(gang, self->entry);
	uint32_t mean = RELAXED_LOAD(self->part);
	uint32_t part = most ? (uint32_t)(own * GANG_PART_ONE / most) : GANG_PART_ONE;

	RELAXED_STORE(self->part, mean ? mean - mean / 4 + part / 4 : part);
}

/* Whether another member waits for a collective that this one has yet to launch. */
static bool is_behind(const struct gang *gang, const struct gang_member *self)
{
	uint64_t part = RELAXED_LOAD(self->part) ? RELAXED_LOAD(self->part) : GANG_PART_ONE;

	return most_collectives(gang) * part / GANG_PART_ONE > collectives_of(gang, self->entry);
}

/* A member that has launched fewer collectives than another need not wait until its device is idle.
 */
static bool may_catch_up(const struct gang *gang, const struct gang_member *self,
			 const struct gang_sight *sight, uint64_t closing_ns)
{
	return gang->kind != GANG_OF_DEVICE && /* whose members count no collectives */
	       closing_ns < GANG_CATCH_UP_FOR_NS && sight->ahead_ns < GANG_CATCH_UP_NS &&
	       is_behind(gang, self);
}

/* -- whether a launch may go ------------------------------------------------------------------- */

bool gang_is_open(const struct gang *gang)
{
	return RELAXED_LOAD(gang->words->shut_at) == 0;
}

/* A closing alternates between soft phases of GANG_SOFT_NS, in which idle members may launch, and
 * hard phases, in which they may not. The first hard phase takes GANG_HARD_NS, and each later one
 * is twice as long as the one before, until one takes more than a second. Returns for how long the
 * closing, which began closing_ns ago, was in soft phases. *ret_hard: it is in a hard phase now. */
static uint64_t soft_ns(uint64_t closing_ns, bool *ret_hard)
{
	uint64_t hard_ns = GANG_HARD_NS, phases = 0;

	while (closing_ns >= GANG_SOFT_NS + hard_ns && hard_ns < NS_PER_S) {
		closing_ns -= GANG_SOFT_NS + hard_ns;
		hard_ns *= 2;
		phases++;
	}
	phases += closing_ns / (GANG_SOFT_NS + hard_ns);
	closing_ns %= GANG_SOFT_NS + hard_ns;
	*ret_hard = closing_ns >= GANG_SOFT_NS;
	return phases * GANG_SOFT_NS + (*ret_hard ? GANG_SOFT_NS : closing_ns);
}

/* The member sees for the first time that the gang closes. */
static void see_closing(struct gang_member *self, uint64_t closing_since, uint32_t progress,
			uint64_t now_ns)
{
	RELAXED_STORE(self->closing_since, closing_since);
	RELAXED_STORE(self->progress, progress);
	RELAXED_STORE(self->quiet_ns, now_ns);
	RELAXED_STORE(self->let_go, 0);
	RELAXED_STORE(self->waits_ns, 0); /* no member is the holder meanwhile */
	RELAXED_STORE(self->free_ns, 0);
	RELAXED_STORE(self->was_busy, false);
	RELAXED_STORE(self->is_cut, false);
}

static void note_progress(struct gang_member *self, uint32_t progress, uint64_t now_ns)
{
	if (RELAXED_LOAD(self->progress) == progress)
		return;
	RELAXED_STORE(self->progress, progress);
	RELAXED_STORE(self->quiet_ns, now_ns);
}

/* For how long the other members have made no progress. */
static uint64_t quiet_for_ns(const struct gang_member *self, uint64_t now_ns)
{
	return since(now_ns, RELAXED_LOAD(self->quiet_ns));
}

/* For how long the other members have made no progress, without the hard phases: nothing can make
 * progress in them. */
static uint64_t soft_quiet_ns(const struct gang_member *self, uint64_t now_ns)
{
	uint64_t closing_since = RELAXED_LOAD(self->closing_since);
	bool hard;

	return since(soft_ns(since(now_ns, closing_since), &hard),
		     soft_ns(since(RELAXED_LOAD(self->quiet_ns), closing_since), &hard));
}

static int device_of(const struct gang_member *self)
{
	return (int)self->device;
}

/* Whether no other member has made progress for quiet_ns, at least patience_ns. Then one more
 * launch is admitted. patience_ns doubles for each launch so admitted, most_doublings times at
 * most. */
static bool is_impatient(struct gang_member *self, uint64_t quiet_ns, uint64_t patience_ns,
			 unsigned most_doublings, uint64_t now_ns)
{
	uint32_t let_go = RELAXED_LOAD(self->let_go);

	if (quiet_ns < patience_ns << (let_go < most_doublings ? let_go : most_doublings))
		return false;
	trace_write(TRACE_GANG_LET_GO, device_of(self), (int64_t)quiet_ns, let_go);
	RELAXED_STORE(self->let_go, let_go + 1);
	RELAXED_STORE(self->quiet_ns, now_ns);
	return true;
}

/* The member has work in flight. */
static uint64_t ask_busy(const struct gang *gang, struct gang_member *self, bool several,
			 uint64_t now_ns)
{
	uint64_t quiet_ns = quiet_for_ns(self, now_ns);
	bool impatient;

	RELAXED_STORE(self->was_busy, true);
	if (several)
		impatient = is_impatient(self, quiet_ns, GANG_PATIENCE_SEVERAL_NS, 8, now_ns);
	else if (gang->kind == GANG_OF_DEVICE) /* it has no hard phases */
		impatient = is_impatient(self, quiet_ns, GANG_PATIENCE_NS, 8, now_ns);
	else
		impatient = is_impatient(self, soft_quiet_ns(self, now_ns), GANG_PATIENCE_NS, 4,
					 now_ns);
	return impatient ? 0 : GANG_POLL_NS;
}

/* The member has no work in flight, but another member has. The member launches when it was idle
 * for GANG_GRACE_NS, in which no other member has made progress. The time counts from the end of
 * its work. But if its last question found that work in flight, the time counts from now: the
 * others also see ends late, because they sleep between two questions. */
static uint64_t ask_idle(const struct gang *gang, struct gang_member *self, uint64_t closing_ns,
			 uint64_t now_ns)
{
	uint64_t idle_ns = RELAXED_LOAD(self->entry->ended);
	bool hard;

	if (RELAXED_LOAD(self->was_busy))
		idle_ns = now_ns;
	RELAXED_STORE(self->was_busy, false);
	if (RELAXED_LOAD(self->quiet_ns) < idle_ns && idle_ns <= now_ns)
		RELAXED_STORE(self->quiet_ns, idle_ns);
	if (gang->kind == GANG_OF_DEVICE)
		return is_impatient(self, quiet_for_ns(self, now_ns), GANG_PATIENCE_IDLE_NS, 4,
				    now_ns)
			       ? 0
			       : GANG_POLL_NS;
	soft_ns(closing_ns, &hard);
	if (hard || quiet_for_ns(self, now_ns) < GANG_GRACE_NS)
		return GANG_POLL_NS;
	RELAXED_STORE(self->quiet_ns, now_ns);
	return 0;
}

uint64_t gang_date_ns(const struct gang *gang, uint64_t now_ns)
{
	struct vgpu_region_member *member;
	uint64_t most_ns = 0;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));) {
		uint64_t ready = RELAXED_LOAD(member->ready) & ~VGPU_MEMBER_FOR_TURN;
		uint64_t wait_ns = since(ready, now_ns);

		if (wait_ns > most_ns && gang_table_is_taken(gang, member))
			most_ns = wait_ns;
	}
	return now_ns + most_ns;
}

/* At the cut: how long until the last time has passed that a member has published. The members of a
 * device's group have one bucket, so they publish nothing: this member's own time holds for all of
 * them. */
static uint64_t recovery_ns(const struct gang *gang, const struct gang_sight *sight,
			    uint64_t now_ns)
{
	return gang->kind == GANG_OF_DEVICE ? sight->ready_ns : gang_date_ns(gang, now_ns) - now_ns;
}

void gang_note_ready(const struct gang *gang, struct gang_member *self, uint64_t ready_ns,
		     bool for_turn, uint64_t now_ns)
{
	uint64_t ready = 0;

	if (ready_ns || for_turn)
		ready = (now_ns + ready_ns) & ~VGPU_MEMBER_FOR_TURN;
	if (gang->kind != GANG_OF_DEVICE)
		RELAXED_STORE(self->entry->ready, for_turn ? ready | VGPU_MEMBER_FOR_TURN : ready);
}

bool gang_waits_for_turn(const struct gang *gang, const struct gang_member *self, uint64_t now_ns)
{
	uint64_t opened_ns = RELAXED_LOAD(gang->words->opened_at);
	bool just_open = since(now_ns, opened_ns) < GANG_TURN_SEEN_NS;
	struct vgpu_region_member *member;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));) {
		uint64_t ready = RELAXED_LOAD(member->ready);
		bool is_recent = since(opened_ns, ready) < GANG_TURN_SEEN_NS;

		if (member != self->entry && ready & VGPU_MEMBER_FOR_TURN &&
		    ((just_open && is_recent) || since(ready, now_ns)) &&
		    gang_table_is_taken(gang, member))
			return true;
	}
	return false;
}

static void count_throttled(const struct gang *gang, uint32_t device, uint64_t ns)
{
	RELAXED_ADD(gang->devices[device].throttled, 1);
	RELAXED_ADD(gang->devices[device].throttled_ns, ns);
}

/* Counts for how long the devices of the slice's own gang were throttled. */
static void count_all_throttled(const struct gang *gang, uint64_t ns)
{
	const struct vgpu_region_member *member;
	uint32_t counted = 0;

	for (unsigned i = 0; (member = gang_table_next(gang, &i));) {
		uint32_t device = RELAXED_LOAD(member->device);

		if (device >= VGPU_DEVICES_MAX || counted >> device & 1)
			continue;
		counted |= 1u << device;
		count_throttled(gang, device, ns);
	}
}

/* The member sees that the gang of several slices, which began to close at closing_since, was
 * opened. The process that opened the gang does not know the devices of other slices. So each
 * member counts for how long its own device was throttled. Of several members of one slice on a
 * device, only the first one does. */
static void see_opened(const struct gang *gang, struct gang_member *self, uint64_t closing_since)
{
	const struct vgpu_region_member *member = self->entry;
	uint64_t none = 0;

	if (RELAXED_CAS(self->closing_since, closing_since, none) &&
	    first_on(gang, self->device) == member)
		count_throttled(gang, self->device,
				since(RELAXED_LOAD(gang->words->opened_at), closing_since));
}

static void open_gang(const struct gang *gang, uint64_t closing_since, uint64_t now_ns)
{
	uint64_t open = 0, throttled_ns = since(now_ns, closing_since);

	RELAXED_STORE(gang->words->opened_at, now_ns);
	if (RELAXED_CAS(gang->words->shut_at, closing_since, open) && gang->kind != GANG_OF_SLICES)
		count_all_throttled(gang, throttled_ns);
}

void gang_begin_turns(const struct gang *gang, uint64_t now_ns)
{
	uint64_t closing_since = RELAXED_LOAD(gang->words->shut_at);

	if (closing_since)
		open_gang(gang, closing_since, now_ns);
}

/* The level at which the gang begins to close. A gang that takes longer to close has a lower level,
 * so it closes more rarely. */
static int64_t closing_level_ns(const struct gang *gang)
{
	int64_t level_ns = -(int64_t)RELAXED_LOAD(gang->words->closing_ns) * GANG_CLOSING_TIMES;

	if (gang->kind == GANG_OF_DEVICE) /* its device works while it closes */
		return GANG_DEVICE_SHUT_NS;
	return level_ns > GANG_SHUT_NS        ? GANG_SHUT_NS
	       : level_ns < GANG_SHUT_MOST_NS ? GANG_SHUT_MOST_NS
					      : level_ns;
}

/* The first member that sees the cut notes for how long the gang closed. */
static void note_cut(const struct gang *gang, uint64_t closing_ns)
{
	uint64_t mean_ns = RELAXED_LOAD(gang->words->closing_ns);
	uint32_t not_yet = 0;

	if (!RELAXED_CAS(gang->words->cut, not_yet, 1))
		return;
	RELAXED_STORE(gang->words->closing_ns, mean_ns - mean_ns / 4 + closing_ns / 4);
}

/* The gang is closing, or shut. others: another member has work in flight. */
static uint64_t ask_not_open(const struct gang *gang, struct gang_member *self,
			     const struct gang_sight *sight, bool others, uint64_t now_ns)
{
	uint64_t closing_since = RELAXED_LOAD(self->closing_since), wait_ns;
	uint64_t closing_ns = since(now_ns, closing_since);

	if (others && may_catch_up(gang, self, sight, closing_ns)) {
		RELAXED_STORE(self->quiet_ns, now_ns);
		trace_write(TRACE_GANG_GOES_ON, device_of(self), sight->level_ns, 1);
		return 0;
	}
	if (sight->in_flight || others) {
		wait_ns = sight->in_flight ? ask_busy(gang, self, sight->several, now_ns)
					   : ask_idle(gang, self, closing_ns, now_ns);
		if (!wait_ns && !sight->in_flight)
			trace_write(TRACE_GANG_GOES_ON, device_of(self), sight->level_ns, 1);
		return wait_ns;
	}
	note_cut(gang, closing_ns);
	if (!RELAXED_LOAD(self->is_cut)) {
		RELAXED_STORE(self->is_cut, true);
		if (gang->kind != GANG_OF_DEVICE)
			learn_part(gang, self);
	}
	wait_ns = recovery_ns(gang, sight, now_ns);
	if (wait_ns) {
		trace_write(TRACE_GANG_CUT, device_of(self), (int64_t)closing_ns, (int64_t)wait_ns);
		return wait_ns;
	}
	open_gang(gang, closing_since, now_ns);
	trace_write(TRACE_GANG_OPENED, device_of(self), (int64_t)closing_ns, sight->level_ns);
	return gang->kind == GANG_OF_DEVICE ? holder_ask(gang, self, false, now_ns) : 0;
}

/* Whether the gang takes turns on any of its devices. A later time than now is of another boot. */
static bool takes_turns(const struct gang *gang, uint64_t now_ns)
{
	uint64_t turned_at = RELAXED_LOAD(gang->table->turned_at);

	return turned_at && now_ns - turned_at < GANG_TURNED_NS;
}

uint64_t gang_ahead_most_ns(const struct gang *gang, int64_t level_ns, uint64_t now_ns)
{
	int64_t left_ns = level_ns - closing_level_ns(gang);

	if (gang->kind == GANG_OF_DEVICE)
		return GANG_HOLD_NS;
	if (takes_turns(gang, now_ns)) /* which may be over at any moment */
		return GANG_AHEAD_LEAST_NS;
	return left_ns < (int64_t)GANG_AHEAD_LEAST_NS ? GANG_AHEAD_LEAST_NS
	       : left_ns > (int64_t)GANG_AHEAD_NS     ? GANG_AHEAD_NS
						      : (uint64_t)left_ns;
}

uint64_t gang_ask(const struct gang *gang, struct gang_member *self, const struct gang_sight *sight,
		  uint64_t now_ns)
{
	uint64_t closing_since = RELAXED_LOAD(gang->words->shut_at),
		 seen_since = RELAXED_LOAD(self->closing_since), wait_ns;
	uint32_t progress;
	bool others;

	if (gang->kind == GANG_OF_SLICES && seen_since && seen_since != closing_since)
		see_opened(gang, self, seen_since);
	if (!closing_since && sight->level_ns > closing_level_ns(gang) && !sight->is_over)
		return gang->kind == GANG_OF_DEVICE
			       ? holder_ask(gang, self, sight->in_flight, now_ns)
			       : 0;
	gang_note_ready(gang, self, sight->ready_ns, sight->for_turn, now_ns);
	if (!closing_since) {
		if (RELAXED_CAS(gang->words->shut_at, closing_since, now_ns)) {
			RELAXED_STORE(gang->words->cut, 0);
			trace_write(TRACE_GANG_SHUT, device_of(self), sight->level_ns, 0);
			if (sight->is_over) /* the next turn's date is not known yet */
				return GANG_POLL_NS;
		}
		closing_since = RELAXED_LOAD(gang->words->shut_at);
		if (!closing_since)
			return 0; /* another member has opened it again */
	}
	others = gang_table_any_in_flight(gang, self->entry, now_ns, &progress);
	if (RELAXED_LOAD(self->closing_since) != closing_since)
		see_closing(self, closing_since, progress, now_ns);
	else
		note_progress(self, progress, now_ns);
	wait_ns = ask_not_open(gang, self, sight, others, now_ns);
	if (gang->kind == GANG_OF_DEVICE)
		holder_note_wait(self, wait_ns && !sight->in_flight, now_ns);
	return wait_ns;
}
