/* A device's group, question by question: processes of one slice that share a device. */
#include "bucket.h"
#include "clock.h"
#include "constants.h"
#include "gang.h"
#include "gang_time.h"
#include "region_fixture.h"

#define MS      NS_PER_MS
#define MEMBERS 3

static struct vgpu_region_gang table;
static struct vgpu_region_group words;
static struct vgpu_region_device devices[VGPU_DEVICES_MAX];
static struct gang_member members[MEMBERS];
static bool dead[MEMBERS + 1];
static uint64_t now_ns;

static bool lives(const struct gang *gang, uint32_t owner)
{
	(void)gang;
	return owner <= MEMBERS && !dead[owner];
}

static const struct gang group = {.kind = GANG_OF_DEVICE,
				  .words = &words,
				  .table = &table,
				  .devices = devices,
				  .slice = VGPU_MEMBER_OF_DEVICE,
				  .lives = lives};

static void begin(void)
{
	memset(&table, 0, sizeof(table));
	memset(&words, 0, sizeof(words));
	memset(devices, 0, sizeof(devices));
	memset(members, 0, sizeof(members));
	memset(dead, 0, sizeof(dead));
	now_ns = 1000 * NS_PER_S;
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_true(gang_join(&group, &members[i], i + 1, 0));
	gang_count(&group, now_ns);
}

static void look(unsigned member, bool in_flight)
{
	if (in_flight)
		gang_is_busy(&group, &members[member], now_ns);
	else
		gang_is_idle(&group, &members[member], now_ns, now_ns);
}

/* How long the member is to wait, whose bucket has that level. */
static uint64_t ask(unsigned member, int64_t level_ns, bool in_flight)
{
	const struct gang_sight sight = {.level_ns = level_ns,
					 .ready_ns = level_ns < 0 ? (uint64_t)-level_ns : 0,
					 .in_flight = in_flight};

	look(member, in_flight);
	gang_count(&group, now_ns);
	return gang_ask(&group, &members[member], &sight, now_ns);
}

/* For how long the member waits until one of its launches goes, at most most_ns, while another
 * one's kernel runs; both ask each millisecond. */
static uint64_t waits_beside(unsigned member, unsigned other, uint64_t most_ns)
{
	uint64_t from_ns = now_ns;

	while (ask(member, GANG_DEVICE_SHUT_NS, false) && now_ns - from_ns < most_ns) {
		now_ns += MS;
		look(other, true);
	}
	return now_ns - from_ns;
}

/* A kernel may wait for one that another process has yet to launch: so that launch goes some time,
 * although the group closes. */
UNIT_TEST_ALONE(test_idle_member_is_patient)
{
	begin();
	look(1, true);
	assert_int_equal(waits_beside(0, 1, 10 * NS_PER_S), GANG_PATIENCE_IDLE_NS);
	assert_int_equal(waits_beside(0, 1, 10 * NS_PER_S), 2 * GANG_PATIENCE_IDLE_NS);
}

/* A group that its members left shut, or died in, is open for the next ones: the time between
 * counts as throttled for nobody. A member that stays keeps it shut. */
UNIT_TEST_ALONE(test_next_group_is_open)
{
	begin();
	assert_true(ask(0, GANG_DEVICE_SHUT_NS, false) > 0);
	assert_true(!gang_is_open(&group));
	gang_leave(&members[0]);
	dead[2] = true;
	assert_true(gang_join(&group, &members[0], 1, 0));
	assert_true(!gang_is_open(&group));

	gang_leave(&members[0]);
	dead[3] = true;
	now_ns += 3600 * NS_PER_S;
	assert_true(gang_join(&group, &members[0], 1, 0));
	assert_false(!gang_is_open(&group));
	assert_int_equal(ask(0, 0, false), 0);
	assert_int_equal(devices[0].throttled, 0);
	assert_int_equal(devices[0].throttled_ns, 0);
}

/* -- members that do not look ----------------------------------------------------------------- */

/* Time goes by, in which that member looks each millisecond and has nothing in flight. */
static void pass_beside(unsigned other, uint64_t ns)
{
	for (uint64_t until_ns = now_ns + ns; now_ns < until_ns; now_ns += MS)
		ask(other, 0, false);
	ask(other, 0, false);
}

static int64_t charged_ms(void)
{
	return devices[0].bucket.charged / (int64_t)MS;
}

/* A member that is in the driver for long counts as idle meanwhile: it pays when it comes back. */
UNIT_TEST_ALONE(test_long_wait_is_paid)
{
	begin();
	look(0, true);
	pass_beside(1, 10 * NS_PER_S);
	assert_in_range(charged_ms(), GANG_STALE_NS / MS - 1, GANG_STALE_NS / MS);
	look(0, false);
	assert_int_equal(charged_ms(), 10000);
	look(0, true);
	pass_beside(1, 5 * NS_PER_S);
	look(0, true);
	assert_int_equal(charged_ms(), 15000);
}

/* Two whose waits were at the same time pay for it once. */
UNIT_TEST_ALONE(test_long_waits_are_paid_once)
{
	begin();
	look(0, true);
	pass_beside(2, 1 * NS_PER_S);
	look(0, true);
	look(1, true);
	pass_beside(2, 10 * NS_PER_S);
	look(0, false);
	look(1, false);
	assert_int_equal(charged_ms(), 11000);
}

/* Work that was over long before is paid until then, and what others paid meanwhile stays paid. */
UNIT_TEST_ALONE(test_stopped_members)
{
	uint64_t from_ns;

	begin();
	from_ns = now_ns;
	look(0, true);
	look(1, true);
	pass_beside(2, 10 * NS_PER_S);
	gang_is_idle(&group, &members[0], from_ns + 100 * MS, now_ns);
	gang_is_idle(&group, &members[1], from_ns + 1500 * MS, now_ns);
	assert_int_equal(charged_ms(), 1500);
}

/* A dead member's entry from before the machine started again has times that are ahead. */
UNIT_TEST_ALONE(test_dead_of_another_boot)
{
	begin();
	look(1, true);
	members[1].entry->seen = now_ns + 3600 * NS_PER_S;
	dead[2] = true;
	pass_beside(0, 1 * NS_PER_S);
	assert_in_range(charged_ms(), 0, 1);
}

/* -- who launches as the group opens ---------------------------------------------------------- */

/* Each pause of the group ends with one holder, however long others have waited. */
UNIT_TEST_ALONE(test_opens_with_one_holder)
{
	begin();
	assert_int_equal(ask(0, 0, true), 0);
	assert_int_not_equal(ask(1, 0, false), 0);
	assert_int_not_equal(ask(2, 0, false), 0);
	for (uint64_t until_ns = now_ns + 2 * GANG_HOLD_SOFT_NS; now_ns < until_ns; now_ns += MS)
		for (unsigned i = 0; i < MEMBERS; i++)
			ask(i, GANG_DEVICE_SHUT_NS, false);
	assert_true(!gang_is_open(&group));
	assert_int_equal(ask(1, 0, false), 0);
	assert_false(!gang_is_open(&group));
	look(1, true);
	assert_int_not_equal(ask(2, 0, false), 0);
	assert_int_not_equal(ask(0, 0, false), 0);
	assert_int_equal(ask(1, 0, true), 0);
}

/* A holder that is asked to give way after a long time launches nothing more, with work in flight
 * and without. */
UNIT_TEST_ALONE(test_holder_gives_way)
{
	begin();
	assert_int_equal(ask(0, 0, true), 0);
	now_ns += GANG_HOLD_NS + 2 * GANG_HOLD_SOFT_NS;
	look(0, true);
	assert_int_not_equal(ask(1, 0, false), 0);
	assert_int_not_equal(ask(0, 0, true), 0);
	assert_int_not_equal(ask(0, 0, false), 0);
	assert_int_equal(ask(1, 0, false), 0);
}

/* A holder that was asked to give way, and whose kernel waits for its next launch, goes on once
 * nobody takes its place. */
UNIT_TEST_ALONE(test_holder_whose_waiter_is_gone)
{
	uint64_t from_ns;

	begin();
	from_ns = now_ns;
	assert_int_equal(ask(0, 0, true), 0);
	assert_int_not_equal(ask(1, 0, false), 0);
	dead[2] = true;
	now_ns += GANG_HOLD_NS;
	while (ask(0, 0, true) && now_ns - from_ns < NS_PER_S)
		now_ns += MS;
	assert_int_equal(now_ns - from_ns, GANG_HOLD_NS + GANG_HOLD_SOFT_NS);
	now_ns += GANG_HOLD_GAVE_NS; /* for which the device is left to the other one */
	assert_int_equal(ask(0, 0, true), 0);
}

/* -- members that are killed --------------------------------------------------------------------
 */

/* Each function brings member 0 into the state in which it is killed. Member 1 has no work in
 * flight then. */

static void holds(void)
{
	assert_int_equal(ask(0, 0, false), 0);
	look(0, true);
}

static void holds_and_another_waits(void)
{
	holds();
	assert_int_not_equal(ask(1, 0, false), 0);
}

static void is_to_give_way(void)
{
	holds_and_another_waits();
	now_ns += GANG_HOLD_NS;
	assert_int_not_equal(ask(0, 0, true), 0);
}

static void gave_way(void)
{
	is_to_give_way();
	assert_int_not_equal(ask(0, 0, false), 0);
}

static void waits(void)
{
	assert_int_equal(ask(1, 0, false), 0);
	look(1, true);
	assert_int_not_equal(ask(0, 0, false), 0);
	look(1, false);
}

static void closes(void)
{
	holds();
	assert_int_not_equal(ask(0, GANG_DEVICE_SHUT_NS, true), 0);
}

/* Between the stores of gang_leave. */
static void leaves(void)
{
	is_to_give_way();
	members[0].entry->in_flight = 0;
}

/* The last member opened the group, and has the device, but has not launched yet. */
static void opened(void)
{
	closes();
	look(0, false);
	assert_int_equal(ask(0, 0, false), 0);
	assert_false(!gang_is_open(&group));
}

/* However a member is killed, the next launch of another member goes within the time after which a
 * member that does not look is asked for whether it lives. */
UNIT_TEST_ALONE(test_killed)
{
	static const struct {
		const char *what;
		void (*reach)(void);
	} rows[] = {
		{"holder", holds},
		{"holder, and another waits", holds_and_another_waits},
		{"holder that is to give way", is_to_give_way},
		{"holder that gave way", gave_way},
		{"waiter", waits},
		{"holder of a group that closes", closes},
		{"holder that leaves", leaves},
		{"holder that opened the group", opened},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint64_t from_ns;

		begin();
		rows[i].reach();
		dead[1] = true;
		from_ns = now_ns;
		while (ask(1, 0, false) && now_ns - from_ns < NS_PER_S)
			now_ns += MS;
		print_message("%s: %lu ms\n", rows[i].what,
			      (unsigned long)((now_ns - from_ns) / MS));
		assert_true(now_ns - from_ns <= GANG_DEAD_NS);
	}
}

/* -- members whose hosts do something else ------------------------------------------------------
 */

/* A member's work has ended when it said it would, as far as the others know: they go on, and
 * nobody pays. */
UNIT_TEST_ALONE(test_overdue)
{
	begin();
	members[0].expects_ns = now_ns + 10 * MS;
	holds();
	now_ns += 10 * MS;
	assert_int_not_equal(ask(1, 0, false), 0);
	now_ns++;
	assert_int_equal(ask(1, 0, false), 0);
	gang_count(&group, now_ns + 500 * MS);
	assert_int_equal(charged_ms(), 10);
}

/* It took longer: the member pays for that when it looks, whether or not it has ended by then. */
UNIT_TEST_ALONE(test_overdue_pays)
{
	for (unsigned ended = 0; ended < 2; ended++) {
		begin();
		members[0].expects_ns = now_ns + 10 * MS;
		look(0, true);
		now_ns += 10 * MS + 1;
		pass_beside(1, 490 * MS);
		if (ended)
			gang_is_idle(&group, &members[0], now_ns - 100 * MS, now_ns);
		else
			look(0, true);
		assert_in_range(charged_ms(), ended ? 399 : 499, ended ? 401 : 501);
	}
}

/* The group was charged for another member's work after the overdue work had ended. That charge
 * does not pay for the overdue work. */
UNIT_TEST_ALONE(test_overdue_pays_for_itself)
{
	begin();
	members[0].expects_ns = now_ns + 10 * MS;
	look(0, true);
	now_ns += 10 * MS + 1;
	pass_beside(1, 390 * MS);
	look(1, true);
	now_ns += 400 * MS;
	look(1, false);
	assert_in_range(charged_ms(), 399, 411);
	gang_is_idle(&group, &members[0], now_ns - 400 * MS, now_ns);
	assert_in_range(charged_ms(), 599, 611); /* half of the charge is taken to be for it */
}

/* -- when it opens ----------------------------------------------------------------------------- */

/* The members have one bucket: what one of them saw of it before holds no longer. */
UNIT_TEST_ALONE(test_opens_by_what_is_seen_now)
{
	begin();
	assert_int_equal(ask(1, -(int64_t)NS_PER_S, false), NS_PER_S);
	now_ns += 1 * MS;
	assert_int_equal(ask(0, -(int64_t)(5 * MS), false), 5 * MS);
	assert_int_equal(ask(0, 0, false), GANG_POLL_NS);
	assert_false(!gang_is_open(&group));
	assert_int_equal(ask(1, 0, false), 0); /* it has waited for longer */
}
