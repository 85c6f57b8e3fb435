/* When a slice that waits takes the turn of another one, and when it leaves the turn. */
#include "turn_pair.h"

#define FIRST 0 /* the number of the first slice, which holds the turn */

/* The second slice asks, so much later. It takes the turn, or leaves it. */
static void asks_after(uint64_t ns, bool takes)
{
	time_ns += ns;
	turn_ask(second, time_ns);
	assert_int_equal(word().holder, takes ? second->file.slice : FIRST);
}

static void takes_after(uint64_t ns)
{
	asks_after(ns, true);
}

static void leaves_after(uint64_t ns)
{
	asks_after(ns, false);
}

static bool holder_wants(void)
{
	return turn_slice_at(second, FIRST)->idle_since == 0;
}

/* The length of the first turn, as the second slice has had no burst yet. */
#define LENGTH_NS LENGTH_LEAST_NS

/* A turn that would last for long is taken from a dead holder. */
UNIT_TEST(test_dead_holder)
{
	header()->pressure_ns = NS_PER_S;
	end_of(&actors[0]);
	takes_after(POLL_NEXT_NS);
	assert_begins(time_ns);
	assert_false(holder_wants());
}

/* The kernel is asked once a millisecond at most. */
UNIT_TEST(test_dead_holder_is_asked_for_later)
{
	turn_ask(second, time_ns);
	end_of(&actors[0]);
	leaves_after(LENGTH_NS / 2);
}

/* A holder that is not present has no turn. */
UNIT_TEST(test_absent_holder)
{
	header()->present &= ~((uint64_t)1 << FIRST);
	takes_after(10 * US);
}

UNIT_TEST(test_nobody_holds)
{
	turn_own(first)->weighted_ns += NS_PER_S;
	header()->turn &= ~(uint64_t)VGPU_TURNS_HOLDER;
	takes_after(10 * US);
}

/* A turn that is not shared becomes so, and begins then. */
UNIT_TEST(test_becomes_shared)
{
	header()->turn &= ~(uint64_t)VGPU_TURNS_SHARED;
	leaves_after(100 * US);
	assert_true(word().is_shared);
	assert_begins(time_ns);
}

/* A turn ends when its holder is idle, and not in a short gap. */
UNIT_TEST(test_idle_holder)
{
	turn_idle(first, time_ns, time_ns);
	leaves_after(IDLE_NS / 2);
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_WAIT);
	assert_int_equal(turn_ask(second, time_ns).wait_ns, IDLE_NS / 2);
	takes_after(IDLE_NS / 2);
	assert_begins(time_ns);
}

/* A holder that is in a call of the driver has a moment to hand its turn over. */
UNIT_TEST(test_grace)
{
	turn_own(first)->weighted_ns += NS_PER_S;
	time_ns = word().begin_ns + LENGTH_NS;
	leaves_after(GRACE_NS / 2);
	takes_after(GRACE_NS);
	assert_true(holder_wants());
}

/* The holder is the next one again: its turn is left to it, and nothing is written. */
UNIT_TEST(test_holder_is_next)
{
	uint64_t before;

	turn_own(second)->weighted_ns += NS_PER_S;
	before = header()->turn;
	leaves_after(LENGTH_NS + 2 * GRACE_NS);
	assert_int_equal(header()->turn, before);
}

/* Unless its work takes long. */
UNIT_TEST(test_late_holder)
{
	turn_own(second)->weighted_ns += NS_PER_S;
	turn_submitted(first, time_ns + NS_PER_S, time_ns);
	takes_after(LENGTH_NS + 2 * GRACE_NS);
	assert_begins(time_ns + SOFT_NS);
}

/* The first slice has a turn of 20 ms, and submits work of 4 ms. Returns when that
 * work should be over. */
static uint64_t submit_work(void)
{
	turn_own(second)->burst_ns = LENGTH_MOST_NS;
	turn_submitted(first, time_ns + 4 * MS, time_ns);
	return time_ns + 4 * MS;
}

/* From the end of that work on, the slice counts as idle. */
UNIT_TEST(test_quiet_holder)
{
	uint64_t ended_ns = submit_work();

	leaves_after(4 * MS + QUIET_NS + MS - 10 * US);
	takes_after(20 * US);
	assert_int_equal(turn_slice_at(second, FIRST)->idle_since, ended_ns);
}

/* Under memory pressure, work may take much longer than before. */
UNIT_TEST(test_pressed_holder_is_not_quiet)
{
	submit_work();
	header()->pressure_ns = NS_PER_S;
	turn_submitted(first, time_ns + 4 * MS, time_ns);
	leaves_after(100 * MS);
}

UNIT_TEST(test_waiting_holder_is_not_quiet)
{
	submit_work();
	turn_will_wait(first, time_ns);
	turn_submitted(first, time_ns + 4 * MS, time_ns); /* by another thread */
	leaves_after(LENGTH_MOST_NS - 2 * MS);
}

UNIT_TEST(test_holder_has_waited)
{
	submit_work();
	turn_will_wait(first, time_ns);
	turn_waited(first, time_ns);
	takes_after(4 * MS + QUIET_NS + MS + 10 * US);
}

UNIT_TEST(test_looking_holder_is_not_quiet)
{
	submit_work();
	time_ns += 5 * MS + QUIET_NS - 50 * US;
	turn_looked(first, time_ns);
	leaves_after(QUIET_NS - 10 * US);
	takes_after(20 * US);
}

/* What a holder said in a former turn says nothing of this one. */
UNIT_TEST(test_holder_was_quiet_before)
{
	submit_work();
	turn_own(first)->quiet_from = word().begin_ns - 2 * US;
	leaves_after(LENGTH_MOST_NS - 2 * MS);
}

/* Its turn has ended long ago. */
static const struct {
	const char *name;
	bool seen;
} holders[] = {{"a stopped holder wants no turn", false}, {"a holder that was seen does", true}};

UNIT_ROWS(holders)
{
	turn_own(first)->weighted_ns += NS_PER_S;
	time_ns += LENGTH_NS + SOFT_NS;
	if (row->seen)
		turn_own(first)->seen = time_ns;
	takes_after(MS);
	assert_int_equal(holder_wants(), row->seen);
}

/* A slice that was given a turn, and was not seen since, has SOFT_NS to come. */
UNIT_TEST(test_unseen_holder)
{
	turn_own(first)->weighted_ns += NS_PER_S;
	turn_own(first)->seen = time_ns - NS_PER_S;
	time_ns = word().begin_ns;
	leaves_after(SOFT_NS - MS);
	takes_after(2 * MS);
	assert_false(holder_wants());
}
