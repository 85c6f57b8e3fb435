/* The holder of a turn, at given moments: its turn word, its payments and its answers. */
#include "turn_pair.h"

/* The first slice asks after its turn has lasted for its length. */
static struct turn_answer ask_at_end(void)
{
	time_ns += LENGTH_MOST_NS + MS;
	return turn_ask(first, time_ns);
}

UNIT_TEST(test_seen)
{
	begin(state);
	assert_int_equal(turn_own(first)->seen, time_ns);
	world_end();
}

/* The next turn begins when the device should be through with the holder's work. */
UNIT_TEST(test_next_begins_after_work)
{
	begin(state);
	turn_submitted(first, time_ns + LENGTH_MOST_NS + 3 * MS, time_ns);
	ask_at_end();
	assert_int_equal(word().holder, second->file.slice);
	assert_begins(time_ns + 2 * MS);
	world_end();
}

/* Work that takes long delays the next turn by SOFT_NS at most. */
UNIT_TEST(test_next_begins_during_long_work)
{
	begin(state);
	turn_submitted(first, time_ns + NS_PER_S, time_ns);
	ask_at_end();
	assert_int_equal(word().holder, second->file.slice);
	assert_begins(time_ns + SOFT_NS);
	world_end();
}

/* Work that is over does not put the begin into the past. */
UNIT_TEST(test_next_begins_now)
{
	begin(state);
	turn_submitted(first, time_ns + MS, time_ns);
	ask_at_end();
	assert_int_equal(word().holder, second->file.slice);
	assert_begins(time_ns);
	world_end();
}

/* No word may begin later than AHEAD_MOST_NS from now, as it would count as nonsense. */
UNIT_TEST(test_next_begins_soon)
{
	struct grant grant;

	begin(state);
	turn_submitted(first, time_ns + 10 * NS_PER_S, time_ns);
	grant = word();
	assert_true(turn_holder_hand_over(first, &grant, second->file.slice, time_ns + NS_PER_S,
					  time_ns));
	assert_begins(time_ns + AHEAD_MOST_NS);
	world_end();
}

/* A slice is over its limit before its turn begins: the turn that follows begins no earlier, as the
 * work before it goes on. The slice has no work of its own whose end could be corrected. */
UNIT_TEST(test_rests_before_its_turn)
{
	struct turn_answer answer;

	begin(state);
	turn_set(second, 50, 50);
	turn_submitted(first, time_ns + LENGTH_MOST_NS + 3 * MS, time_ns);
	ask_at_end();
	second->account->ready_at = time_ns + 10 * MS;
	answer = turn_ask(second, time_ns);
	assert_int_equal(answer.kind, TURN_WAIT);
	assert_true(answer.by_limit);
	assert_int_not_equal(word().holder, second->file.slice);
	assert_begins(time_ns + 2 * MS);
	assert_int_equal(second->told_until, 0);
	world_end();
}

/* A slice that submits shortly before its turn begins, up to its limit, keeps the turn until its
 * work is nearly over. */
UNIT_TEST(test_limit_before_its_turn)
{
	struct turn_answer answer;

	begin(state);
	turn_set(second, 50, 50);
	turn_submitted(first, time_ns + LENGTH_MOST_NS + MS + LEAD_NS / 2, time_ns);
	ask_at_end();
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_MINE);
	second->account->ready_at = time_ns;
	turn_submitted(second, time_ns + 2 * TURN_DEBT_NS, time_ns);
	answer = turn_ask(second, time_ns);
	assert_int_equal(answer.kind, TURN_WAIT);
	assert_true(answer.by_limit);
	assert_int_equal(word().holder, second->file.slice);
	assert_begins(time_ns + LEAD_NS / 2);
	world_end();
}

/* So does a slice that was alone, and is over its limit as another one comes. */
UNIT_TEST(test_limit_as_another_comes)
{
	struct turn_answer answer;

	begin(state);
	turn_set(first, 50, 50);
	turn_submitted(first, time_ns + 5 * MS, time_ns);
	first->account->held_from = 0;
	first->account->ready_at = time_ns + 10 * MS;
	answer = turn_ask(first, time_ns);
	assert_true(answer.by_limit);
	assert_int_equal(word().holder, first->file.slice);
	world_end();
}

/* A holder whose work takes long is not the next one, although it had the least. */
UNIT_TEST(test_late_holder_is_not_next)
{
	begin(state);
	turn_own(second)->weighted_ns = turn_own(first)->weighted_ns + 10 * NS_PER_S;
	turn_submitted(first, time_ns + NS_PER_S, time_ns);
	ask_at_end();
	assert_int_equal(word().holder, second->file.slice);
	world_end();
}

/* The other slice is dead, so nobody is next: the holder keeps the turn. */
UNIT_TEST(test_nobody_is_next)
{
	begin(state);
	end_of(&actors[1]);
	turn_submitted(first, time_ns + NS_PER_S, time_ns);
	ask_at_end();
	assert_int_equal(word().holder, first->file.slice);
	assert_true(turn_account_is_running(first));
	world_end();
}

/* The dead are no next ones, and want nothing from then on. */
UNIT_TEST(test_dead_is_not_next)
{
	unsigned dead;

	begin(state);
	dead = second->file.slice;
	assert_int_equal(grant_next(first, first->file.slice, time_ns), dead);
	end_of(&actors[1]);
	assert_int_equal(grant_next(first, first->file.slice, time_ns), NOBODY);
	assert_int_equal(turn_slice_at(first, dead)->idle_since, time_ns);
	world_end();
}

/* A slice whose other process has died at work is idle when the living one is. */
UNIT_TEST(test_dead_peer_wants_nothing)
{
	struct turn *peer;

	begin(state);
	peer = join_one(add((struct actor){.kernel_ns = MS, .key = 1}));
	assert_int_equal(peer->file.slice, first->file.slice);
	turn_ask(peer, time_ns);
	turn_idle(first, time_ns, time_ns);
	assert_int_equal(turn_own(first)->idle_since, 0);
	turn_ask(first, time_ns);
	end_of(&actors[2]);
	turn_idle(first, time_ns, time_ns);
	assert_int_equal(turn_own(first)->idle_since, time_ns);
	world_end();
}

/* A turn that is not shared any more is over, and paid until now. */
UNIT_TEST(test_alone_again)
{
	begin(state);
	turn_idle(first, time_ns, time_ns);
	assert_true(turn_account_is_running(first));
	header()->turn &= ~(uint64_t)VGPU_TURNS_SHARED;
	assert_int_equal(turn_ask(first, time_ns).kind, TURN_ALONE);
	assert_false(turn_account_is_running(first));
	world_end();
}

/* Another slice became present while the holder took the mark away: the mark comes back. */
UNIT_TEST(test_stays_shared)
{
	struct grant grant;

	begin(state);
	grant = word();
	assert_false(grant_unshare(first, &grant));
	assert_true(word().is_shared);
	header()->present &= ~((uint64_t)1 << second->file.slice);
	grant = word();
	assert_true(grant_unshare(first, &grant));
	assert_false(word().is_shared);
	world_end();
}

/* A slice doubts for as short as the first time again after it took turns for long. */
UNIT_TEST(test_doubt_is_forgotten)
{
	for (unsigned part = 0; part < 2; part++) {
		world_begin(state);
		first = join_one(busy(50, 100, MS));
		second = join_one(busy(50, 100, MS));
		turn_ask(first, time_ns);
		turn_ask(second, time_ns);
		first->doubt_ns = NS_PER_S;
		first->doubt_until = time_ns - TURN_DOUBT_MOST_NS + (part ? 2 * MS : 0);
		time_ns += 100 * US;
		assert_int_equal(turn_ask(first, time_ns).kind, TURN_MINE);
		assert_int_equal(first->doubt_ns, part ? NS_PER_S : 0);
		world_end();
	}
}
