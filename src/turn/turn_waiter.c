/*
 * Another slice has the turn: the process waits, and takes the turn if the holder is dead, idle or
 * overdue. A stopped or killed holder so delays the others for a bounded time.
 *
 * No lock: the word is changed by grant_pass only, for which the word must be as it was seen.
 */
#include "turn_internal.h"

void turn_waiter_count(struct turn *turn, uint64_t waited_ns)
{
	static const uint32_t bounds_us[] = {VGPU_WAITS_BOUNDS_US};
	unsigned place = 0;

	TURN_ADD(turn_own(turn)->waited_ns, waited_ns);
	if (!turn->waits)
		return;
	while (place < VGPU_WAITS - 1 && waited_ns > bounds_us[place] * NS_PER_US)
		place++;
	TURN_ADD(turn->waits->waited_ns, waited_ns);
	TURN_ADD(turn->waits->count[place], 1);
}

static uint64_t poll_ns(const struct turn *turn, const struct grant *grant)
{
	return grant_guess(turn, grant->holder) == turn->file.slice ? POLL_NEXT_NS : POLL_NS;
}

/* Gives the word, which is to be had, to the slice that is next. */
static bool take(struct turn *turn, const struct grant *grant, uint64_t begin_ns, unsigned except,
		 uint64_t now_ns, struct turn_answer *ret_answer)
{
	unsigned next = grant_next(turn, except, now_ns);

	if (next == NOBODY)
		next = turn->file.slice;
	*ret_answer = turn_wait_for(poll_ns(turn, grant));
	if (next == grant->holder) /* it deserves another turn, and has SOFT_NS to ask for it */
		return true;
	return grant_pass(turn, grant, next, most_of(begin_ns, now_ns)) && next != turn->file.slice;
}

/* Whether the holder's processes all are dead: the kernel is asked once a millisecond at most. */
static bool is_dead(struct turn *turn, unsigned holder, uint64_t now_ns)
{
	if (now_ns < TURN_LOAD(turn->asked_life) + POLL_NEXT_NS)
		return false;
	TURN_STORE(turn->asked_life, now_ns);
	return !turn_file_slice_lives(&turn->file, holder);
}

/* The holder has begun its turn and wants to continue. If it was not seen for SOFT_NS, it is
 * stopped, or its host does something else. Then it has no right to a turn until it asks. */
static bool take_when_over(struct turn *turn, const struct grant *grant, uint64_t now_ns,
			   struct turn_answer *ret_answer)
{
	const struct vgpu_turns_slice *holder = turn_slice_at(turn, grant->holder);
	uint64_t length_ns = grant_others(turn, grant->holder, now_ns).length_ns;
	uint64_t end_ns = grant_end_ns(turn, grant, length_ns, 0);
	uint64_t wish_ns = grant_wish_ns(turn, turn->file.slice, now_ns);
	uint64_t busy_ns = TURN_LOAD(holder->busy_until);
	bool is_late = now_ns >= end_ns + SOFT_NS || busy_ns > end_ns + SOFT_NS;

	end_ns = grant_end_ns(turn, grant, length_ns, wish_ns);
	if (now_ns < end_ns + GRACE_NS) {
		*ret_answer =
			turn_wait_for(least_of(end_ns + GRACE_NS - now_ns, poll_ns(turn, grant)));
		return true;
	}
	if (now_ns >= most_of(end_ns, TURN_LOAD(holder->seen)) + SOFT_NS)
		grant_drop(turn, grant->holder, now_ns);
	busy_ns = least_of(busy_ns, most_of(end_ns, now_ns) + SOFT_NS);
	return take(turn, grant, busy_ns, is_late ? grant->holder : NOBODY, now_ns, ret_answer);
}

/* The holder was given its turn, and was not seen since: it sleeps, or is stopped. */
static bool take_when_unseen(struct turn *turn, const struct grant *grant, uint64_t now_ns,
			     struct turn_answer *ret_answer)
{
	if (now_ns < grant->begin_ns + SOFT_NS) {
		*ret_answer = turn_wait_for(
			least_of(grant->begin_ns + SOFT_NS - now_ns, poll_ns(turn, grant)));
		return true;
	}
	grant_drop(turn, grant->holder, now_ns);
	return take(turn, grant, now_ns, grant->holder, now_ns, ret_answer);
}

static bool was_seen(const struct turn *turn, const struct grant *grant)
{
	uint64_t seen_ns = TURN_LOAD(turn_slice_at(turn, grant->holder)->seen);

	return seen_ns + LEAD_NS >= grant->begin_ns;
}

/* Whether the holder's host does something else, after this turn's work should have been over. */
static bool is_quiet(const struct turn *turn, const struct grant *grant, uint64_t now_ns)
{
	uint64_t quiet_from = TURN_LOAD(turn_slice_at(turn, grant->holder)->quiet_from);

	return quiet_from && quiet_from >= grant->begin_ns && quiet_from <= now_ns;
}

/* The slice has been idle since its work should have been over. */
static bool take_when_quiet(struct turn *turn, const struct grant *grant, uint64_t now_ns,
			    struct turn_answer *ret_answer)
{
	struct vgpu_turns_slice *holder = turn_slice_at(turn, grant->holder);
	uint64_t since_ns = most_of(TURN_LOAD(holder->busy_until), grant->begin_ns);

	since_ns = least_of(since_ns, now_ns);
	grant_drop(turn, grant->holder, since_ns);
	if (!is_quiet(turn, grant, now_ns)) { /* any more: it was heard of meanwhile */
		TURN_CAS(holder->idle_since, since_ns, 0);
		return false;
	}
	return take(turn, grant, grant->begin_ns, grant->holder, now_ns, ret_answer);
}

/* A gang that was given the word for its date is idle until then. */
bool turn_waiter_ask(struct turn *turn, const struct grant *grant, uint64_t now_ns,
		     struct turn_answer *ret_answer)
{
	uint64_t present = TURN_SEE(turn->file.file->header.present), idle_since, idle_ns;

	if (grant->holder == NOBODY)
		return take(turn, grant, grant->begin_ns, NOBODY, now_ns, ret_answer);
	idle_since = TURN_SEE(turn_slice_at(turn, grant->holder)->idle_since);
	if (!(present >> grant->holder & 1) || is_dead(turn, grant->holder, now_ns)) {
		grant_drop(turn, grant->holder, now_ns);
		return take(turn, grant, grant->begin_ns, grant->holder, now_ns, ret_answer);
	}
	if (!grant->is_shared) {
		grant_share(turn, grant, now_ns);
		return false;
	}
	if (idle_since && grant_wish_ns(turn, grant->holder, now_ns)) {
		*ret_answer = turn_wait_for(POLL_NEXT_NS);
		return true;
	}
	idle_ns = TURN_LOAD(turn_slice_at(turn, grant->holder)->least_ns) ? GANG_IDLE_NS : IDLE_NS;
	if (idle_since && idle_since <= now_ns && now_ns - idle_since < idle_ns) {
		*ret_answer = turn_wait_for(idle_ns - (now_ns - idle_since));
		return true;
	}
	if (idle_since)
		return take(turn, grant, grant->begin_ns, grant->holder, now_ns, ret_answer);
	if (is_quiet(turn, grant, now_ns))
		return take_when_quiet(turn, grant, now_ns, ret_answer);
	return was_seen(turn, grant) ? take_when_over(turn, grant, now_ns, ret_answer)
				     : take_when_unseen(turn, grant, now_ns, ret_answer);
}
