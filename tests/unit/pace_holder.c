/* Which member of a device's gang has the device, question by question. */
#include <limits.h>

#include "clock.h"
#include "constants.h"
#include "gang_table.h"
#include "gang_time.h"
#include "holder.h"
#include "region_fixture.h"

#define MS      NS_PER_MS
#define MEMBERS 3
#define WANTED  0x80000000u /* in the word: another member waits */

/* The members, and what is in memory after the last one. */
static struct {
	struct vgpu_region_gang gang;
	struct vgpu_region_member beyond;
} table;
static struct vgpu_region_group words;
static struct vgpu_region_device devices[VGPU_DEVICES_MAX];
static struct gang_member members[MEMBERS];
static uint32_t taken_by; /* while a member asks, another one takes the device; 0: none does */
static uint64_t now_ns;

static uint32_t *woken; /* the word whose sleepers were woken; NULL: none */
int __wrap_sys_futex_wake(uint32_t *word, int waiters);

int __wrap_sys_futex_wake(uint32_t *word, int waiters)
{
	assert_int_equal(waiters, INT_MAX);
	woken = word;
	return 0;
}

/* Called when a member's entry is old. */
static bool lives(const struct gang *gang, uint32_t owner)
{
	(void)gang, (void)owner;
	if (taken_by)
		words.holder = taken_by;
	return true;
}

static const struct gang group = {.kind = GANG_OF_DEVICE,
				  .words = &words,
				  .table = &table.gang,
				  .devices = devices,
				  .slice = VGPU_MEMBER_OF_DEVICE,
				  .lives = lives};

static int begin(void **state)
{
	(void)state;
	memset(&table, 0, sizeof(table));
	memset(&words, 0, sizeof(words));
	memset(members, 0, sizeof(members));
	memset(devices, 0, sizeof(devices));
	now_ns = 1000 * NS_PER_S;
	taken_by = 0;
	woken = NULL;
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_true(gang_join(&group, &members[i], i + 1, 0));
	return 0;
}

#define HOLDER_TEST(name) UNIT_TEST_AROUND(name, begin, NULL)

static uint32_t number_of(unsigned member)
{
	return 1 + (uint32_t)(members[member].entry - table.gang.member);
}

static uint64_t ask(unsigned member, bool in_flight)
{
	if (in_flight)
		gang_is_busy(&group, &members[member], now_ns);
	else
		gang_is_idle(&group, &members[member], now_ns, now_ns);
	return holder_ask(&group, &members[member], in_flight, now_ns);
}

/* The first member has work in flight and the device, which the second wants. */
static void want(void)
{
	assert_int_equal(ask(0, true), 0);
	assert_int_equal(words.holder, number_of(0));
	assert_int_equal(ask(1, false), GANG_HOLD_NS);
	assert_int_equal(words.holder, number_of(0) | WANTED);
}

HOLDER_TEST(test_holds)
{
	struct gang slice = group;

	assert_int_equal(ask(0, false), 0);
	assert_int_equal(members[0].holds_ns, now_ns);
	assert_false(holder_is_other(&group, &members[0]));
	assert_true(holder_is_other(&group, &members[1]));
	slice.kind = GANG_OF_SLICE;
	assert_false(holder_is_other(&slice, &members[1]));
	want();
	assert_false(holder_is_other(&group, &members[0]));
	assert_int_equal(ask(0, true), 0); /* until it has held the device for long */
}

/* The holder gives way when it has no work in flight, and wakes the others. */
HOLDER_TEST(test_gives_way)
{
	want();
	now_ns += GANG_HOLD_NS;
	assert_int_equal(ask(0, true), GANG_POLL_NS);
	assert_int_equal(members[0].waits_ns, now_ns);
	assert_null(woken);
	assert_int_equal(holder_ask(&group, &members[0], false, now_ns), GANG_POLL_NS);
	assert_ptr_equal(woken, &words.holder);
	assert_int_equal(words.holder, 0);
	assert_int_equal(members[0].waits_ns, 0);
	assert_int_equal(ask(0, false), GANG_POLL_NS); /* another member is about to take it */
	assert_int_equal(ask(1, false), 0);
	assert_int_equal(members[1].waits_ns, 0);
	assert_int_equal(words.holder, number_of(1));
}

/* Nobody takes the device that was given away, so the member has it again. */
HOLDER_TEST(test_takes_back)
{
	want();
	now_ns++;
	holder_release(&group, &members[0]);
	assert_int_equal(ask(0, false), GANG_POLL_NS);
	now_ns += GANG_HOLD_GAVE_NS - 1;
	assert_int_equal(ask(0, false), GANG_POLL_NS);
	now_ns++;
	assert_int_equal(ask(0, false), 0);
}

/* Of two members that wait, the one that has waited for longer has the device next. So each of
 * three has it in turn. */
HOLDER_TEST(test_longest_first)
{
	want();
	now_ns += MS;
	assert_int_equal(ask(2, false), GANG_HOLD_NS);
	now_ns += GANG_HOLD_NS;
	assert_int_equal(ask(0, true), GANG_POLL_NS);
	gang_is_idle(&group, &members[0], now_ns, now_ns);
	assert_int_equal(ask(0, false), GANG_POLL_NS);
	assert_int_equal(ask(2, false), GANG_POLL_NS);
	assert_int_equal(ask(1, false), 0);
	assert_int_equal(ask(0, false), GANG_HOLD_NS);
	gang_is_busy(&group, &members[1], now_ns);
	gang_is_idle(&group, &members[1], now_ns, now_ns);
	assert_int_equal(ask(1, false), GANG_POLL_NS);
	assert_int_equal(ask(0, false), GANG_POLL_NS);
	assert_int_equal(ask(2, false), 0);
}

/* One that waits while the group is shut does so as well. */
HOLDER_TEST(test_longest_first_when_shut)
{
	holder_note_wait(&members[1], true, now_ns);
	assert_int_equal(ask(0, false), GANG_POLL_NS);
	holder_note_wait(&members[1], false, now_ns);
	assert_int_equal(ask(0, false), 0);
}

/* Nobody waits, or another member is the holder: there is nothing to give. */
HOLDER_TEST(test_keeps)
{
	assert_int_equal(ask(0, true), 0);
	holder_release(&group, &members[0]);
	holder_release(&group, &members[1]);
	assert_int_equal(words.holder, number_of(0));
	assert_null(woken);
}

/* A holder that has waited for long for its own work launches once more, and the device is free. */
HOLDER_TEST(test_long_work)
{
	want();
	now_ns += GANG_HOLD_NS;
	assert_int_equal(ask(0, true), GANG_POLL_NS);
	now_ns += GANG_HOLD_SOFT_NS - 1;
	assert_int_equal(ask(0, true), GANG_POLL_NS);
	now_ns++;
	assert_int_equal(ask(0, true), 0);
	assert_int_equal(words.holder, 0);
	assert_ptr_equal(woken, &words.holder);
	assert_int_equal(ask(1, true), 0);
	assert_int_equal(ask(0, true), GANG_HOLD_NS);
}

/* A member waits for a holder with work in flight, and for no longer than GANG_HOLD_MOST_NS. */
HOLDER_TEST(test_waits)
{
	want();
	for (uint64_t waited_ns = 0; waited_ns < GANG_HOLD_MOST_NS; waited_ns += MS) {
		assert_int_equal(ask(1, false), GANG_HOLD_NS);
		now_ns += MS;
		gang_is_busy(&group, &members[0], now_ns);
	}
	assert_int_equal(ask(1, false), 0);
	assert_int_equal(words.holder, number_of(1));
	assert_int_equal(members[1].waits_ns, 0);
}

/* A holder without work in flight has no claim, and neither has one that does not exist. */
HOLDER_TEST(test_idle_holder)
{
	want();
	gang_is_idle(&group, &members[0], now_ns, now_ns);
	assert_int_equal(ask(1, false), 0);
	table.beyond = *members[0].entry;
	table.beyond.in_flight = 1;
	words.holder = VGPU_GANG_MEMBERS_MAX + 1;
	assert_int_equal(ask(1, false), 0);
	words.holder = WANTED;
	assert_int_equal(ask(1, false), 0);
}

/* Of two members that take the device at the same time, one has it, and the other has no claim. */
HOLDER_TEST(test_another_is_faster)
{
	want();
	members[0].entry->seen = now_ns + MS; /* so that it is asked whether the holder lives */
	members[1].waits_ns = now_ns - GANG_HOLD_MOST_NS;
	taken_by = number_of(2);
	assert_int_equal(ask(1, false), GANG_POLL_NS);
	assert_int_equal(words.holder, number_of(2));
	assert_int_equal(members[1].entry->in_flight, 0);
}

/* Another thread of the same process is faster: the claim is the process's. */
HOLDER_TEST(test_another_thread_is_faster)
{
	want();
	members[0].entry->seen = now_ns + MS;
	members[1].waits_ns = now_ns - GANG_HOLD_MOST_NS;
	taken_by = number_of(1);
	assert_int_equal(ask(1, false), GANG_POLL_NS);
	assert_int_equal(words.holder, number_of(1));
	assert_int_equal(members[1].entry->in_flight, VGPU_MEMBER_CLAIMS);
}

/* A member that has work in flight keeps it when another one is faster. */
HOLDER_TEST(test_work_is_no_claim)
{
	want();
	gang_is_busy(&group, &members[1], now_ns);
	members[0].entry->seen = now_ns + MS;
	members[1].waits_ns = now_ns - GANG_HOLD_MOST_NS;
	taken_by = number_of(2);
	assert_int_equal(holder_ask(&group, &members[1], true, now_ns), GANG_POLL_NS);
	assert_int_equal(members[1].entry->in_flight, VGPU_MEMBER_IN_FLIGHT);
}

/* Members that wake together: the first one claims the device until it has launched. */
HOLDER_TEST(test_wake_together)
{
	want();
	assert_int_equal(ask(2, false), GANG_HOLD_NS);
	gang_is_idle(&group, &members[0], now_ns, now_ns);
	assert_ptr_equal(woken, &words.holder);
	members[1].entry->seen = 0;
	assert_int_equal(holder_ask(&group, &members[1], false, now_ns), 0);
	assert_int_equal(holder_ask(&group, &members[2], false, now_ns), GANG_HOLD_NS);
	gang_count(&group, now_ns + MS);
	assert_int_equal(words.used_ns, 0); /* nothing was launched yet */
	gang_is_busy(&group, &members[1], now_ns + MS);
	assert_true(gang_table_is_in_flight(&group, members[1].entry, now_ns + MS));
	assert_int_equal(words.holder, number_of(1) | WANTED);
}

/* -- by turns --------------------------------------------------------------------------------- */

/* The first member is the holder, and the second waits for the device. */
static void want_by_turn(void)
{
	assert_int_equal(holder_ask(&group, &members[0], false, now_ns), 0);
	assert_true(holder_claim(&group, &members[0], now_ns));
	assert_int_equal(holder_ask(&group, &members[1], false, now_ns), GANG_HOLD_NS);
}

/* A member that waits for the slice's turn keeps the device for as long as it is seen, until the
 * other has waited for GANG_HOLD_MOST_NS. */
HOLDER_TEST(test_waits_for_a_turn)
{
	want_by_turn();
	for (uint64_t waited_ns = 0; waited_ns < GANG_HOLD_MOST_NS; waited_ns += 5 * MS) {
		assert_int_equal(holder_ask(&group, &members[1], false, now_ns), GANG_HOLD_NS);
		now_ns += 5 * MS;
		assert_int_equal(holder_ask(&group, &members[0], false, now_ns), 0);
		assert_true(holder_claim(&group, &members[0], now_ns));
	}
	assert_int_equal(holder_ask(&group, &members[1], false, now_ns), 0);
	assert_int_equal(words.holder, number_of(1));
	assert_false(holder_claim(&group, &members[0], now_ns));
}

/* GANG_HOLD_NS begin when the turn does. */
HOLDER_TEST(test_holds_in_a_turn)
{
	want_by_turn();
	now_ns += 20 * MS;
	assert_int_equal(holder_ask(&group, &members[0], false, now_ns), 0);
	now_ns += GANG_HOLD_NS - 1;
	assert_int_equal(holder_ask(&group, &members[0], true, now_ns), 0);
	now_ns++;
	assert_int_equal(holder_ask(&group, &members[0], true, now_ns), GANG_POLL_NS);
}

/* A holder that is not seen keeps the device for GANG_HOLD_SOFT_NS. */
HOLDER_TEST(test_unseen_in_a_turn)
{
	want_by_turn();
	now_ns += 100 * MS;
	assert_true(holder_claim(&group, &members[0], now_ns));
	now_ns += GANG_HOLD_SOFT_NS - 1;
	assert_int_equal(holder_ask(&group, &members[1], false, now_ns), GANG_HOLD_NS);
	now_ns++;
	assert_int_equal(holder_ask(&group, &members[1], false, now_ns), 0);
}

/* The device is free when the holder's work is over, and the group pays for none of that work. */
HOLDER_TEST(test_rests)
{
	want_by_turn();
	assert_true(gang_table_has_work(&group, members[0].entry, now_ns));
	assert_false(gang_table_is_in_flight(&group, members[0].entry, now_ns));
	gang_count(&group, now_ns);
	now_ns += MS;
	gang_count(&group, now_ns);
	gang_is_idle(&group, &members[0], now_ns, now_ns);
	assert_int_equal(words.used_ns, 0);
	assert_int_equal(devices[0].bucket.charged, 0);
	gang_is_busy(&group, &members[0], now_ns); /* after the turns */
	assert_true(gang_table_is_in_flight(&group, members[0].entry, now_ns));
	assert_true(holder_claim(&group, &members[0], now_ns));
	holder_unclaim(&group, &members[0], now_ns);
	assert_false(gang_table_has_work(&group, members[0].entry, now_ns));
	assert_ptr_equal(woken, &words.holder);
	assert_int_equal(holder_ask(&group, &members[1], false, now_ns), 0);
}
