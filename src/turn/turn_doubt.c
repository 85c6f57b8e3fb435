/*
 * How long a process believes in turns. Other slices can write anything into the file. If a process
 * waits for longer than the bound, or its slice has less than half of its part of the time, it
 * launches without turns for TURN_DOUBT_NS. Each time that this happens again, the time is twice as
 * long.
 */
#include "turn_internal.h"

/* ns of waiting, and how many waits for one turn, after which a slice looks whether it has had its
 * part. Half: a slice doubts although its turns even out later. Twice: it doubts later.
 */
#define SHORT_LEAST_NS (1 * NS_PER_S)
#define SHORT_TURNS    4

/* Turns of the length under memory pressure for which a slice waits beyond TURN_WAIT_MOST_NS. Half:
 * a slice with a fifth of the GPU doubts. Twice: a length that is not true delays a slice for twice
 * as long. */
#define PRESSURE_WAITS 8

/* The length of a turn where every slice is busy. */
static uint64_t longest_ns(const struct turn *turn)
{
	return most_of(LENGTH_MOST_NS, grant_pressure_ns(turn));
}

/* For how long a process waits for a turn at most: twice as long as it can take where every slice
 * tells the truth. A gang waits for a date as well. */
static uint64_t bound_ns(const struct turn *turn, const struct others *others)
{
	uint64_t date_ns = TURN_LOAD(turn->closing_ns) ? AHEAD_MOST_NS : 0;
	uint64_t length_ns = longest_ns(turn);
	uint64_t round_ns = length_ns + (uint64_t)LEAD_MOST_NS + (uint64_t)BEHIND_MOST_NS;
	uint64_t turns_ns = round_ns * others->weight / TURN_LOAD(turn->weight);
	uint64_t most_ns = TURN_WAIT_MOST_NS + PRESSURE_WAITS * grant_pressure_ns(turn);

	return least_of(2 * (turns_ns + length_ns + SOFT_NS + date_ns), most_ns);
}

bool turn_doubt_is_out(const struct turn *turn, uint64_t now_ns)
{
	return TURN_LOAD(turn->is_lost) || now_ns < TURN_LOAD(turn->doubt_until);
}

void turn_doubt_begin(struct turn *turn, uint64_t now_ns)
{
	uint64_t for_ns = most_of(2 * TURN_LOAD(turn->doubt_ns), TURN_DOUBT_NS);

	for_ns = least_of(for_ns, TURN_DOUBT_MOST_NS);
	TURN_STORE(turn->doubt_ns, for_ns);
	TURN_STORE(turn->doubt_until, now_ns + for_ns);
	if (TURN_LOAD(turn->waits_from))
		turn_waiter_count(turn, now_ns - TURN_LOAD(turn->waits_from));
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

bool turn_doubt_is_due(struct turn *turn, const struct others *others, uint64_t now_ns)
{
	uint64_t wait_ns = count_wait(turn, now_ns);

	return is_short(turn, others) || wait_ns >= bound_ns(turn, others);
}
