/* The holder of a turn, at given moments: its turn word, its payments and its answers. */
#include "turn_pair.h"

/* The first slice asks after its turn has lasted for its length. Then that slice has the turn. */
static void ask_at_end(const struct turn *holder)
{
	time_ns += LENGTH_MOST_NS + MS;
	turn_ask(first, time_ns);
	assert_int_equal(word().holder, holder->file.slice);
}

static void assert_rests(struct turn *turn)
{
	struct turn_answer answer = turn_ask(turn, time_ns);

	assert_int_equal(answer.kind, TURN_WAIT);
	assert_true(answer.by_limit);
}

UNIT_TEST(test_seen)
{
	assert_int_equal(turn_own(first)->seen, time_ns);
}

/* When the next turn begins, by when the holder's work ends. Times count from the begin of that
 * work and from the question, respectively. */
static const struct {
	const char *name;
	uint64_t work_ns, begins_after_ns;
} next_turns[] = {
	{"after the holder's work", LENGTH_MOST_NS + 3 * MS, 2 * MS},
	{"during work that takes long", NS_PER_S, SOFT_NS},
	{"at once, as work is over", MS, 0},
};

UNIT_ROWS(next_turns)
{
	turn_submitted(first, time_ns + row->work_ns, time_ns);
	ask_at_end(second);
	assert_begins(time_ns + row->begins_after_ns);
}

/* No word may begin later than AHEAD_MOST_NS from now, as it would count as nonsense. */
UNIT_TEST(test_next_begins_soon)
{
	struct grant grant;

	turn_submitted(first, time_ns + 10 * NS_PER_S, time_ns);
	grant = word();
	assert_true(turn_holder_hand_over(first, &grant, second->file.slice, time_ns + NS_PER_S,
					  time_ns));
	assert_begins(time_ns + AHEAD_MOST_NS);
}

/* A slice is over its limit before its turn begins: the turn that follows begins no earlier, as the
 * work before it goes on. The slice has no work of its own whose end could be corrected. */
UNIT_TEST(test_rests_before_its_turn)
{
	turn_set(second, 50, 50);
	turn_submitted(first, time_ns + LENGTH_MOST_NS + 3 * MS, time_ns);
	ask_at_end(second);
	second->account->ready_at = time_ns + 10 * MS;
	assert_rests(second);
	assert_int_not_equal(word().holder, second->file.slice);
	assert_begins(time_ns + 2 * MS);
	assert_int_equal(second->told_until, 0);
}

/* A slice that submits shortly before its turn begins, up to its limit, keeps the turn until its
 * work is nearly over. */
UNIT_TEST(test_limit_before_its_turn)
{
	turn_set(second, 50, 50);
	turn_submitted(first, time_ns + LENGTH_MOST_NS + MS + LEAD_NS / 2, time_ns);
	ask_at_end(second);
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_MINE);
	second->account->ready_at = time_ns;
	turn_submitted(second, time_ns + 2 * TURN_DEBT_NS, time_ns);
	assert_rests(second);
	assert_int_equal(word().holder, second->file.slice);
	assert_begins(time_ns + LEAD_NS / 2);
}

/* So does a slice that was alone, and is over its limit as another one comes. */
UNIT_TEST(test_limit_as_another_comes)
{
	turn_set(first, 50, 50);
	turn_submitted(first, time_ns + 5 * MS, time_ns);
	first->account->held_from = 0;
	first->account->ready_at = time_ns + 10 * MS;
	assert_true(turn_ask(first, time_ns).by_limit);
	assert_int_equal(word().holder, first->file.slice);
}

/* A holder whose work takes long is not the next one, although it had the least. */
UNIT_TEST(test_late_holder_is_not_next)
{
	turn_own(second)->weighted_ns = turn_own(first)->weighted_ns + 10 * NS_PER_S;
	turn_submitted(first, time_ns + NS_PER_S, time_ns);
	ask_at_end(second);
}

/* The other slice is dead, so nobody is next: the holder keeps the turn. */
UNIT_TEST(test_nobody_is_next)
{
	end_of(&actors[1]);
	turn_submitted(first, time_ns + NS_PER_S, time_ns);
	ask_at_end(first);
	assert_true(turn_account_is_running(first));
}

/* The dead are no next ones, and want nothing from then on. */
UNIT_TEST(test_dead_is_not_next)
{
	unsigned dead = second->file.slice;

	assert_int_equal(grant_next(first, first->file.slice, time_ns), dead);
	end_of(&actors[1]);
	assert_int_equal(grant_next(first, first->file.slice, time_ns), NOBODY);
	assert_int_equal(turn_slice_at(first, dead)->idle_since, time_ns);
}

/* A slice whose other process has died at work is idle when the living one is. */
UNIT_TEST(test_dead_peer_wants_nothing)
{
	struct turn *peer = join_one(add((struct actor){.kernel_ns = MS, .key = 1}));

	assert_int_equal(peer->file.slice, first->file.slice);
	turn_ask(peer, time_ns);
	turn_idle(first, time_ns, time_ns);
	assert_int_equal(turn_own(first)->idle_since, 0);
	turn_ask(first, time_ns);
	end_of(&actors[2]);
	turn_idle(first, time_ns, time_ns);
	assert_int_equal(turn_own(first)->idle_since, time_ns);
}

/* A turn that is not shared any more is over, and paid until now. */
UNIT_TEST(test_alone_again)
{
	turn_idle(first, time_ns, time_ns);
	assert_true(turn_account_is_running(first));
	header()->turn &= ~(uint64_t)VGPU_TURNS_SHARED;
	assert_int_equal(turn_ask(first, time_ns).kind, TURN_ALONE);
	assert_false(turn_account_is_running(first));
}

/* Another slice became present while the holder took the mark away: the mark comes back. */
UNIT_TEST(test_stays_shared)
{
	struct grant grant = word();

	assert_false(grant_unshare(first, &grant));
	assert_true(word().is_shared);
	header()->present &= ~((uint64_t)1 << second->file.slice);
	grant = word();
	assert_true(grant_unshare(first, &grant));
	assert_false(word().is_shared);
}

/* A slice that took turns for long doubts for as short as the first time. */
static const struct {
	const char *name;
	uint64_t ago_ns, doubt_ns; /* when it last doubted, and for how long it would now */
} doubts[] = {{"doubt is forgotten", TURN_DOUBT_MOST_NS, 0},
	      {"doubt is not forgotten yet", TURN_DOUBT_MOST_NS - 2 * MS, NS_PER_S}};

UNIT_ROWS(doubts)
{
	world_again();
	first = join_one(busy(50, 100, MS));
	second = join_one(busy(50, 100, MS));
	turn_ask(first, time_ns);
	turn_ask(second, time_ns);
	first->doubt_ns = NS_PER_S;
	first->doubt_until = time_ns - row->ago_ns;
	time_ns += 100 * US;
	assert_int_equal(turn_ask(first, time_ns).kind, TURN_MINE);
	assert_int_equal(first->doubt_ns, row->doubt_ns);
}
