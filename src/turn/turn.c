/*
 * May this process submit now?
 *
 * How it works. The file's turn word says which slice has the turn (grant.c); the account says what
 * the slice has paid (account.c). A process that asks is in one of these states:
 *
 *     alone     its slice has the word, which is not shared: it submits, and nothing is counted
 *     mine      its slice has the word: it submits until the turn is over, then hands the turn over
 *               (turn_holder.c)
 *     waits     another slice has the word: it sleeps until the turn should come, and takes it if
 *               the holder is dead, idle or overdue (turn_waiter.c)
 *     paused    its slice is over its limit: it wants nothing until it has recovered
 *     doubts    it waited for longer than the bound: it submits without turns for a while
 *               (turn_doubt.c)
 *
 * What always holds. A process submits because of an answer of turn_ask, and the word was its
 * slice's when it asked. So after the word has changed, a process of the slice that had it submits
 * at most what it had asked for before.
 *
 * There is no lock, and no thread. If the process is killed on any line, the kernel unlocks its
 * seat's byte. Then the next waiter finds its slice dead, or the slice's other processes continue.
 */
#include "turn.h"

#include <errno.h>
#include <string.h>

#include "sys.h"
#include "turn_internal.h"

#define TRIES       8 /* to change the word, before the process asks again */
#define WEIGHT_MOST 100
/* From one wake-up by a slice that becomes idle to another. */
#define WAKE_EACH_NS (1 * NS_PER_MS)

bool turn_takes_part(const struct turn *turn, uint64_t now_ns)
{
	return !turn_doubt_is_out(turn, now_ns);
}

/* -- asking ----------------------------------------------------------------------------------- */

/* The process wants nothing for so long, although it has work to do. */
static struct turn_answer rest(struct turn *turn, uint64_t ns, uint64_t now_ns)
{
	TURN_STORE(turn->waits_from, 0);
	TURN_STORE(turn->is_resting, true);
	grant_idle(turn, now_ns);
	return turn_wait_for(ns);
}

/* The slice is over its limit. It keeps a turn until its work is nearly over, and then gives it up
 * and wants nothing until it has recovered. */
static struct turn_answer pause_for(struct turn *turn, uint64_t ns, uint64_t now_ns)
{
	struct grant grant = grant_see(turn, now_ns);
	uint64_t busy_ns = TURN_LOAD(turn->account->busy_until);
	bool has_begun = grant.begin_ns <= now_ns || turn_account_is_running(turn);

	TURN_STORE(turn->waits_from, 0);
	if (turn_is_mine(turn, &grant) && has_begun && busy_ns > now_ns + NOTICE_NS)
		return turn_wait_for(busy_ns - now_ns - NOTICE_NS);
	if (turn_is_mine(turn, &grant))
		turn_holder_hand_over(turn, &grant, grant_next(turn, turn->file.slice, now_ns),
				      now_ns, now_ns);
	else
		turn_holder_notice_loss(turn, now_ns);
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
	struct turn_answer answer = turn_wait_for(AGAIN_NS);

	for (unsigned tries = 0; tries < TRIES; tries++) {
		struct grant grant = grant_see(turn, now_ns);

		if (turn_is_mine(turn, &grant)) {
			if (turn_holder_ask(turn, &grant, others, now_ns, &answer))
				break;
			continue;
		}
		turn_holder_notice_loss(turn, now_ns);
		if (turn_waiter_ask(turn, &grant, now_ns, &answer))
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

/* Slices without a quota divide the time that the quotas of the others leave into equal parts. */
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

	if (turn_doubt_is_out(turn, now_ns) || turn_is_alone(turn))
		return turn_go(TURN_ALONE);
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
		} else if (turn_doubt_is_due(turn, &others, now_ns)) {
			turn_doubt_begin(turn, now_ns);
			answer = turn_go(TURN_ALONE);
		}
	}
	answer.wait_ns = least_of(answer.wait_ns, look_after_ns(turn, now_ns));
	answer.bell = bell;
	return answer;
}

void turn_give_way(struct turn *turn, uint64_t now_ns)
{
	TURN_STORE(turn->waits_from, 0);
	if (!TURN_LOAD(turn->is_idle) && !TURN_LOAD(turn->is_lost))
		grant_idle(turn, now_ns);
}

void turn_sleep(struct turn *turn, const struct turn_answer *answer)
{
	sys_futex_wait(&turn_own(turn)->bell, answer->bell, answer->wait_ns);
}

/* When the slice counts as idle, unless it is heard of before. Under memory pressure it never does:
 * its work may take much longer than it took before. Nor does a gang, whose kernels wait for other
 * devices. */
static void set_quiet(struct turn *turn, uint64_t now_ns)
{
	uint64_t busy_ns = most_of(TURN_LOAD(turn->account->busy_until), now_ns);
	uint64_t quiet_ns = busy_ns + QUIET_NS + (busy_ns - now_ns) / QUIET_PART;

	if (TURN_LOAD(turn->is_waiting) || TURN_LOAD(turn->closing_ns) || grant_pressure_ns(turn))
		quiet_ns = 0;
	TURN_STORE(turn_own(turn)->quiet_from, quiet_ns);
}

void turn_submitted(struct turn *turn, uint64_t busy_until_ns, uint64_t now_ns)
{
	struct grant grant = grant_see(turn, now_ns);

	if (TURN_LOAD(turn->is_lost))
		return;
	if (TURN_LOAD(turn->is_idle) && !TURN_LOAD(turn->is_resting) &&
	    !turn_doubt_is_out(turn, now_ns))
		grant_want(turn, now_ns);
	if (turn_is_mine(turn, &grant) && grant.is_shared && grant.begin_ns + CHANGE_NS > now_ns)
		busy_until_ns += grant.begin_ns + CHANGE_NS - now_ns;
	grant_busy(turn, busy_until_ns);
	TURN_STORE(turn_own(turn)->seen, now_ns);
	set_quiet(turn, now_ns);
}

void turn_will_wait(struct turn *turn, uint64_t now_ns)
{
	TURN_STORE(turn->is_waiting, true);
	set_quiet(turn, now_ns);
}

void turn_waited(struct turn *turn, uint64_t now_ns)
{
	TURN_STORE(turn->is_waiting, false);
	set_quiet(turn, now_ns);
}

void turn_looked(struct turn *turn, uint64_t now_ns)
{
	uint64_t *quiet_from = &turn_own(turn)->quiet_from, was = TURN_LOAD(*quiet_from);

	if (was && was < now_ns + QUIET_NS)
		TURN_STORE(*quiet_from, now_ns + QUIET_NS);
}

/* The slice has no work. Its turn is over if it has lasted for its length. Else the next slice is
 * woken, and takes the turn if the slice is idle by then. The slice does not hand it over: a host
 * that sees the end of its work too late submits more at once. Not each gap that is too short to
 * end a turn wakes the next slice. */
static void offer(struct turn *turn, const struct grant *grant, uint64_t ended_ns, uint64_t now_ns)
{
	struct others others = grant_others(turn, turn->file.slice, now_ns);
	uint64_t end_ns =
		grant->begin_ns + grant_length_ns(turn, turn->file.slice, others.length_ns);
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
	turn_holder_hand_over(turn, grant, next, end_ns, now_ns);
}

/* Begins of turns move by no more than that while a slice waits for the end of its own work. */
static bool is_possible(int64_t moved_ns)
{
	return moved_ns <= (int64_t)AHEAD_MOST_NS && moved_ns >= -(int64_t)AHEAD_MOST_NS;
}

/* The difference between the actual end of the work and the one that the slice announced corrects
 * the turns, unless others moved the slice's turn. If the work took longer, the next slice was at
 * work as well, and each had half of the device. */
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
	if (!turn_is_mine(turn, &grant) || !grant.is_shared || grant_has_peer(turn))
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

/* Resets the entry and the account of a slice of which no other process lives. Its last process may
 * have died in its turn, hours ago or before the last boot. */
static void begin_slice(struct turn *turn, uint64_t now_ns)
{
	struct vgpu_turns_slice *own = turn_own(turn);

	__atomic_fetch_and(&turn->file.file->header.present, ~((uint64_t)1 << turn->file.slice),
			   __ATOMIC_SEQ_CST);
	TURN_TELL(own->idle_since, now_ns);
	TURN_STORE(own->busy_until, 0);
	TURN_STORE(own->seen, 0);
	TURN_STORE(own->used_ns, 0);
	TURN_STORE(own->quiet_from, 0);
	TURN_STORE(own->burst_from, 0);
	TURN_STORE(own->burst_ns, 0);
	TURN_STORE(own->turns, 0);
	TURN_STORE(own->waited_ns, 0);
	TURN_STORE(own->wish_from, 0);
	TURN_STORE(own->least_ns, 0);
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
		if (turn_is_mine(turn, &grant) && !grant_has_peer(turn))
			turn_holder_hand_over(turn, &grant,
					      grant_next(turn, turn->file.slice, now_ns), now_ns,
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
