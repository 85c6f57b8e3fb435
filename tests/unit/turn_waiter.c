/* When a slice that waits takes the turn of another one, and when it leaves the turn. */
#include "turn_pair.h"

static unsigned holder; /* the first slice's number */

static void begin_waiting(void **state)
{
	begin(state);
	holder = first->file.slice;
}

/* The second slice asks, so long after the turn began. */
static struct turn_answer ask_after(uint64_t ns)
{
	time_ns += ns;
	return turn_ask(second, time_ns);
}

static void assert_taken(void)
{
	assert_int_equal(word().holder, second->file.slice);
}

static void assert_left(void)
{
	assert_int_equal(word().holder, holder);
}

static bool wants_turn(unsigned slice)
{
	return turn_slice_at(second, slice)->idle_since == 0;
}

/* The length of the first turn, as the second slice has had no burst yet. */
#define LENGTH_NS LENGTH_LEAST_NS

/* A turn that would last for long is taken from a dead holder. */
UNIT_TEST(test_dead_holder)
{
	begin_waiting(state);
	header()->pressure_ns = NS_PER_S;
	end_of(&actors[0]);
	ask_after(POLL_NEXT_NS);
	assert_taken();
	assert_begins(time_ns);
	assert_false(wants_turn(holder));
	world_end();
}

/* The kernel is asked once a millisecond at most. */
UNIT_TEST(test_dead_holder_is_asked_for_later)
{
	begin_waiting(state);
	turn_ask(second, time_ns);
	end_of(&actors[0]);
	ask_after(LENGTH_NS / 2);
	assert_left();
	world_end();
}

/* A holder that is not present has no turn. */
UNIT_TEST(test_absent_holder)
{
	begin_waiting(state);
	header()->present &= ~((uint64_t)1 << holder);
	ask_after(10 * US);
	assert_taken();
	world_end();
}

UNIT_TEST(test_nobody_holds)
{
	begin_waiting(state);
	turn_own(first)->weighted_ns += NS_PER_S;
	header()->turn &= ~(uint64_t)VGPU_TURNS_HOLDER;
	ask_after(10 * US);
	assert_taken();
	world_end();
}

/* A turn that is not shared becomes so, and begins then. */
UNIT_TEST(test_becomes_shared)
{
	begin_waiting(state);
	header()->turn &= ~(uint64_t)VGPU_TURNS_SHARED;
	ask_after(100 * US);
	assert_left();
	assert_true(word().is_shared);
	assert_begins(time_ns);
	world_end();
}

/* A turn ends when its holder is idle, and not in a short gap. */
UNIT_TEST(test_idle_holder)
{
	struct turn_answer answer;

	begin_waiting(state);
	turn_idle(first, time_ns, time_ns);
	answer = ask_after(IDLE_NS / 2);
	assert_int_equal(answer.kind, TURN_WAIT);
	assert_int_equal(answer.wait_ns, IDLE_NS / 2);
	assert_left();
	ask_after(IDLE_NS / 2);
	assert_taken();
	assert_begins(time_ns);
	world_end();
}

/* A holder that is in a call of the driver has a moment to hand its turn over. */
UNIT_TEST(test_grace)
{
	begin_waiting(state);
	turn_own(first)->weighted_ns += NS_PER_S;
	time_ns = word().begin_ns + LENGTH_NS;
	ask_after(GRACE_NS / 2);
	assert_left();
	ask_after(GRACE_NS);
	assert_taken();
	assert_true(wants_turn(holder));
	world_end();
}

/* The holder is the next one again: its turn is left to it, and nothing is written. */
UNIT_TEST(test_holder_is_next)
{
	uint64_t before;

	begin_waiting(state);
	turn_own(second)->weighted_ns += NS_PER_S;
	before = header()->turn;
	ask_after(LENGTH_NS + 2 * GRACE_NS);
	assert_int_equal(header()->turn, before);
	world_end();
}

/* Unless its work takes long. */
UNIT_TEST(test_late_holder)
{
	begin_waiting(state);
	turn_own(second)->weighted_ns += NS_PER_S;
	turn_submitted(first, time_ns + NS_PER_S, time_ns);
	ask_after(LENGTH_NS + 2 * GRACE_NS);
	assert_taken();
	assert_begins(time_ns + SOFT_NS);
	world_end();
}

/* The first slice has a turn of 20 ms, and submits work of 4 ms. Returns when that
 * work should be over. */
static uint64_t submit_work(void **state)
{
	begin_waiting(state);
	turn_own(second)->burst_ns = LENGTH_MOST_NS;
	turn_submitted(first, time_ns + 4 * MS, time_ns);
	return time_ns + 4 * MS;
}

/* From the end of that work on, the slice counts as idle. */
UNIT_TEST(test_quiet_holder)
{
	uint64_t ended_ns = submit_work(state);

	ask_after(4 * MS + QUIET_NS + MS - 10 * US);
	assert_left();
	ask_after(20 * US);
	assert_taken();
	assert_int_equal(turn_slice_at(second, holder)->idle_since, ended_ns);
	world_end();
}

/* Under memory pressure, work may take much longer than before. */
UNIT_TEST(test_pressed_holder_is_not_quiet)
{
	submit_work(state);
	header()->pressure_ns = NS_PER_S;
	turn_submitted(first, time_ns + 4 * MS, time_ns);
	ask_after(100 * MS);
	assert_left();
	world_end();
}

UNIT_TEST(test_waiting_holder_is_not_quiet)
{
	submit_work(state);
	turn_will_wait(first, time_ns);
	turn_submitted(first, time_ns + 4 * MS, time_ns); /* by another thread */
	ask_after(LENGTH_MOST_NS - 2 * MS);
	assert_left();
	world_end();
}

UNIT_TEST(test_holder_has_waited)
{
	submit_work(state);
	turn_will_wait(first, time_ns);
	turn_waited(first, time_ns);
	ask_after(4 * MS + QUIET_NS + MS + 10 * US);
	assert_taken();
	world_end();
}

UNIT_TEST(test_looking_holder_is_not_quiet)
{
	submit_work(state);
	time_ns += 5 * MS + QUIET_NS - 50 * US;
	turn_looked(first, time_ns);
	ask_after(QUIET_NS - 10 * US);
	assert_left();
	ask_after(20 * US);
	assert_taken();
	world_end();
}

/* What a holder said in a former turn says nothing of this one. */
UNIT_TEST(test_holder_was_quiet_before)
{
	submit_work(state);
	turn_own(first)->quiet_from = word().begin_ns - 2 * US;
	ask_after(LENGTH_MOST_NS - 2 * MS);
	assert_left();
	world_end();
}

/* A holder that was not seen since its turn ended wants no turn; one that was seen does. */
UNIT_TEST(test_stopped_holder)
{
	for (unsigned seen = 0; seen < 2; seen++) {
		begin_waiting(state);
		turn_own(first)->weighted_ns += NS_PER_S;
		time_ns += LENGTH_NS + SOFT_NS;
		if (seen)
			turn_own(first)->seen = time_ns;
		ask_after(MS);
		assert_taken();
		assert_int_equal(wants_turn(holder), seen);
		world_end();
	}
}

/* A slice that was given a turn, and was not seen since, has SOFT_NS to come. */
UNIT_TEST(test_unseen_holder)
{
	begin_waiting(state);
	turn_own(first)->weighted_ns += NS_PER_S;
	turn_own(first)->seen = time_ns - NS_PER_S;
	time_ns = word().begin_ns;
	ask_after(SOFT_NS - MS);
	assert_left();
	ask_after(2 * MS);
	assert_taken();
	assert_false(wants_turn(holder));
	world_end();
}
