/*
 * The slice of this process has the turn: it keeps it, or passes the word on to the next slice.
 *
 * A turn of the holder is over when it has lasted for its length, or when the work in flight will
 * keep the device busy for that long. The holder then passes the word on, with the time until which
 * the device is busy. The next slice begins to submit LEAD_NS before that time.
 *
 * There is no lock. If the process is killed after grant_pass, the word is the next slice's. The
 * rest is in the slice's own account, which other processes of the slice correct when they ask.
 */
#include "turn_internal.h"

/* -- the end of a turn ------------------------------------------------------------------------ */

/* The turn now belongs to another slice, and begins at until_ns. */
static void lose(struct turn *turn, uint64_t until_ns, uint64_t now_ns)
{
	turn_account_end(turn, until_ns, now_ns);
	TURN_STORE(turn->told_moved, TURN_LOAD(turn->file.file->header.moved_ns));
	TURN_STORE(turn->told_until, until_ns);
}

/* When the device should be through with the slice's work, or the next slice waits no longer. */
static uint64_t free_at(const struct turn *turn, uint64_t end_ns, uint64_t now_ns)
{
	uint64_t busy_ns = TURN_LOAD(turn->account->busy_until);

	busy_ns = least_of(busy_ns, most_of(end_ns, now_ns) + SOFT_NS);
	return most_of(least_of(busy_ns, now_ns + AHEAD_MOST_NS), now_ns);
}

bool turn_holder_hand_over(struct turn *turn, const struct grant *grant, unsigned next,
			   uint64_t end_ns, uint64_t now_ns)
{
	uint64_t until_ns = free_at(turn, end_ns, now_ns);

	/* Another slice's work goes on until a turn begins. */
	if (grant->begin_ns > now_ns && !turn_account_is_running(turn))
		return grant_pass(turn, grant, next, grant->begin_ns);
	if (!grant_pass(turn, grant, next, until_ns))
		return false;
	lose(turn, until_ns, now_ns);
	return true;
}

void turn_holder_notice_loss(struct turn *turn, uint64_t now_ns)
{
	uint64_t until_ns = least_of(TURN_LOAD(turn->account->busy_until), now_ns + AHEAD_MOST_NS);

	if (!turn_account_is_running(turn))
		return;
	turn_account_used_up(turn);
	lose(turn, until_ns, now_ns);
}

/* -- the holder ------------------------------------------------------------------------------- */

/* It has the turn, and may submit. */
static void take_up(struct turn *turn, const struct grant *grant, uint64_t now_ns)
{
	struct vgpu_turns_slice *own = turn_own(turn);
	uint64_t waits_from = TURN_LOAD(turn->waits_from);

	TURN_STORE(own->seen, now_ns);
	if (TURN_LOAD(own->wish_from))
		TURN_TELL(own->wish_from, 0);
	if (!turn_account_begin(turn, grant->begin_ns, now_ns))
		return;
	TURN_ADD(own->turns, 1);
	if (turn->waits)
		TURN_ADD(turn->waits->turns, 1);
	turn_waiter_count(turn, waits_from && waits_from < now_ns ? now_ns - waits_from : 0);
	TURN_STORE(turn->told_until, 0);
	TURN_STORE(own->quiet_from, 0);
	if (now_ns >= TURN_LOAD(turn->doubt_until) + TURN_DOUBT_MOST_NS)
		TURN_STORE(turn->doubt_ns, 0);
}

/* The turn is used up. False: the word has changed. True: it is another's, or still this slice's,
 * which *ret_is_mine says. */
static bool use_up(struct turn *turn, const struct grant *grant, uint64_t end_ns, uint64_t now_ns,
		   bool *ret_is_mine)
{
	bool is_late = TURN_LOAD(turn->account->busy_until) > end_ns + SOFT_NS;
	unsigned next;

	turn_account_pay(turn, free_at(turn, end_ns, now_ns),
			 now_ns); /* the order goes by payments */
	next = grant_next_at(turn, is_late ? turn->file.slice : NOBODY, end_ns, now_ns);
	*ret_is_mine = next == NOBODY || next == turn->file.slice;
	turn_account_used_up(turn);
	if (!*ret_is_mine)
		return turn_holder_hand_over(turn, grant, next, end_ns, now_ns);
	return grant_pass(turn, grant, turn->file.slice, now_ns);
}

/* While a lender pauses, little is in flight, so that it waits for little when it comes back. Then
 * the turn is as short as turns can be. */
static void shorten_lent(struct turn *turn, const struct grant *grant, uint64_t now_ns,
			 uint64_t *end_ns, uint64_t *ahead_ns)
{
	uint64_t had_ns = turn_account_had_ns(turn, grant->begin_ns);
	uint64_t length_ns = most_of(LENGTH_LEAST_NS, grant_pressure_ns(turn));
	struct lenders lenders = grant_lenders(turn, had_ns, now_ns);

	if (lenders.pause || lenders.want)
		*ahead_ns = least_of(*ahead_ns, LENGTH_LEAST_NS);
	if (lenders.want)
		*end_ns = least_of(*end_ns, grant->begin_ns + length_ns);
}

/* The turn has no end if nobody else wants the GPU. */
static uint64_t turn_end_ns(const struct turn *turn, const struct grant *grant,
			    const struct others *others)
{
	return grant_end_ns(turn, grant, others->want ? others->length_ns : GRANT_ENDLESS,
			    others->wish_ns);
}

/* A gang's turn: what the gang has in flight says little, as its kernels wait for other devices.
 * The turn is over when the gang has to begin to close. */
static bool in_gang_turn(struct turn *turn, const struct grant *grant, const struct others *others,
			 uint64_t now_ns, struct turn_answer *ret_answer)
{
	uint64_t end_ns = turn_end_ns(turn, grant, others);
	uint64_t closed_ns = now_ns + TURN_LOAD(turn->closing_ns);
	bool is_mine = true;

	*ret_answer = turn_go(TURN_MINE);
	if (closed_ns < end_ns)
		return true;
	grant_busy(turn, closed_ns);
	if (!use_up(turn, grant, end_ns, now_ns, &is_mine))
		return false;
	if (!is_mine)
		*ret_answer = turn_wait_for(POLL_NS);
	return true;
}

/* The slice has begun its turn: it goes on, or has enough in flight, or the turn is used up.
 * Returns as turn_holder_ask does. */
static bool in_turn(struct turn *turn, const struct grant *grant, const struct others *others,
		    uint64_t now_ns, struct turn_answer *ret_answer)
{
	uint64_t end_ns = turn_end_ns(turn, grant, others);
	uint64_t busy_ns = TURN_LOAD(turn->account->busy_until);
	uint64_t ahead_ns = others->ahead_ns;
	bool is_mine = true, is_over;

	shorten_lent(turn, grant, now_ns, &end_ns, &ahead_ns);
	if (busy_ns >= end_ns && ahead_ns > NOTICE_NS)
		ahead_ns = NOTICE_NS;
	is_over = now_ns >= end_ns || (busy_ns >= end_ns && busy_ns <= now_ns + ahead_ns);
	if (is_over && !use_up(turn, grant, end_ns, now_ns, &is_mine))
		return false;
	*ret_answer = turn_go(TURN_MINE);
	if (!is_mine)
		*ret_answer = turn_wait_for(POLL_NS);
	else if (busy_ns > now_ns + ahead_ns)
		*ret_answer = turn_wait_for(most_of(busy_ns - now_ns - ahead_ns, AGAIN_NS));
	return true;
}

bool turn_holder_ask(struct turn *turn, const struct grant *grant, const struct others *others,
		     uint64_t now_ns, struct turn_answer *ret_answer)
{
	if (!grant->is_shared) {
		turn_account_end(turn, now_ns, now_ns);
		*ret_answer = turn_go(TURN_ALONE);
		return true;
	}
	if (grant->begin_ns > now_ns + LEAD_NS) {
		*ret_answer = turn_wait_for(grant->begin_ns - LEAD_NS - now_ns);
		return true;
	}
	take_up(turn, grant, now_ns);
	if (!others->are_present) {
		*ret_answer = turn_go(TURN_ALONE);
		if (!grant_unshare(turn, grant))
			return false;
		turn_account_end(turn, now_ns, now_ns);
		return true;
	}
	if (now_ns > TURN_LOAD(turn->account->held_from) + IDLE_NS)
		turn_account_pay(turn, now_ns, now_ns);
	if (TURN_LOAD(turn->closing_ns))
		return in_gang_turn(turn, grant, others, now_ns, ret_answer);
	return in_turn(turn, grant, others, now_ns, ret_answer);
}
