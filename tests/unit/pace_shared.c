/* A process whose device another process of its slice uses, too: the other one is nothing but its
 * words in the region. */
#include "bucket.h"
#include "constants.h"
#include "pace_fake.h"

static struct vgpu_region_gang *table;
static struct vgpu_region_group *group; /* the device's */

static void launch_of(uint64_t ns)
{
	const struct kernel kernel = {.function = 7, .ns = ns};

	assert_int_equal(launch(&kernel), 0);
}

/* Another process launches to the device. */
static void meet_another(void)
{
	group->launcher = 2 + (uint32_t)region.slot;
}

/* The process shares the first device with another one, which has nothing in flight. */
static void begin(unsigned pct)
{
	joined(pct);
	table = &region.file->own.gang;
	group = &region.file->group[0];
	meet_another();
	launch_of(10 * NS_PER_US);
	assert_int_not_equal(table->member[0].owner, 0);
	synchronise_stream(0);
}

/* The next launch waits, until the device has recovered from that debt. */
static void owe(uint64_t debt_ns)
{
	bucket_of(0)->charged += bucket_level(bucket_of(0)) + (int64_t)debt_ns;
}

/* -- as the other process has gone ---------------------------------------------------------------
 */

/* What is in flight when a second without the other process is over is paid, all of it. */
UNIT_TEST(test_leaves_with_nothing_in_flight)
{
	int64_t charged;

	begin(50);
	charged = bucket_of(0)->charged;
	launch_of(3 * NS_PER_S);
	pass(2 * NS_PER_S);
	launch_of(1 * MS);
	assert_int_not_equal(table->member[0].owner, 0);
	synchronise_stream(0);
	launch_of(1 * MS);
	assert_int_equal(table->member[0].owner, 0);
	assert_in_range((bucket_of(0)->charged - charged) / (int64_t)MS, 3001, 3003);
}

/* A process whose host does something else for a thousand seconds, and waits for nothing before:
 * what it launched last may have taken long, but it pays for no more than TAIL_MOST_NS, whether or
 * not another process goes on meanwhile. */
UNIT_TEST(test_pauses_as_it_launches)
{
	const struct kernel next = {.function = 7, .ns = 1 * NS_PER_US, .stream = 1};

	for (unsigned beside = 0; beside < 2; beside++) {
		int64_t charged;

		begin(50);
		for (unsigned i = 0; i < 20; i++)
			launch_of(5 * NS_PER_US);
		assert_int_equal(table->member[0].in_flight, 1);
		charged = bucket_of(0)->charged;
		pass(1000 * NS_PER_S);
		if (beside)
			group->met_at = time_ns;
		assert_in_range(launch_timed(&next) / MS, 0, 21000);
		assert_in_range((bucket_of(0)->charged - charged) / (int64_t)MS, 0, 10100);
		left();
	}
}

/* -- while a launch waits ---------------------------------------------------------------------- */

static void lift(void)
{
	hami->sm_limit[0] = 0;
}

/* A device without a quota has no group: the launch goes at once, and is not in flight there. */
UNIT_TEST(test_lifted_in_a_wait)
{
	uint64_t began_ns;

	begin(10);
	owe(100 * MS);
	began_ns = time_ns;
	at_time(time_ns + 50 * MS, lift);
	launch_of(1 * MS);
	assert_in_range(time_ns - began_ns, 50 * MS, 80 * MS);
	assert_int_equal(table->member[0].in_flight, 0);
}

static struct vgpu_region_member others;

/* Another thread finds that there is no gang any more, and the entry becomes another process's. */
static void leave_gang(void)
{
	pace_set_gang(PACE_GANG_NO);
	pace_join_gang(0);
	assert_int_equal(table->member[0].owner, 0);
	others = table->member[0];
	others.owner = 1 << VGPU_GANG_OWNER_SLOTS | 5;
	others.seen = time_ns;
	table->member[0] = others;
}

/* The process that has the entry now is not told of the launch. */
UNIT_TEST(test_seat_given_up_in_a_wait)
{
	const struct kernel first = {.function = 7, .ns = MS};

	joined(10);
	table = &region.file->own.gang;
	pace_set_gang(PACE_GANG_FOUND);
	pace_join_gang(0);
	pace_join_gang(1);
	assert_int_equal(launch(&first), 0);
	synchronise_stream(0);
	owe(100 * MS);
	at_time(time_ns + 50 * MS, leave_gang);
	launch_of(1 * MS);
	assert_memory_equal(&table->member[0], &others, sizeof(others));
	left();
	pace_set_gang(PACE_GANG_FOUND);
}
