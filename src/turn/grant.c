/*
 * The turn word, and the slices' words about themselves: which want the GPU, and which is next.
 *
 * How it works. A hand-over is one compare-and-swap of the turn word. It replaces a value that was
 * read by the next slice's, with the time at which that turn begins. Every process may do it: the
 * holder when its turn is over, a waiter when the holder is dead, idle, or overdue. Of several that
 * try, one succeeds; the others read the word again.
 *
 * A slice wants the GPU if and only if its bit in `present` is 1 and its `idle_since` is 0. The bit
 * stays for PRESENT_NS after the slice became idle, so that others know which bursts to expect.
 *
 * What always holds.
 *     - A slice that wants the GPU and finds the word of another without VGPU_TURNS_SHARED sets
 *       that bit. A holder that takes the bit away looks at `present` once more afterwards. So of
 *       the two, one sees the other.
 *     - A process that takes a bit of another slice out of `present`, or says that its own slice is
 *       idle, looks once more afterwards whether that still is so, and else takes it back. So no
 *       wish is lost to a process that clears an old one.
 *     - The word changes before the bell of the next slice rings. A sleeper reads its bell before
 *       the word. So no wake-up is lost while the giver lives; if it dies between the two, the
 *       sleeper's own time limit ends the sleep.
 *
 * Other processes may have written every value. Indexes are cut to the array, and times to possible
 * ones, and the end of no loop depends on a value.
 */
#include <limits.h>

#include "sys.h"
#include "turn_internal.h"

#define DEAD_MOST   16 /* processes of the slice that are found dead in one look */
#define UNIT_NS     ((uint64_t)1 << VGPU_TURNS_TIME_SHIFT)
#define WEIGHT_MOST 100
#define BIT(number) ((uint64_t)1 << (number))
#define COUNT_MASK  ((uint64_t)0xffffff << VGPU_TURNS_COUNT_SHIFT)
#define ONE_TURN    ((uint64_t)1 << VGPU_TURNS_COUNT_SHIFT)

/* The lowest bit of the set, which is not 0; the set loses it. */
static unsigned take_lowest(uint64_t *set)
{
	unsigned lowest = (unsigned)__builtin_ctzll(*set);

	*set &= *set - 1;
	return lowest;
}

/* -- the word --------------------------------------------------------------------------------- */

static uint64_t pack(const struct grant *before, unsigned slice, uint64_t begin_ns)
{
	uint64_t holder = slice == NOBODY ? 0 : slice + 1;

	return holder | VGPU_TURNS_SHARED | ((before->word + ONE_TURN) & COUNT_MASK) |
	       begin_ns >> VGPU_TURNS_TIME_SHIFT << VGPU_TURNS_BEGIN_SHIFT;
}

struct grant grant_see(const struct turn *turn, uint64_t now_ns)
{
	struct grant grant = {.word = TURN_SEE(turn->file.file->header.turn)};
	uint32_t begin = (uint32_t)(grant.word >> VGPU_TURNS_BEGIN_SHIFT);
	uint64_t now = now_ns >> VGPU_TURNS_TIME_SHIFT;
	int64_t ahead = (int32_t)(begin - (uint32_t)now);
	unsigned holder = (unsigned)(grant.word & VGPU_TURNS_HOLDER);

	grant.holder = holder == 0 || holder > VGPU_TURNS_SLICES ? NOBODY : holder - 1;
	grant.is_shared = grant.word & VGPU_TURNS_SHARED;
	/* The value is invalid, or its time is longer ago than the word can express. Both times are
	 * cut to units, so one more unit is still valid. */
	if (ahead > (int64_t)(AHEAD_MOST_NS / UNIT_NS) + 1)
		ahead = INT32_MIN;
	if (ahead < -(int64_t)now)
		ahead = -(int64_t)now;
	grant.begin_ns = (uint64_t)((int64_t)now + ahead) << VGPU_TURNS_TIME_SHIFT;
	return grant;
}

static bool change(struct turn *turn, const struct grant *grant, uint64_t to)
{
	uint64_t was = grant->word;

	return TURN_CAS(turn->file.file->header.turn, was, to);
}

void grant_wake(struct turn *turn, unsigned slice)
{
	uint32_t *bell = &turn_slice_at(turn, slice)->bell;

	__atomic_add_fetch(bell, 1, __ATOMIC_SEQ_CST);
	sys_futex_wake(bell, INT_MAX);
}

/* The turn of a gang does not begin before its wish. */
bool grant_pass(struct turn *turn, const struct grant *grant, unsigned slice, uint64_t begin_ns)
{
	if (slice != NOBODY)
		begin_ns = most_of(begin_ns, grant_wish_ns(turn, slice, begin_ns));
	if (!change(turn, grant, pack(grant, slice, begin_ns)))
		return false;
	if (slice != NOBODY && slice != turn->file.slice)
		grant_wake(turn, slice);
	return true;
}

void grant_share(struct turn *turn, const struct grant *grant, uint64_t now_ns)
{
	change(turn, grant, pack(grant, grant->holder, now_ns));
}

static uint64_t own_bit(const struct turn *turn)
{
	return BIT(turn->file.slice);
}

bool grant_unshare(struct turn *turn, const struct grant *grant)
{
	uint64_t alone = grant->word & ~(uint64_t)VGPU_TURNS_SHARED;

	if (!change(turn, grant, alone))
		return false;
	if ((TURN_SEE(turn->file.file->header.present) & ~own_bit(turn)) == 0)
		return true;
	TURN_CAS(turn->file.file->header.turn, alone, grant->word);
	return false;
}

void grant_move(struct turn *turn, int64_t later_ns, uint64_t now_ns)
{
	struct grant grant = grant_see(turn, now_ns);
	uint64_t begin_ns = (uint64_t)((int64_t)grant.begin_ns + later_ns), to;

	if (grant.begin_ns <= now_ns || grant.begin_ns > now_ns + AHEAD_MOST_NS)
		return;
	if (begin_ns < now_ns)
		begin_ns = now_ns;
	if (begin_ns > now_ns + AHEAD_MOST_NS)
		begin_ns = now_ns + AHEAD_MOST_NS;
	to = (grant.word & UINT32_MAX) | begin_ns >> VGPU_TURNS_TIME_SHIFT
							     << VGPU_TURNS_BEGIN_SHIFT;
	if (!change(turn, &grant, to))
		return;
	TURN_ADD(turn->file.file->header.moved_ns, begin_ns - grant.begin_ns);
	if (later_ns < 0 && grant.holder != NOBODY)
		grant_wake(turn, grant.holder);
}

/* -- which slice is next ---------------------------------------------------------------------- */

static bool wants(const struct turn *turn, unsigned slice)
{
	return TURN_SEE(turn_slice_at(turn, slice)->idle_since) == 0;
}

/* Whether the slice a has less than b; or the same, and has waited for longer. */
static bool is_less(const struct vgpu_turns_slice *a, const struct vgpu_turns_slice *b)
{
	int64_t more_ns = (int64_t)(TURN_LOAD(a->weighted_ns) - TURN_LOAD(b->weighted_ns));

	if (more_ns)
		return more_ns < 0;
	return (int64_t)(TURN_LOAD(a->wants_since) - TURN_LOAD(b->wants_since)) < 0;
}

unsigned grant_guess(const struct turn *turn, unsigned except)
{
	uint64_t left = TURN_SEE(turn->file.file->header.present);
	unsigned best = NOBODY;

	while (left) {
		unsigned slice = take_lowest(&left);

		if (slice != except && wants(turn, slice) &&
		    (best == NOBODY ||
		     is_less(turn_slice_at(turn, slice), turn_slice_at(turn, best))))
			best = slice;
	}
	return best;
}

uint64_t grant_wish_ns(const struct turn *turn, unsigned slice, uint64_t now_ns)
{
	uint64_t from_ns = TURN_SEE(turn_slice_at(turn, slice)->wish_from);
	int64_t ahead_ns = (int64_t)(from_ns - now_ns);

	return from_ns && ahead_ns <= (int64_t)WISH_AHEAD_NS && ahead_ns >= -(int64_t)WISH_LATE_NS
		       ? from_ns
		       : 0;
}

uint64_t grant_length_ns(const struct turn *turn, unsigned slice, uint64_t length_ns)
{
	uint64_t least_ns = TURN_LOAD(turn_slice_at(turn, slice)->least_ns);

	return most_of(length_ns, least_of(least_ns, LENGTH_MOST_NS));
}

uint64_t grant_end_ns(const struct turn *turn, const struct grant *grant, uint64_t length_ns,
		      uint64_t wish_ns)
{
	uint64_t least_ns = grant_length_ns(turn, grant->holder, 0);
	uint64_t end_ns = grant->begin_ns + grant_length_ns(turn, grant->holder, length_ns);

	return wish_ns ? least_of(end_ns, most_of(wish_ns, grant->begin_ns + least_ns)) : end_ns;
}

/* The gang with the earliest wish, if that is until_ns at the latest; or NOBODY. Of two wishes for
 * the same time, all GPUs of the gangs prefer the same one. */
static unsigned next_by_wish(const struct turn *turn, unsigned except, uint64_t until_ns,
			     uint64_t now_ns)
{
	uint64_t left = TURN_SEE(turn->file.file->header.present);
	uint64_t best_ns = until_ns, best_key = 0;
	unsigned best = NOBODY;

	while (left) {
		unsigned slice = take_lowest(&left);
		uint64_t wish_ns = slice != except ? grant_wish_ns(turn, slice, now_ns) : 0;
		uint64_t key = TURN_LOAD(turn_slice_at(turn, slice)->key);

		if (!wish_ns || wish_ns > best_ns || (wish_ns == best_ns && key < best_key))
			continue;
		best = slice;
		best_ns = wish_ns;
		best_key = key;
	}
	return best;
}

void grant_drop(struct turn *turn, unsigned slice, uint64_t now_ns)
{
	TURN_TELL(turn_slice_at(turn, slice)->wish_from, 0);
	TURN_TELL(turn_slice_at(turn, slice)->idle_since, now_ns ? now_ns : 1);
}

unsigned grant_next_at(struct turn *turn, unsigned except, uint64_t end_ns, uint64_t now_ns)
{
	uint64_t until_ns = most_of(end_ns, now_ns + NOTICE_NS);

	for (unsigned tries = 0; tries < VGPU_TURNS_SLICES; tries++) {
		unsigned slice = next_by_wish(turn, except, until_ns, now_ns);

		if (slice == NOBODY)
			slice = grant_guess(turn, except);
		if (slice == NOBODY || turn_file_slice_lives(&turn->file, slice))
			return slice;
		grant_drop(turn, slice, now_ns);
	}
	return NOBODY;
}

unsigned grant_next(struct turn *turn, unsigned except, uint64_t now_ns)
{
	return grant_next_at(turn, except, now_ns, now_ns);
}

/* -- what others want ------------------------------------------------------------------------- */

static uint64_t length_beside(const struct vgpu_turns_slice *slice)
{
	uint64_t burst_ns = TURN_LOAD(slice->burst_ns);

	if (burst_ns < LENGTH_LEAST_NS)
		return LENGTH_LEAST_NS;
	return burst_ns < LENGTH_MOST_NS ? burst_ns : LENGTH_MOST_NS;
}

/* Half of a burst, so that the slice waits for little more than for its own work. */
static uint64_t ahead_beside(const struct vgpu_turns_slice *slice)
{
	uint64_t length_ns = length_beside(slice);

	if (length_ns == LENGTH_MOST_NS)
		return length_ns;
	return length_ns / 2 > LENGTH_LEAST_NS ? length_ns / 2 : LENGTH_LEAST_NS;
}

static uint64_t weight_of(const struct vgpu_turns_slice *slice)
{
	uint32_t weight = TURN_LOAD(slice->weight);

	return weight == 0 ? 1 : weight < WEIGHT_MOST ? weight : WEIGHT_MOST;
}

static void count_share(const struct vgpu_turns_slice *slice, struct others *others)
{
	uint32_t assured_pct = TURN_LOAD(slice->assured_pct);

	if (assured_pct == 0 || assured_pct >= WEIGHT_MOST)
		others->rest++;
	else
		others->assured_pct += assured_pct;
}

/* Removes a slice that has wanted nothing for long, and has no wish, from `present`. The slice may
 * want the GPU again at this moment, having seen its bit still set. Then the bit is set again. */
static bool is_gone(struct turn *turn, unsigned slice, uint64_t idle_since, uint64_t now_ns)
{
	uint64_t *present = &turn->file.file->header.present;

	if ((idle_since <= now_ns && now_ns - idle_since < PRESENT_NS) ||
	    grant_wish_ns(turn, slice, now_ns))
		return false;
	__atomic_fetch_and(present, ~BIT(slice), __ATOMIC_SEQ_CST);
	if (!wants(turn, slice))
		return true;
	__atomic_fetch_or(present, BIT(slice), __ATOMIC_SEQ_CST);
	return false;
}

uint64_t grant_pressure_ns(const struct turn *turn)
{
	return least_of(TURN_LOAD(turn->file.file->header.pressure_ns), PRESSURE_MOST_NS);
}

/* For how long the slice has to have the GPU until it has had as much as this process's slice. */
static uint64_t owed_ns(const struct turn *turn, const struct vgpu_turns_slice *slice)
{
	int64_t less_ns =
		(int64_t)(TURN_LOAD(turn_own(turn)->weighted_ns) - TURN_LOAD(slice->weighted_ns));

	if (less_ns <= 0)
		return 0;
	return least_of((uint64_t)less_ns, OWED_MOST_NS) * weight_of(slice) / WEIGHT_MOST;
}

bool grant_is_between_steps(const struct turn *turn, unsigned slice, uint64_t idle_since,
			    uint64_t now_ns)
{
	return TURN_LOAD(turn_slice_at(turn, slice)->least_ns) &&
	       !grant_wish_ns(turn, slice, now_ns) && now_ns - idle_since < GANG_IDLE_NS;
}

static void count_wish(const struct turn *turn, unsigned slice, uint64_t now_ns,
		       struct others *others)
{
	uint64_t wish_ns = grant_wish_ns(turn, slice, now_ns);

	if (!wish_ns || (others->wish_ns && others->wish_ns < wish_ns))
		return;
	others->wish_ns = wish_ns;
	others->wish_until = wish_ns + grant_length_ns(turn, slice, LENGTH_LEAST_NS);
}

struct others grant_others(struct turn *turn, unsigned than, uint64_t now_ns)
{
	struct others others = {.length_ns = LENGTH_MOST_NS, .ahead_ns = LENGTH_MOST_NS};
	uint64_t left = TURN_SEE(turn->file.file->header.present);
	uint64_t pressure_ns = grant_pressure_ns(turn);

	if (than < VGPU_TURNS_SLICES)
		left &= ~BIT(than);
	while (left) {
		unsigned index = take_lowest(&left);
		const struct vgpu_turns_slice *slice = turn_slice_at(turn, index);
		uint64_t idle_since = TURN_SEE(slice->idle_since);

		if (idle_since && is_gone(turn, index, idle_since, now_ns))
			continue;
		others.are_present = true;
		others.weight += weight_of(slice);
		count_share(slice, &others);
		others.ahead_ns = least_of(others.ahead_ns, ahead_beside(slice));
		count_wish(turn, index, now_ns, &others);
		if (!idle_since || grant_is_between_steps(turn, index, idle_since, now_ns))
			others.owed_ns =
				least_of(others.owed_ns + owed_ns(turn, slice), OWED_MOST_NS);
		if (idle_since)
			continue;
		others.want = true;
		others.length_ns = least_of(others.length_ns, length_beside(slice));
	}
	if (others.length_ns < pressure_ns)
		others.length_ns = pressure_ns;
	return others;
}

static bool is_before(const struct vgpu_turns_slice *slice, uint64_t had_ns)
{
	uint64_t turn_ns = LENGTH_LEAST_NS * WEIGHT_MOST / weight_of(slice);

	return (int64_t)(TURN_LOAD(slice->weighted_ns) + turn_ns - had_ns) < 0;
}

struct lenders grant_lenders(const struct turn *turn, uint64_t had_ns, uint64_t now_ns)
{
	uint64_t left = TURN_SEE(turn->file.file->header.present) & ~own_bit(turn);
	struct lenders lenders = {false, false};

	while (left) {
		const struct vgpu_turns_slice *slice = turn_slice_at(turn, take_lowest(&left));
		uint64_t idle_since = TURN_SEE(slice->idle_since);

		if (!is_before(slice, had_ns))
			continue;
		lenders.want |= idle_since == 0;
		lenders.pause |= idle_since != 0 && now_ns - idle_since < LENGTH_MOST_NS;
	}
	return lenders;
}

/* -- what this process wants ------------------------------------------------------------------ */

static struct vgpu_turns_seat *own_seat(const struct turn *turn)
{
	return &turn->file.file->seat[turn->file.seat];
}

/* The weighted time, in ns, by which a slice's time may be lower after a short pause: a turn of the
 * other slice, less the pause. So a slice that pauses for a moment still gets the time that the
 * other slice has had before. */
static uint64_t pause_allowance_ns(const struct vgpu_turns_slice *other, uint64_t pause_ns)
{
	uint64_t left_ns = LENGTH_MOST_NS - least_of(pause_ns, LENGTH_MOST_NS);

	return left_ns * WEIGHT_MOST / weight_of(other);
}

/* Brings the weighted time of a slice that was idle near that of the slice with the least. */
static void come_near(struct turn *turn, uint64_t idle_since, uint64_t now_ns)
{
	unsigned least = grant_guess(turn, turn->file.slice);
	uint64_t pause_ns = now_ns > idle_since ? now_ns - idle_since : 0;
	const struct vgpu_turns_slice *other;

	if (least == NOBODY)
		return;
	other = turn_slice_at(turn, least);
	turn_account_keep_near(turn, TURN_LOAD(other->weighted_ns),
			       pause_allowance_ns(other, pause_ns), TURN_LOAD(turn->is_resting));
}

void grant_want(struct turn *turn, uint64_t now_ns)
{
	struct vgpu_turns_slice *own = turn_own(turn);
	uint64_t *present = &turn->file.file->header.present, idle_since;

	if (TURN_LOAD(own_seat(turn)->active) != 1)
		TURN_TELL(own_seat(turn)->active, 1);
	TURN_STORE(turn->is_idle, false);
	if (TURN_LOAD(own->wish_from) > now_ns) /* the date has come sooner */
		TURN_TELL(own->wish_from, now_ns);
	idle_since = TURN_SEE(own->idle_since);
	if (idle_since) {
		if (TURN_LOAD(turn->is_resting) || turn_account_wake(turn, idle_since, now_ns))
			come_near(turn, idle_since, now_ns);
		TURN_STORE(own->wants_since, now_ns);
		TURN_TELL(own->idle_since, 0);
	}
	TURN_STORE(turn->is_resting, false);
	if (!(TURN_SEE(*present) & own_bit(turn)))
		__atomic_fetch_or(present, own_bit(turn), __ATOMIC_SEQ_CST);
}

static bool is_active_peer(struct turn *turn, unsigned seat)
{
	const struct vgpu_turns_seat *it = &turn->file.file->seat[seat];

	return seat != turn->file.seat && TURN_SEE(it->active) &&
	       (TURN_LOAD(it->owner) & VGPU_TURNS_HOLDER) == turn->file.slice + 1;
}

/* Calls each(turn, seat, arg) for every seat that may be of this slice, until one is true. */
static bool any_seat(struct turn *turn, bool (*each)(struct turn *, unsigned, void *), void *arg)
{
	uint64_t words = TURN_SEE(turn_own(turn)->words);

	while (words) {
		unsigned word = take_lowest(&words);
		uint64_t seats = TURN_SEE(turn_own(turn)->seats[word]);

		while (seats)
			if (each(turn, word * 64 + take_lowest(&seats), arg))
				return true;
	}
	return false;
}

static bool is_living_peer(struct turn *turn, unsigned seat, void *arg)
{
	unsigned *dead = arg;

	if (!is_active_peer(turn, seat) || *dead >= DEAD_MOST)
		return false;
	++*dead;
	if (turn_file_seat_lives(&turn->file, turn->file.slice, seat))
		return true;
	turn_file_clear_seat(&turn->file, turn->file.slice, seat);
	return false;
}

bool grant_has_peer(struct turn *turn)
{
	unsigned dead = 0;

	return any_seat(turn, is_living_peer, &dead);
}

void grant_absent(struct turn *turn)
{
	__atomic_fetch_and(&turn->file.file->header.present, ~own_bit(turn), __ATOMIC_SEQ_CST);
}

void grant_idle(struct turn *turn, uint64_t since_ns)
{
	struct vgpu_turns_slice *own = turn_own(turn);

	TURN_STORE(turn->is_idle, true);
	TURN_TELL(own_seat(turn)->active, 0);
	if (grant_has_peer(turn))
		return;
	TURN_TELL(own->idle_since, since_ns ? since_ns : 1);
	if (grant_has_peer(turn)) /* it came meanwhile, and may have found the slice not idle */
		TURN_TELL(own->idle_since, 0);
}

/* Lower than before only where no other process of the slice has work. */
void grant_busy(struct turn *turn, uint64_t until_ns)
{
	uint64_t *busy_until = &turn->account->busy_until, was = TURN_LOAD(*busy_until);

	if (until_ns < was && !grant_has_peer(turn))
		TURN_STORE(*busy_until, until_ns);
	while (was < until_ns && !TURN_CAS(*busy_until, was, until_ns))
		;
	TURN_STORE(turn_own(turn)->busy_until, TURN_LOAD(*busy_until));
}
