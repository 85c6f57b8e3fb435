/*
 * May this process submit now?
 *
 * How it works. The file's turn word says which slice has the turn (grant.c); the account says what
 * the slice has paid (account.c). A process that asks is in one of these states:
 *
 *     alone     its slice has the word, which is not shared: it goes, and nobody counts
 *     mine      its slice has the word: it goes until the turn is over, then hands it over
 *     waits     another slice has the word: it sleeps until the turn should come, and takes it if
 *               the holder is dead, idle or overdue
 *     paused    its slice is over its limit: it wants nothing until it has recovered
 *     doubts    it waited for longer than the bound: it goes without turns for a while
 *
 * A turn of the holder is over when it has lasted for its length, or when so much is in flight that
 * the device will be busy for that long. The holder then passes the word on, with the time until
 * which the device is busy, and the next slice begins to submit LEAD_NS before that.
 *
 * What always holds. A process submits because of an answer of turn_ask, and the word was its
 * slice's when it asked. So after the word has changed, a process of the slice that had it submits
 * at most what it had asked for before.
 *
 * No lock, and no thread. If the process is killed on any line, the kernel unlocks its seat's byte,
 * and the next waiter finds its slice dead, or the slice's other processes go on.
 */
#include "turn.h"

#include <errno.h>
#include <string.h>

#include "sys.h"
#include "turn_internal.h"

#define TRIES        8                /* to change the word, before the process asks again */
#define AGAIN_NS     (50 * NS_PER_US) /* then */
#define POLL_NEXT_NS (1 * NS_PER_MS)  /* the slice that is next looks after the holder, */
#define POLL_NS      (5 * NS_PER_MS)  /* and the others look less often */
#define WAKE_EACH_NS                                                                \
	(1 * NS_PER_MS) /* from one wake-up by a slice that becomes idle to another \
			 */
#define WEIGHT_MOST 100

/* ns of waiting, and so many times the waits for one turn, after which a slice looks whether it has
 * had its part. Half: a slice doubts although its turns even out later. Twice: it doubts later.
 */
#define SHORT_LEAST_NS (1 * NS_PER_S)
#define SHORT_TURNS    4

/* Turns of the length under memory pressure for which a slice waits beyond TURN_WAIT_MOST_NS. Half:
 * a slice with a fifth of the GPU doubts. Twice: a length that is not true delays a slice for twice
 * as long. */
#define PRESSURE_WAITS 8

static uint64_t least_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static bool is_mine(const struct turn *turn, const struct grant *grant)
{
	return grant->holder == turn->file.slice;
}

/* -- answers ---------------------------------------------------------------------------------- */

static struct turn_answer go(enum turn_kind kind)
{
	return (struct turn_answer){.kind = kind};
}

static struct turn_answer wait_for(uint64_t ns)
{
	return (struct turn_answer){.kind = TURN_WAIT,
				    .wait_ns = most_of(1, least_of(ns, TURN_ASK_AGAIN_NS))};
}

/* -- the end of a turn ------------------------------------------------------------------------ */

/* The turn is another's, which begins then. */
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

/* Passes the word on, from the time at which the device should be free. False: it has changed. */
static bool hand_over(struct turn *turn, const struct grant *grant, unsigned next, uint64_t end_ns,
		      uint64_t now_ns)
{
	uint64_t until_ns = free_at(turn, end_ns, now_ns);

	if (!grant_pass(turn, grant, next, until_ns))
		return false;
	lose(turn, until_ns, now_ns);
	return true;
}

/* The word was taken, from when the slice's work should be over. */
static void notice_loss(struct turn *turn, uint64_t now_ns)
{
	uint64_t until_ns = least_of(TURN_LOAD(turn->account->busy_until), now_ns + AHEAD_MOST_NS);

	if (!turn_account_is_running(turn))
		return;
	turn_account_used_up(turn);
	lose(turn, until_ns, now_ns);
}

/* -- the holder ------------------------------------------------------------------------------- */

/* The process has waited for so long. */
static void count_waited(struct turn *turn, uint64_t waited_ns)
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

/* It has the turn, and may submit. */
static void take_up(struct turn *turn, const struct grant *grant, uint64_t now_ns)
{
	struct vgpu_turns_slice *own = turn_own(turn);
	uint64_t waits_from = TURN_LOAD(turn->waits_from);

	TURN_STORE(own->seen, now_ns);
	if (!turn_account_begin(turn, grant->begin_ns, now_ns))
		return;
	TURN_ADD(own->turns, 1);
	if (turn->waits)
		TURN_ADD(turn->waits->turns, 1);
	count_waited(turn, waits_from && waits_from < now_ns ? now_ns - waits_from : 0);
	TURN_STORE(turn->told_until, 0);
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
	next = grant_next(turn, is_late ? turn->file.slice : NOBODY, now_ns);
	*ret_is_mine = next == NOBODY || next == turn->file.slice;
	turn_account_used_up(turn);
	if (!*ret_is_mine)
		return hand_over(turn, grant, next, end_ns, now_ns);
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

/* True: *ret_answer is the answer; false: the word has changed, or has to be looked at again. This
 * holds for what follows. The slice has begun its turn: it goes on, or has enough in flight, or
 * the turn is used up. */
static bool in_turn(struct turn *turn, const struct grant *grant, const struct others *others,
		    uint64_t now_ns, struct turn_answer *ret_answer)
{
	uint64_t end_ns = grant->begin_ns + others->length_ns;
	uint64_t busy_ns = TURN_LOAD(turn->account->busy_until);
	uint64_t ahead_ns = others->ahead_ns;
	bool is_mine = true, is_over;

	shorten_lent(turn, grant, now_ns, &end_ns, &ahead_ns);
	if (others->want && busy_ns >= end_ns && ahead_ns > NOTICE_NS)
		ahead_ns = NOTICE_NS;
	is_over = now_ns >= end_ns || (busy_ns >= end_ns && busy_ns <= now_ns + ahead_ns);
	if (others->want && is_over && !use_up(turn, grant, end_ns, now_ns, &is_mine))
		return false;
	*ret_answer = go(TURN_MINE);
	if (!is_mine)
		*ret_answer = wait_for(POLL_NS);
	else if (busy_ns > now_ns + ahead_ns)
		*ret_answer = wait_for(most_of(busy_ns - now_ns - ahead_ns, AGAIN_NS));
	return true;
}

static bool ask_as_holder(struct turn *turn, const struct grant *grant, const struct others *others,
			  uint64_t now_ns, struct turn_answer *ret_answer)
{
	if (!grant->is_shared) {
		turn_account_end(turn, now_ns, now_ns);
		*ret_answer = go(TURN_ALONE);
		return true;
	}
	if (grant->begin_ns > now_ns + LEAD_NS) {
		*ret_answer = wait_for(grant->begin_ns - LEAD_NS - now_ns);
		return true;
	}
	take_up(turn, grant, now_ns);
	if (!others->are_present) {
		*ret_answer = go(TURN_ALONE);
		if (!grant_unshare(turn, grant))
			return false;
		turn_account_end(turn, now_ns, now_ns);
		return true;
	}
	if (now_ns > TURN_LOAD(turn->account->held_from) + IDLE_NS)
		turn_account_pay(turn, now_ns, now_ns);
	return in_turn(turn, grant, others, now_ns, ret_answer);
}

/* -- a waiter --------------------------------------------------------------------------------- */

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
	*ret_answer = wait_for(poll_ns(turn, grant));
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

/* The holder has begun its turn and wants to go on. If it was not seen for SOFT_NS, it is stopped,
 * or its host does something else: it has no claim on a turn until it asks. */
static bool take_when_over(struct turn *turn, const struct grant *grant, uint64_t now_ns,
			   struct turn_answer *ret_answer)
{
	const struct vgpu_turns_slice *holder = turn_slice_at(turn, grant->holder);
	uint64_t end_ns = grant->begin_ns + grant_others(turn, grant->holder, now_ns).length_ns;
	uint64_t busy_ns = TURN_LOAD(holder->busy_until);
	bool is_late = now_ns >= end_ns + SOFT_NS || busy_ns > end_ns + SOFT_NS;

	if (now_ns < end_ns + GRACE_NS) {
		*ret_answer = wait_for(least_of(end_ns + GRACE_NS - now_ns, poll_ns(turn, grant)));
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
		*ret_answer = wait_for(
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

static bool ask_as_waiter(struct turn *turn, const struct grant *grant, uint64_t now_ns,
			  struct turn_answer *ret_answer)
{
	uint64_t present = TURN_SEE(turn->file.file->header.present), idle_since;

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
	if (idle_since && idle_since <= now_ns && now_ns - idle_since < IDLE_NS) {
		*ret_answer = wait_for(IDLE_NS - (now_ns - idle_since));
		return true;
	}
	if (idle_since)
		return take(turn, grant, grant->begin_ns, grant->holder, now_ns, ret_answer);
	return was_seen(turn, grant) ? take_when_over(turn, grant, now_ns, ret_answer)
				     : take_when_unseen(turn, grant, now_ns, ret_answer);
}

/* -- doubt ------------------------------------------------------------------------------------ */

/* The length of a turn where every slice is busy. */
static uint64_t longest_ns(const struct turn *turn)
{
	return most_of(LENGTH_MOST_NS, grant_pressure_ns(turn));
}

/* For how long a process waits for a turn at most: twice as long as it can take where every slice
 * tells the truth. */
static uint64_t bound_ns(const struct turn *turn, const struct others *others)
{
	uint64_t length_ns = longest_ns(turn);
	uint64_t round_ns = length_ns + (uint64_t)LEAD_MOST_NS + (uint64_t)BEHIND_MOST_NS;
	uint64_t turns_ns = round_ns * others->weight / TURN_LOAD(turn->weight);
	uint64_t most_ns = TURN_WAIT_MOST_NS + PRESSURE_WAITS * grant_pressure_ns(turn);

	return least_of(2 * (turns_ns + length_ns + SOFT_NS), most_ns);
}

static bool is_out(const struct turn *turn, uint64_t now_ns)
{
	return TURN_LOAD(turn->is_lost) || now_ns < TURN_LOAD(turn->doubt_until);
}

bool turn_takes_part(const struct turn *turn, uint64_t now_ns)
{
	return !is_out(turn, now_ns);
}

static void doubt(struct turn *turn, uint64_t now_ns)
{
	uint64_t for_ns = most_of(2 * TURN_LOAD(turn->doubt_ns), TURN_DOUBT_NS);

	for_ns = least_of(for_ns, TURN_DOUBT_MOST_NS);
	TURN_STORE(turn->doubt_ns, for_ns);
	TURN_STORE(turn->doubt_until, now_ns + for_ns);
	if (TURN_LOAD(turn->waits_from))
		count_waited(turn, now_ns - TURN_LOAD(turn->waits_from));
	TURN_STORE(turn->waits_from, 0);
	grant_idle(turn, now_ns);
}

/* The process waits for a turn: for how long in all, and now. A process that was stopped did not
 * wait. */
static uint64_t count_wait(struct turn *turn, uint64_t now_ns)
{
	uint64_t from_ns = TURN_LOAD(turn->waits_from), asked_ns = TURN_LOAD(turn->asked_at);
	uint64_t waited_ns = now_ns > asked_ns ? now_ns - asked_ns : 0;

	if (!from_ns)
		from_ns = now_ns, waited_ns = 0;
	if (waited_ns > 2 * TURN_ASK_AGAIN_NS) {
		from_ns += waited_ns - 2 * TURN_ASK_AGAIN_NS;
		waited_ns = 2 * TURN_ASK_AGAIN_NS;
	}
	TURN_STORE(turn->waits_from, from_ns);
	TURN_STORE(turn->asked_at, now_ns);
	TURN_ADD(turn->waited_ns, waited_ns);
	return now_ns > from_ns ? now_ns - from_ns : 0;
}

/* Whether the slice had less than half of its part in the last seconds in which it wanted turns. */
static bool is_short(struct turn *turn, const struct others *others)
{
	uint64_t own = TURN_LOAD(turn->weight), all = own + others->weight;
	uint64_t waited_ns = TURN_LOAD(turn->waited_ns);
	uint64_t paid_ns = TURN_LOAD(turn->account->paid_ns) - TURN_LOAD(turn->paid_before);

	if (waited_ns < most_of(SHORT_LEAST_NS, SHORT_TURNS * longest_ns(turn) * all / own))
		return false;
	TURN_STORE(turn->waited_ns, 0);
	TURN_STORE(turn->paid_before, TURN_LOAD(turn->account->paid_ns));
	return paid_ns < (waited_ns + paid_ns) * own / all / 2;
}

/* Whether the process should not believe in turns for a while: it waits for a turn for too long, or
 * is given too few. */
static bool is_cheated(struct turn *turn, const struct others *others, uint64_t now_ns)
{
	uint64_t wait_ns = count_wait(turn, now_ns);

	return is_short(turn, others) || wait_ns >= bound_ns(turn, others);
}

/* -- the contract ----------------------------------------------------------------------------- */

/* The process wants nothing for so long, although it has work to do. */
static struct turn_answer rest(struct turn *turn, uint64_t ns, uint64_t now_ns)
{
	TURN_STORE(turn->waits_from, 0);
	TURN_STORE(turn->is_resting, true);
	grant_idle(turn, now_ns);
	return wait_for(ns);
}

/* The slice is over its limit. It keeps a turn until its work is nearly over, and then gives it up
 * and wants nothing until it has recovered. */
static struct turn_answer pause_for(struct turn *turn, uint64_t ns, uint64_t now_ns)
{
	struct grant grant = grant_see(turn, now_ns);
	uint64_t busy_ns = TURN_LOAD(turn->account->busy_until);

	TURN_STORE(turn->waits_from, 0);
	if (is_mine(turn, &grant) && grant.begin_ns <= now_ns && busy_ns > now_ns + NOTICE_NS)
		return wait_for(busy_ns - now_ns - NOTICE_NS);
	if (is_mine(turn, &grant))
		hand_over(turn, &grant, grant_next(turn, turn->file.slice, now_ns), now_ns, now_ns);
	else
		notice_loss(turn, now_ns);
	return rest(turn, ns, now_ns);
}

/* For how long the work of the slice's last turn will go on: 0, or ns. Another turn is of no use
 * before that. */
static uint64_t overrun_ns(const struct turn *turn, uint64_t now_ns)
{
	uint64_t busy_ns = TURN_LOAD(turn->account->busy_until);

	if (!TURN_LOAD(turn->told_until) || turn_account_is_running(turn))
		return 0;
	return busy_ns > now_ns + NOTICE_NS ? busy_ns - now_ns - NOTICE_NS : 0;
}

static struct turn_answer ask(struct turn *turn, const struct others *others, uint64_t now_ns)
{
	struct turn_answer answer = wait_for(AGAIN_NS);

	for (unsigned tries = 0; tries < TRIES; tries++) {
		struct grant grant = grant_see(turn, now_ns);

		if (is_mine(turn, &grant)) {
			if (ask_as_holder(turn, &grant, others, now_ns, &answer))
				break;
			continue;
		}
		notice_loss(turn, now_ns);
		if (ask_as_waiter(turn, &grant, now_ns, &answer))
			break;
	}
	return answer;
}

/* Whether the answer is to wait for a turn, and not for work of the process's own. */
static bool waits_for_turn(const struct turn *turn, const struct turn_answer *answer)
{
	return answer->kind == TURN_WAIT && !turn_account_is_running(turn);
}

/* After which time the process should look whether its last turn is over (turn_over). */
static uint64_t look_after_ns(const struct turn *turn, uint64_t now_ns)
{
	uint64_t told_ns = TURN_LOAD(turn->told_until);

	if (!told_ns)
		return UINT64_MAX;
	return told_ns > now_ns ? told_ns - now_ns : POLL_NEXT_NS;
}

static void set_weight(struct turn *turn, unsigned weight)
{
	TURN_STORE(turn->weight, weight);
	TURN_STORE(turn_own(turn)->weight, weight);
}

/* Those without a share of their own have equal parts of what those of others leave. */
static void take_rest(struct turn *turn, const struct others *others)
{
	uint64_t left = others->assured_pct < WEIGHT_MOST ? WEIGHT_MOST - others->assured_pct : 0;
	unsigned weight = (unsigned)most_of(left, REST_LEAST) / (others->rest + 1);

	weight = weight ? weight : 1;
	if (TURN_LOAD(turn->takes_rest) && TURN_LOAD(turn->weight) != weight)
		set_weight(turn, weight);
}

struct turn_answer turn_ask(struct turn *turn, uint64_t now_ns)
{
	uint32_t bell = TURN_SEE(turn_own(turn)->bell); /* before the word: see grant.c */
	struct turn_answer answer;
	struct others others;
	uint64_t pause_ns, overrun;

	if (is_out(turn, now_ns) || turn_is_alone(turn))
		return go(TURN_ALONE);
	others = grant_others(turn, turn->file.slice, now_ns);
	take_rest(turn, &others);
	pause_ns = others.are_present ? turn_account_wait_ns(turn, now_ns) : 0;
	overrun = overrun_ns(turn, now_ns);
	if (pause_ns) {
		answer = pause_for(turn, pause_ns, now_ns);
		answer.by_limit = true;
	} else if (overrun) {
		answer = rest(turn, overrun, now_ns);
	} else {
		grant_want(turn, now_ns);
		answer = ask(turn, &others, now_ns);
		if (!waits_for_turn(turn, &answer)) {
			TURN_STORE(turn->waits_from, 0);
		} else if (is_cheated(turn, &others, now_ns)) {
			doubt(turn, now_ns);
			answer = go(TURN_ALONE);
		}
	}
	answer.wait_ns = least_of(answer.wait_ns, look_after_ns(turn, now_ns));
	answer.bell = bell;
	return answer;
}

void turn_sleep(struct turn *turn, const struct turn_answer *answer)
{
	sys_futex_wait(&turn_own(turn)->bell, answer->bell, answer->wait_ns);
}

void turn_submitted(struct turn *turn, uint64_t busy_until_ns, uint64_t now_ns)
{
	struct grant grant = grant_see(turn, now_ns);

	if (TURN_LOAD(turn->is_lost))
		return;
	if (TURN_LOAD(turn->is_idle) && !is_out(turn, now_ns))
		grant_want(turn, now_ns);
	if (is_mine(turn, &grant) && grant.is_shared && grant.begin_ns + CHANGE_NS > now_ns)
		busy_until_ns += grant.begin_ns + CHANGE_NS - now_ns;
	grant_busy(turn, busy_until_ns);
	TURN_STORE(turn_own(turn)->seen, now_ns);
}

/* The slice has no work. Its turn is over if it has lasted for its length. Else the next slice is
 * woken, and takes the turn if the slice is idle by then. The slice does not hand it over: a host
 * that sees the end of its work too late submits more at once. Not each gap that is too short to
 * end a turn wakes the next slice. */
static void offer(struct turn *turn, const struct grant *grant, uint64_t ended_ns, uint64_t now_ns)
{
	struct others others = grant_others(turn, turn->file.slice, now_ns);
	uint64_t end_ns = grant->begin_ns + others.length_ns;
	bool is_gap = now_ns < ended_ns + IDLE_NS;
	unsigned next;

	if (!others.want ||
	    (now_ns < end_ns && is_gap && now_ns < TURN_LOAD(turn->rang) + WAKE_EACH_NS))
		return;
	next = grant_next(turn, turn->file.slice, now_ns);
	if (next == NOBODY)
		return;
	if (now_ns < end_ns) {
		TURN_STORE(turn->rang, now_ns);
		grant_wake(turn, next);
		return;
	}
	turn_account_used_up(turn);
	turn_account_end(turn, ended_ns, now_ns); /* not the time since */
	hand_over(turn, grant, next, end_ns, now_ns);
}

/* Begins of turns move by no more than that while a slice waits for the end of its own work. */
static bool is_possible(int64_t moved_ns)
{
	return moved_ns <= (int64_t)AHEAD_MOST_NS && moved_ns >= -(int64_t)AHEAD_MOST_NS;
}

/* The end of its work that the slice told was wrong by so much, unless others moved its turn. If it
 * took longer, the next slice was at work as well, and each had half of the device. */
void turn_over(struct turn *turn, uint64_t ended_ns, uint64_t now_ns)
{
	uint64_t told_ns = TURN_LOAD(turn->told_until), moved_ns;
	int64_t later_ns;

	if (!told_ns || TURN_LOAD(turn->is_lost))
		return;
	TURN_STORE(turn->told_until, 0);
	if (turn_account_is_running(turn) || grant_has_peer(turn))
		return;
	moved_ns = TURN_LOAD(turn->file.file->header.moved_ns) - TURN_LOAD(turn->told_moved);
	later_ns = (int64_t)(least_of(ended_ns, now_ns) - told_ns);
	if (is_possible((int64_t)moved_ns))
		later_ns -= (int64_t)moved_ns;
	if (later_ns < -(int64_t)AHEAD_MOST_NS)
		return;
	turn_account_correct(turn, later_ns > 0 ? later_ns / 2 : later_ns, now_ns);
	grant_move(turn, later_ns < LATER_MOST_NS ? later_ns : LATER_MOST_NS, now_ns);
}

void turn_idle(struct turn *turn, uint64_t ended_ns, uint64_t now_ns)
{
	struct grant grant;

	if (TURN_LOAD(turn->is_lost))
		return;
	ended_ns = least_of(ended_ns, now_ns);
	turn_over(turn, ended_ns, now_ns);
	grant_busy(turn, ended_ns);
	TURN_STORE(turn->is_resting, false);
	grant_idle(turn, ended_ns);
	grant = grant_see(turn, now_ns);
	if (!is_mine(turn, &grant) || !grant.is_shared || grant_has_peer(turn))
		return;
	turn_account_pay(turn, ended_ns, now_ns);
	offer(turn, &grant, ended_ns, now_ns);
}

/* -- joining and leaving ---------------------------------------------------------------------- */

static unsigned percent_of(unsigned value)
{
	return value == 0 ? 1 : value < WEIGHT_MOST ? value : WEIGHT_MOST;
}

void turn_set(struct turn *turn, unsigned weight, unsigned limit_pct)
{
	TURN_STORE(turn->takes_rest, weight == 0);
	set_weight(turn, weight ? percent_of(weight) : WEIGHT_MOST);
	TURN_STORE(turn->limit_pct, percent_of(limit_pct));
	TURN_STORE(turn_own(turn)->assured_pct, weight ? percent_of(weight) : WEIGHT_MOST);
}

/* The entry and the account of a slice of which no other process lives: its last process may have
 * died in its turn, hours or a boot ago. */
static void begin_slice(struct turn *turn, uint64_t now_ns)
{
	struct vgpu_turns_slice *own = turn_own(turn);

	__atomic_fetch_and(&turn->file.file->header.present, ~((uint64_t)1 << turn->file.slice),
			   __ATOMIC_SEQ_CST);
	TURN_TELL(own->idle_since, now_ns);
	TURN_STORE(own->busy_until, 0);
	TURN_STORE(own->seen, 0);
	TURN_STORE(own->used_ns, 0);
	TURN_STORE(own->burst_from, 0);
	TURN_STORE(own->burst_ns, 0);
	TURN_STORE(own->turns, 0);
	TURN_STORE(own->waited_ns, 0);
	TURN_STORE(turn->account->held_from, 0);
	TURN_STORE(turn->account->busy_until, 0);
	TURN_STORE(turn->account->paid_until, 0);
}

/* Takes a seat in the file that is open. */
static int join(struct turn *ret_turn, const struct turn_slice *slice, struct fault *fault)
{
	bool is_first = false;
	int error;

	error = turn_file_join(&ret_turn->file, slice->key, &is_first, fault);
	if (error) {
		turn_file_forget(&ret_turn->file);
		return error;
	}
	ret_turn->account = slice->account;
	ret_turn->waits = slice->waits;
	ret_turn->is_idle = true;
	ret_turn->is_first = is_first;
	if (is_first)
		begin_slice(ret_turn, 1);
	turn_set(ret_turn, slice->weight, slice->limit_pct);
	return 0;
}

int turn_join(struct turn *ret_turn, const char *path, const struct turn_slice *slice,
	      struct fault *fault)
{
	int error;

	memset(ret_turn, 0, sizeof(*ret_turn));
	error = turn_file_open(path, &ret_turn->file, fault);
	return error ? error : join(ret_turn, slice, fault);
}

int turn_join_offered(struct turn *ret_turn, int fd, const struct turn_slice *slice,
		      struct fault *fault)
{
	int error;

	memset(ret_turn, 0, sizeof(*ret_turn));
	error = turn_file_take(fd, &ret_turn->file, fault);
	return error ? error : join(ret_turn, slice, fault);
}

bool turn_watch(struct turn *turn)
{
	if (!TURN_LOAD(turn->is_lost) && turn_file_watch(&turn->file) != 0)
		TURN_STORE(turn->is_lost, true);
	return !TURN_LOAD(turn->is_lost);
}

/* Gives the turn and the seat up. */
static void resign(struct turn *turn, uint64_t now_ns)
{
	struct grant grant = grant_see(turn, now_ns);

	if (turn_watch(turn)) {
		grant_idle(turn, now_ns);
		if (!grant_has_peer(turn))
			grant_absent(turn);
		if (is_mine(turn, &grant) && !grant_has_peer(turn))
			hand_over(turn, &grant, grant_next(turn, turn->file.slice, now_ns), now_ns,
				  now_ns);
	}
	turn_file_leave(&turn->file);
}

void turn_leave(struct turn *turn, uint64_t now_ns)
{
	resign(turn, now_ns);
	turn_file_forget(&turn->file);
}

void turn_retire(struct turn *turn, uint64_t now_ns)
{
	resign(turn, now_ns);
	TURN_STORE(turn->is_lost, true);
}

void turn_forget(struct turn *turn)
{
	turn_file_forget(&turn->file);
	memset(turn, 0, sizeof(*turn));
	turn->file.shared.fd = -1;
}
