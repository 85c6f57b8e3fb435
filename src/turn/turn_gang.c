/*
 * The turns of a gang. The gang has its turns on several GPUs at the same time, although each GPU
 * has a file of its own. For that, its slice says in each file from when on it wants the turn: the
 * same date everywhere. Until that date, other slices use the GPUs, and then they are through with
 * their work. No process of the gang needs more than the file of its own GPU.
 *
 * A slice with a wish counts as idle. If a turn ends at the date, or at most NOTICE_NS before, the
 * gang is next, whatever it has had (grant_next). The date itself is late enough that others have
 * had their part (owed_ns). A gang that writes earlier dates gets more than its part, and the
 * others doubt (turn_doubt.c). A gang whose dates others delay too much doubts as well.
 *
 * There is no lock. If the process is killed after it wrote a wish, the wish is void 2 ms after the
 * date. If the slice had been given the turn, the next waiter finds it dead.
 */
#include "turn_internal.h"

void turn_set_gang(struct turn *turn, uint64_t closing_ns)
{
	uint64_t least_ns = least_of(CLOSING_TIMES * closing_ns, LENGTH_MOST_NS);

	/* Another process of the slice, which left the gang, may have cleared least_ns. */
	if (TURN_LOAD(turn->closing_ns) == closing_ns &&
	    (!closing_ns || TURN_LOAD(turn_own(turn)->least_ns) == least_ns))
		return;
	TURN_STORE(turn->closing_ns, least_of(closing_ns, LENGTH_MOST_NS / 2));
	TURN_STORE(turn_own(turn)->least_ns, least_ns);
	if (!closing_ns)
		TURN_TELL(turn_own(turn)->wish_from, 0);
}

bool turn_has_wish(const struct turn *turn)
{
	return TURN_LOAD(turn_own(turn)->wish_from) != 0;
}

bool turn_has_slice(const struct turn *turn, uint64_t key)
{
	uint64_t left = TURN_SEE(turn->file.file->header.present);

	left &= ~((uint64_t)1 << turn->file.slice);
	for (unsigned i = 0; i < VGPU_TURNS_SLICES; i++)
		if (left >> i & 1 && TURN_LOAD(turn_slice_at(turn, i)->key) == key &&
		    turn_file_slice_lives(&turn->file, i))
			return true;
	return false;
}

/* When the holder's work in flight will be over; or the turn of a gang. */
static uint64_t holder_until(struct turn *turn, const struct grant *grant, uint64_t now_ns)
{
	const struct vgpu_turns_slice *holder = turn_slice_at(turn, grant->holder);
	uint64_t until_ns = most_of(TURN_LOAD(holder->busy_until), grant->begin_ns);
	uint64_t idle_since = TURN_SEE(holder->idle_since);

	if (!grant->is_shared ||
	    (idle_since && !grant_is_between_steps(turn, grant->holder, idle_since, now_ns)))
		return now_ns;
	if (TURN_LOAD(holder->least_ns))
		until_ns = grant_end_ns(turn, grant, LENGTH_LEAST_NS, 0);
	return most_of(least_of(until_ns, now_ns + AHEAD_MOST_NS), now_ns + NOTICE_NS);
}

uint64_t turn_date(struct turn *turn, uint64_t now_ns)
{
	struct grant grant = grant_see(turn, now_ns);
	struct others others = grant_others(turn, turn->file.slice, now_ns);
	uint64_t date_ns = now_ns;

	if (turn_doubt_is_out(turn, now_ns) || !others.are_present)
		return now_ns;
	if (turn_is_mine(turn, &grant))
		return most_of(grant.begin_ns, now_ns);
	if (grant.holder != NOBODY)
		date_ns = holder_until(turn, &grant, now_ns);
	date_ns += others.owed_ns;
	/* There is time for a turn of this gang before that of another one. */
	if (!others.wish_ns || date_ns + TURN_LOAD(turn_own(turn)->least_ns) <= others.wish_ns)
		return date_ns;
	return most_of(date_ns, others.wish_until);
}

/* Gives the word to another slice, or to nobody, unless it is for a turn at from_ns. */
static void pass_on(struct turn *turn, uint64_t from_ns, uint64_t now_ns)
{
	struct grant grant = grant_see(turn, now_ns);

	if (!turn_is_mine(turn, &grant)) {
		turn_holder_notice_loss(turn, now_ns);
		return;
	}
	if (from_ns && grant.begin_ns + NOTICE_NS >= from_ns)
		return;
	turn_account_end(turn, now_ns, now_ns);
	grant_busy(turn, now_ns);
	turn_holder_hand_over(turn, &grant, grant_next(turn, turn->file.slice, now_ns), now_ns,
			      now_ns);
}

/* The wish is near. A slice that has the GPU for itself asks for turns from now on, and so sees the
 * wish. As in grant_want, `present` is written before the word is read. */
static void show_wish(struct turn *turn, uint64_t now_ns)
{
	uint64_t bit = (uint64_t)1 << turn->file.slice, *present = &turn->file.file->header.present;
	struct grant grant;

	if (!(TURN_SEE(*present) & bit))
		__atomic_fetch_or(present, bit, __ATOMIC_SEQ_CST);
	grant = grant_see(turn, now_ns);
	if (grant.holder != NOBODY && !turn_is_mine(turn, &grant) && !grant.is_shared)
		grant_share(turn, &grant, now_ns);
}

/* The gang waits for its date. Whether it has waited for too long, and goes on without turns. */
static bool is_doubt_due(struct turn *turn, uint64_t now_ns)
{
	struct others others = grant_others(turn, turn->file.slice, now_ns);

	if (!turn_doubt_is_due(turn, &others, now_ns))
		return false;
	TURN_TELL(turn_own(turn)->wish_from, 0);
	turn_doubt_begin(turn, now_ns);
	return true;
}

void turn_wish(struct turn *turn, uint64_t from_ns, bool counts, uint64_t now_ns)
{
	struct vgpu_turns_slice *own = turn_own(turn);

	if (turn_doubt_is_out(turn, now_ns) || turn_is_own(turn))
		return;
	if (!counts)
		TURN_STORE(turn->waits_from, 0);
	else if (is_doubt_due(turn, now_ns))
		return;
	TURN_STORE(turn->is_resting, true);
	if (!TURN_LOAD(turn->is_idle))
		grant_idle(turn, now_ns);
	pass_on(turn, from_ns, now_ns);
	if (TURN_LOAD(own->wish_from) != from_ns)
		TURN_TELL(own->wish_from, from_ns);
	if (grant_wish_ns(turn, turn->file.slice, now_ns))
		show_wish(turn, now_ns);
}
