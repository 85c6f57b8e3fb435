/* The turns of a gang on one of its GPUs, at given moments: its wish, its date and its turn. */
#include "turn_pair.h"

#define CLOSING_NS (2 * MS)

/* The second slice is a gang's, has no work in flight, and wants the turn in so long. */
static void wish_in(uint64_t ns)
{
	turn_set_gang(second, CLOSING_NS);
	turn_wish(second, time_ns + ns, false, time_ns);
}

static unsigned holder(void)
{
	return word().holder;
}

/* The first slice asks, with that much work in flight. */
static enum turn_kind first_asks(uint64_t in_flight_ns)
{
	turn_submitted(first, time_ns + in_flight_ns, time_ns);
	return turn_ask(first, time_ns).kind;
}

static void assert_held_by(const struct turn *turn)
{
	assert_int_equal(holder(), turn->file.slice);
}

/* The gang has the turn, which has begun, and the first slice waits for the next one. */
static void begin_gang_turn(void)
{
	wish_in(MS);
	time_ns += MS;
	turn_idle(first, time_ns, time_ns);
	time_ns += IDLE_NS;
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_MINE);
	turn_ask(first, time_ns);
	assert_held_by(second);
}

/* -- wishes ----------------------------------------------------------------------------------- */

/* The holder keeps its turn until the date, and then is through with its work. */
UNIT_TEST(test_holder_goes_on_until_the_date)
{
	wish_in(8 * MS);
	time_ns += 4 * MS;
	assert_int_equal(first_asks(MS / 5), TURN_MINE);
	assert_held_by(first);
}

UNIT_TEST(test_turn_begins_at_the_date)
{
	uint64_t date_ns = time_ns + 5 * MS;

	wish_in(5 * MS);
	time_ns = date_ns - MS / 2;
	assert_int_equal(first_asks(MS / 2), TURN_WAIT);
	assert_held_by(second);
	assert_begins(date_ns);
}

/* Between two turns, the device is idle. */
UNIT_TEST(test_turn_does_not_begin_before_the_date)
{
	uint64_t date_ns = time_ns + MS;

	wish_in(MS);
	turn_idle(first, time_ns, time_ns);
	time_ns += IDLE_NS;
	turn_ask(join_one(busy(50, 100, MS)), time_ns);
	assert_held_by(second);
	assert_begins(date_ns);
}

/* The gang was given the word for its date, and wants nothing until then. Others leave it to it,
 * until the wish is void. */
UNIT_TEST(test_others_leave_the_turn)
{
	struct turn *third = join_one(busy(50, 100, MS));

	wish_in(MS / 2);
	assert_int_equal(first_asks(MS / 2), TURN_WAIT);
	assert_held_by(second);
	turn_ask(third, time_ns);
	assert_held_by(second);
	time_ns += MS / 2 + WISH_LATE_NS - US;
	turn_ask(third, time_ns);
	assert_held_by(second);
	time_ns += 2 * US;
	turn_ask(third, time_ns);
	assert_int_not_equal(holder(), second->file.slice);
}

/* Nobody else wants the GPU, so without the wish the turn had no end. */
UNIT_TEST(test_holder_whose_work_ends_before_the_date)
{
	uint64_t date_ns = time_ns + 5 * MS;

	wish_in(5 * MS);
	time_ns = date_ns;
	assert_int_equal(first_asks(0), TURN_WAIT);
	assert_held_by(second);
}

/* The gang asks at its date, and the holder has not asked since the wish. */
UNIT_TEST(test_holder_that_asks_after_the_date)
{
	wish_in(MS);
	turn_own(second)->burst_ns = LENGTH_MOST_NS;
	turn_own(second)->weighted_ns = turn_own(first)->weighted_ns + NS_PER_S;
	time_ns += MS + 100 * US;
	turn_will_wait(first, time_ns);
	turn_ask(second, time_ns);
	assert_held_by(first);
	assert_int_equal(first_asks(0), TURN_WAIT);
	assert_held_by(second);
}

/* A gang that was absent says so only when its wish is near. Then a slice that has the GPU for
 * itself takes turns from that time on. */
UNIT_TEST(test_far_wish_disturbs_nobody)
{
	turn_give_way(second, time_ns);
	time_ns += PRESENT_NS;
	assert_int_equal(first_asks(0), TURN_ALONE);
	wish_in(NS_PER_S);
	assert_true(turn_is_alone(first));
	wish_in(WISH_AHEAD_NS);
	assert_false(turn_is_alone(first));
	assert_int_equal(first_asks(0), TURN_MINE);
	time_ns += WISH_AHEAD_NS;
	assert_int_equal(first_asks(0), TURN_WAIT);
	assert_held_by(second);
}

/* A wish that the holder should not heed. */
static const struct {
	const char *name;
	uint64_t in_ns, after_ns;
	bool is_dead, is_no_gang;
} void_wishes[] = {
	{"too far ahead", NS_PER_S, 2 * MS, false, false},
	{"too long ago", MS, MS + WISH_LATE_NS + US, false, false},
	{"of a dead gang", MS, MS, true, false},
	{"of what is no gang any more", MS, MS, false, true},
};

UNIT_ROWS(void_wishes)
{
	wish_in(row->in_ns);
	if (row->is_no_gang)
		turn_set_gang(second, 0);
	if (row->is_dead)
		end_of(&actors[1]);
	time_ns += row->after_ns;
	assert_int_equal(first_asks(0), TURN_MINE);
	assert_held_by(first);
}

/* Of two gangs, that with the earlier wish is next; where they are equal, all GPUs prefer the same.
 */
static const struct {
	const char *name;
	uint64_t second_ns, third_ns;
	bool third;
} gangs[] = {
	{"the earlier wish", 500 * US, 600 * US, false},
	{"the earlier wish of the other", 600 * US, 500 * US, true},
	{"the same, by the key", 500 * US, 500 * US, true},
};

UNIT_ROWS(gangs)
{
	struct turn *third = join_one(busy(50, 100, MS));

	wish_in(row->second_ns);
	turn_set_gang(third, CLOSING_NS);
	turn_ask(third, time_ns);
	turn_wish(third, time_ns + row->third_ns, false, time_ns);
	assert_int_equal(grant_next(first, NOBODY, time_ns),
			 (row->third ? third : second)->file.slice);
}

/* The wish is fulfilled when the turn begins: another slice is next then. */
UNIT_TEST(test_wish_ends_with_the_turn)
{
	begin_gang_turn();
	assert_int_equal(turn_own(second)->wish_from, 0);
}

/* The date comes sooner, as the others are idle: the turn begins at once. */
UNIT_TEST(test_date_comes_sooner)
{
	wish_in(30 * MS);
	turn_idle(first, time_ns, time_ns);
	time_ns += IDLE_NS;
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_MINE);
}

/* The gang was given the word, and then its date moves on. */
UNIT_TEST(test_date_moves_on)
{
	wish_in(MS / 2);
	assert_int_equal(first_asks(MS / 2), TURN_WAIT);
	assert_held_by(second);
	turn_wish(second, time_ns + 10 * MS, false, time_ns);
	assert_held_by(first);
}

/* The holder's host is in a long call: the gang takes the word a little after its date. */
UNIT_TEST(test_gang_takes_the_turn)
{
	wish_in(MS);
	turn_submitted(first, time_ns + MS, time_ns);
	time_ns += MS;
	turn_will_wait(first, time_ns);
	turn_own(second)->burst_ns = LENGTH_MOST_NS;
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_WAIT);
	assert_held_by(first);
	time_ns += GRACE_NS;
	turn_ask(second, time_ns);
	assert_held_by(second);
}

/* At the cut, the gang gives its turn to whoever wants it. */
UNIT_TEST(test_gang_passes_its_turn_on)
{
	begin_gang_turn();
	turn_wish(second, time_ns + 10 * MS, false, time_ns);
	assert_held_by(first);
	assert_false(turn_account_is_running(second));
}

UNIT_TEST(test_gang_passes_its_turn_to_nobody)
{
	begin_gang_turn();
	turn_give_way(first, time_ns);
	turn_wish(second, time_ns + 10 * MS, false, time_ns);
	assert_int_equal(holder(), NOBODY);
}

/* A gang that has the GPU for itself keeps it. */
UNIT_TEST(test_gang_alone)
{
	begin_gang_turn();
	turn_give_way(first, time_ns);
	grant_absent(first);
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_ALONE);
	turn_wish(second, time_ns + 10 * MS, false, time_ns);
	assert_held_by(second);
	assert_int_equal(turn_own(second)->wish_from, 0);
}

/* -- the gang's turn -------------------------------------------------------------------------- */

/* A turn ends as long before its end as the gang takes to close. The next one begins when the gang
 * should have closed. */
UNIT_TEST(test_gang_closes_in_time)
{
	uint64_t begin_ns;

	begin_gang_turn();
	turn_own(first)->burst_ns = LENGTH_MOST_NS;
	begin_ns = word().begin_ns;
	time_ns = begin_ns + LENGTH_MOST_NS - CLOSING_NS - 4 * US;
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_MINE);
	time_ns += 8 * US;
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_WAIT);
	assert_held_by(first);
	assert_begins(time_ns + CLOSING_NS);
}

/* Another gang wishes for the end of the turn: its turn begins then, not later. */
UNIT_TEST(test_gang_after_gang)
{
	struct turn *third = join_one(busy(50, 100, MS));
	uint64_t end_ns;

	begin_gang_turn();
	turn_ask(third, time_ns);
	turn_set_gang(third, CLOSING_NS);
	end_ns = word().begin_ns + CLOSING_TIMES * CLOSING_NS;
	turn_wish(third, end_ns, false, time_ns);
	turn_own(first)->burst_ns = LENGTH_MOST_NS;
	time_ns = end_ns - CLOSING_NS + US;
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_WAIT);
	assert_held_by(third);
	assert_begins(end_ns + US);
}

/* A gang was given the word for the end of another gang's turn, which is further ahead than a slice
 * may be idle. Others leave the word to it. */
UNIT_TEST(test_others_leave_the_turn_after_a_gang)
{
	struct turn *third = join_one(busy(50, 100, MS));
	uint64_t end_ns;

	begin_gang_turn();
	turn_ask(third, time_ns);
	turn_set_gang(third, 2 * CLOSING_NS);
	turn_set_gang(second, 2 * CLOSING_NS);
	end_ns = word().begin_ns + 2 * CLOSING_NS * CLOSING_TIMES;
	turn_wish(third, end_ns, false, time_ns);
	time_ns = end_ns - 2 * CLOSING_NS + US;
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_WAIT);
	assert_held_by(third);
	time_ns = end_ns - NOTICE_NS - US;
	turn_ask(first, time_ns);
	assert_held_by(third);
}

/* Another gang's date does not make a gang's turn shorter than its least length. */
UNIT_TEST(test_gang_is_not_cut_short)
{
	struct turn *third = join_one(busy(50, 100, MS));

	begin_gang_turn();
	turn_ask(third, time_ns);
	turn_set_gang(third, CLOSING_NS);
	turn_wish(third, time_ns + CLOSING_NS, false, time_ns);
	time_ns += CLOSING_NS;
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_MINE);
	assert_held_by(second);
}

/* One process of the slice has left the gang, another has not. */
UNIT_TEST(test_gang_that_one_process_left)
{
	struct turn *same = join_one(add((struct actor){.weight = 50, .limit_pct = 100, .key = 2}));

	assert_int_equal(same->file.slice, second->file.slice);
	turn_set_gang(second, CLOSING_NS);
	turn_set_gang(same, CLOSING_NS);
	turn_set_gang(same, 0);
	assert_int_equal(turn_own(second)->least_ns, 0);
	turn_set_gang(second, CLOSING_NS);
	assert_int_equal(turn_own(second)->least_ns, CLOSING_TIMES * CLOSING_NS);
}

/* Work in flight that waits for other devices says nothing about the end of the turn. */
UNIT_TEST(test_gang_with_much_in_flight)
{
	begin_gang_turn();
	turn_submitted(second, time_ns + NS_PER_S, time_ns);
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_MINE);
}

/* Next to short bursts, other turns are short. A gang's are several times as long as its closing.
 */
UNIT_TEST(test_gang_next_to_short_bursts)
{
	begin_gang_turn();
	turn_own(first)->burst_ns = LENGTH_LEAST_NS;
	time_ns = word().begin_ns + CLOSING_TIMES * CLOSING_NS - CLOSING_NS - 4 * US;
	turn_ask(first, time_ns);
	assert_held_by(second);
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_MINE);
	time_ns += 8 * US;
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_WAIT);
}

/* Hosts of a gang that wait for each step keep their turn between two. */
UNIT_TEST(test_gang_waits_for_a_step)
{
	begin_gang_turn();
	turn_idle(second, time_ns, time_ns);
	time_ns += GANG_IDLE_NS - US;
	turn_ask(first, time_ns);
	assert_held_by(second);
	time_ns += 2 * US;
	turn_ask(first, time_ns);
	assert_held_by(first);
}

/* A host that does something else while its kernels wait for other devices is not idle. */
UNIT_TEST(test_gang_is_never_quiet)
{
	begin_gang_turn();
	turn_submitted(second, time_ns, time_ns);
	assert_int_equal(turn_own(second)->quiet_from, 0);
}

/* -- dates ------------------------------------------------------------------------------------ */

/* When the GPU could be the gang's, from now on. */
static const struct {
	const char *name;
	uint64_t busy_ns, more_ns, wish_ns; /* the first slice's; what the gang had more, at a
					     * weight of 50; another gang's */
	bool is_idle;
	uint64_t in_ns;
} dates[] = {
	{"after the holder's work", 5 * MS, 0, 0, false, 5 * MS},
	{"not before the holder can see the wish", 0, 0, 0, false, NOTICE_NS},
	{"after endless work", NS_PER_S, 0, 0, false, AHEAD_MOST_NS},
	{"at once, as the holder is idle", 0, 0, 0, true, 0},
	{"after others have had their part", 0, 6 * MS, 0, false, NOTICE_NS + 3 * MS},
	{"never much later", 0, 10 * NS_PER_S, 0, false, NOTICE_NS + OWED_MOST_NS / 2},
	{"after another gang's turn", 0, 0, 4 * MS, false, 4 * MS + CLOSING_TIMES *CLOSING_NS},
	{"long before another gang's turn", 0, 0, 20 * MS, false, NOTICE_NS},
};

/* The gang wishes for a date that comes later and later, for so long. Whether it still takes turns
 * then. */
static bool waits_for_dates(uint64_t ns, bool counts)
{
	turn_set_gang(second, CLOSING_NS);
	for (uint64_t end_ns = time_ns + ns; time_ns < end_ns; time_ns += MS / 2) {
		turn_wish(second, time_ns + 20 * MS, counts, time_ns);
		first_asks(0);
	}
	return turn_takes_part(second, time_ns);
}

UNIT_TEST(test_gang_doubts_dates)
{
	assert_true(waits_for_dates(100 * MS, true));
	assert_false(waits_for_dates(2 * NS_PER_S, true));
	assert_int_equal(turn_own(second)->wish_from, 0);
	assert_int_equal(turn_ask(second, time_ns).kind, TURN_ALONE);
}

/* The gang's own limit, or another GPU, delays it. */
UNIT_TEST(test_gang_that_waits_for_something_else)
{
	assert_true(waits_for_dates(4 * NS_PER_S, false));
}

UNIT_ROWS(dates)
{
	struct turn *third = join_one(busy(50, 100, MS));

	turn_set_gang(second, CLOSING_NS);
	turn_set_gang(third, CLOSING_NS);
	turn_give_way(second, time_ns);
	turn_submitted(first, time_ns + row->busy_ns, time_ns);
	turn_own(second)->weighted_ns = turn_own(first)->weighted_ns + row->more_ns;
	if (row->wish_ns)
		turn_wish(third, time_ns + row->wish_ns, false, time_ns);
	if (row->is_idle)
		turn_idle(first, time_ns, time_ns);
	assert_in_range(turn_date(second, time_ns), time_ns + row->in_ns - 2 * US,
			time_ns + row->in_ns + 2 * US);
}

/* A gang that was given the next turn already is to begin with it. */
UNIT_TEST(test_date_of_a_given_turn)
{
	uint64_t busy_ns = time_ns + 6 * MS;
	struct grant grant = word();

	wish_in(2 * MS);
	turn_submitted(first, busy_ns, time_ns);
	time_ns += 2 * MS;
	assert_true(turn_holder_hand_over(first, &grant, second->file.slice, time_ns, time_ns));
	assert_in_range(turn_date(second, time_ns), busy_ns - 2 * US, busy_ns + 2 * US);
}

/* The holder is a gang whose hosts wait for a step. Its turn goes on, and what it has had less
 * counts still. */
UNIT_TEST(test_date_between_steps)
{
	begin_gang_turn();
	turn_set_gang(first, CLOSING_NS);
	turn_own(first)->weighted_ns = turn_own(second)->weighted_ns + 3 * MS;
	turn_idle(second, time_ns, time_ns);
	time_ns += MS / 2;
	assert_true(turn_date(first, time_ns) > time_ns + 3 * MS);
	time_ns += GANG_IDLE_NS;
	assert_int_equal(turn_date(first, time_ns), time_ns);
}

/* A slice beside a gang still gets its part. The gang asks for its date once a cut. */
UNIT_TEST(test_alternate)
{
	uint64_t from_ns[2] = {turn_own(first)->used_ns, turn_own(second)->used_ns};

	begin_gang_turn();
	for (unsigned turns = 0; turns < 50; turns++) {
		while (turn_ask(second, time_ns).kind != TURN_WAIT) {
			turn_ask(first, time_ns);
			time_ns += MS;
		}
		turn_wish(second, turn_date(second, time_ns), false, time_ns);
		while (turn_own(second)->wish_from > time_ns) {
			first_asks(MS);
			time_ns += MS / 2;
		}
	}
	from_ns[0] = turn_own(first)->used_ns - from_ns[0];
	from_ns[1] = turn_own(second)->used_ns - from_ns[1];
	assert_in_range(from_ns[0], from_ns[1] * 8 / 10, from_ns[1] * 12 / 10);
}
