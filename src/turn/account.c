/*
 * The payments of a slice for its turns: the wall time from the begin of a turn until its work is
 * over.
 *
 * How it works. `held_from` runs while the slice has the turn: the time before it is paid. The
 * process of the slice that moves it on by a compare-and-swap adds the distance to three sums:
 *
 *     used_ns       += paid                      in the file, for monitors
 *     weighted_ns   += paid × 100 / weight       in the file: the slice with the least is next
 *     ready_at      += paid × 100 / limit        in the slice's own memory: its limit
 *
 * `ready_at` is the limit in one word: the slice has credit for (now - ready_at) × limit / 100. It
 * never lies further back than the credit that a slice may save. After the slice was idle, that is
 * TURN_CREDIT_NS, as in a token bucket. While the slice waits for turns, it is
 * TURN_CREDIT_WAITS_NS, because the slice did not cause the wait.
 *
 * What always holds. Only the slice's own processes change ready_at and held_from, and no other
 * slice can. The two sums in the file are hints to others: wrong ones change the order of turns.
 *
 * If the process is killed on any line, the slice has paid for one step less.
 */
#include "turn_internal.h"

#define PERCENT       100
#define BURST_MOST_NS (2 * LENGTH_MOST_NS) /* a larger value means this one */
#define BURST_PARTS   4 /* burst_ns is the mean of the last so many bursts, about */

static int64_t over(int64_t ns, unsigned part)
{
	return ns * PERCENT / (int64_t)(part ? part : 1);
}

static bool is_before(uint64_t a_ns, uint64_t b_ns)
{
	return (int64_t)(a_ns - b_ns) < 0;
}

/* -- the limit -------------------------------------------------------------------------------- */

/* The least that ready_at may be. */
static uint64_t floor_ns(const struct turn *turn, int64_t credit_ns, uint64_t now_ns)
{
	return now_ns - (uint64_t)over(credit_ns, TURN_LOAD(turn->limit_pct));
}

static void charge_limit(struct turn *turn, int64_t paid_ns, uint64_t least_ns)
{
	uint64_t was = TURN_LOAD(turn->account->ready_at), is;

	do {
		is = is_before(was, least_ns) ? least_ns : was;
		is += (uint64_t)over(paid_ns, TURN_LOAD(turn->limit_pct));
	} while (is != was && !TURN_CAS(turn->account->ready_at, was, is));
}

/* At which a slice stops in its turn: under memory pressure, after a turn's length at the least. */
static int64_t allowed_debt_ns(const struct turn *turn)
{
	int64_t pressure_ns = (int64_t)grant_pressure_ns(turn);

	return pressure_ns > TURN_DEBT_NS ? pressure_ns : TURN_DEBT_NS;
}

/* Work that the slice has submitted in its turn and not paid yet counts as debt. */
uint64_t turn_account_wait_ns(const struct turn *turn, uint64_t now_ns)
{
	unsigned limit_pct = TURN_LOAD(turn->limit_pct);
	int64_t debt_ns = (int64_t)(TURN_LOAD(turn->account->ready_at) - now_ns), allowed_ns = 0;
	int64_t unpaid_ns = (int64_t)(TURN_LOAD(turn->account->busy_until) -
				      TURN_LOAD(turn->account->held_from));

	if (turn_account_is_running(turn)) {
		allowed_ns = over(allowed_debt_ns(turn), limit_pct);
		debt_ns += unpaid_ns > 0 ? over(unpaid_ns, limit_pct) : 0;
	}
	if (limit_pct >= PERCENT || debt_ns <= allowed_ns)
		return 0;
	return (uint64_t)debt_ns;
}

/* -- payments --------------------------------------------------------------------------------- */

static void bill(struct turn *turn, int64_t paid_ns, uint64_t now_ns)
{
	struct vgpu_turns_slice *own = turn_own(turn);

	TURN_ADD(turn->account->paid_ns, (uint64_t)paid_ns);
	TURN_ADD(own->used_ns, (uint64_t)paid_ns);
	TURN_ADD(own->weighted_ns, (uint64_t)over(paid_ns, TURN_LOAD(turn->weight)));
	charge_limit(turn, paid_ns, floor_ns(turn, TURN_CREDIT_WAITS_NS, now_ns));
}

bool turn_account_is_running(const struct turn *turn)
{
	return TURN_LOAD(turn->account->held_from) != 0;
}

bool turn_account_begin(struct turn *turn, uint64_t begin_ns, uint64_t now_ns)
{
	uint64_t none = 0, paid_ns = TURN_LOAD(turn->account->paid_until);

	if (is_before(begin_ns, now_ns - AHEAD_MOST_NS))
		begin_ns = now_ns - AHEAD_MOST_NS;
	if (is_before(begin_ns, paid_ns) && is_before(paid_ns, now_ns + AHEAD_MOST_NS))
		begin_ns = paid_ns;
	return TURN_CAS(turn->account->held_from, none, begin_ns ? begin_ns : 1);
}

void turn_account_pay(struct turn *turn, uint64_t until_ns, uint64_t now_ns)
{
	uint64_t from_ns = TURN_LOAD(turn->account->held_from);

	if (!from_ns || !is_before(from_ns, until_ns))
		return;
	if (!TURN_CAS(turn->account->held_from, from_ns, until_ns))
		return;
	bill(turn, (int64_t)(until_ns - from_ns), now_ns);
	TURN_STORE(turn->account->paid_until, until_ns);
}

uint64_t turn_account_had_ns(const struct turn *turn, uint64_t begin_ns)
{
	uint64_t had_ns = TURN_LOAD(turn_own(turn)->weighted_ns);
	uint64_t paid_until = TURN_LOAD(turn->account->held_from);

	if (is_before(begin_ns, paid_until))
		had_ns -= (uint64_t)over((int64_t)(paid_until - begin_ns), TURN_LOAD(turn->weight));
	return had_ns;
}

void turn_account_end(struct turn *turn, uint64_t until_ns, uint64_t now_ns)
{
	uint64_t from_ns = TURN_LOAD(turn->account->held_from);

	while (from_ns && !TURN_CAS(turn->account->held_from, from_ns, 0))
		;
	if (!from_ns || !is_before(from_ns, until_ns))
		return;
	bill(turn, (int64_t)(until_ns - from_ns), now_ns);
	TURN_STORE(turn->account->paid_until, until_ns);
}

void turn_account_correct(struct turn *turn, int64_t more_ns, uint64_t now_ns)
{
	bill(turn, more_ns, now_ns);
}

/* -- bursts, and the order ------------------------------------------------------------------- */

static uint64_t burst_so_far(const struct vgpu_turns_slice *own)
{
	uint64_t burst_ns = TURN_LOAD(own->used_ns) - TURN_LOAD(own->burst_from);

	return burst_ns < BURST_MOST_NS ? burst_ns : BURST_MOST_NS;
}

static void end_burst(struct vgpu_turns_slice *own)
{
	uint64_t this_ns = burst_so_far(own), mean_ns = TURN_LOAD(own->burst_ns);

	TURN_STORE(own->burst_from, TURN_LOAD(own->used_ns));
	if (mean_ns > BURST_MOST_NS)
		mean_ns = BURST_MOST_NS;
	if (this_ns)
		TURN_STORE(own->burst_ns,
			   mean_ns ? mean_ns - mean_ns / BURST_PARTS + this_ns / BURST_PARTS
				   : this_ns);
}

void turn_account_used_up(struct turn *turn)
{
	struct vgpu_turns_slice *own = turn_own(turn);
	uint64_t at_least_ns = 2 * burst_so_far(own);

	if (TURN_LOAD(own->burst_ns) < at_least_ns)
		TURN_STORE(own->burst_ns,
			   at_least_ns < BURST_MOST_NS ? at_least_ns : BURST_MOST_NS);
}

/* A gap that is too short to end a turn is paid for, and ends no burst. For a longer gap, the slice
 * pays nothing, but it pays for its work before the gap, also where it lost its turn before that.
 */
bool turn_account_wake(struct turn *turn, uint64_t idle_since, uint64_t now_ns)
{
	uint64_t from_ns;

	if (is_before(now_ns, idle_since + IDLE_NS))
		return false;
	if (idle_since < now_ns) /* else another slice has written it */
		turn_account_pay(turn, idle_since, now_ns);
	from_ns = TURN_LOAD(turn->account->held_from);
	end_burst(turn_own(turn));
	charge_limit(turn, 0, floor_ns(turn, TURN_CREDIT_NS, now_ns));
	if (from_ns && is_before(from_ns, now_ns))
		TURN_CAS(turn->account->held_from, from_ns, now_ns);
	return true;
}

void turn_account_keep_near(struct turn *turn, uint64_t least_weighted_ns, uint64_t allowance_ns,
			    bool keeps_debt)
{
	struct vgpu_turns_slice *own = turn_own(turn);
	unsigned weight = TURN_LOAD(turn->weight);
	int64_t ahead_ns = (int64_t)(TURN_LOAD(own->weighted_ns) - least_weighted_ns);
	int64_t least_ns = -over(BEHIND_MOST_NS, weight) - (int64_t)allowance_ns;
	int64_t most_ns = over(LEAD_MOST_NS, weight);

	if (ahead_ns < least_ns)
		TURN_STORE(own->weighted_ns, least_weighted_ns + (uint64_t)least_ns);
	if (ahead_ns > most_ns && !keeps_debt)
		TURN_STORE(own->weighted_ns, least_weighted_ns + (uint64_t)most_ns);
}
