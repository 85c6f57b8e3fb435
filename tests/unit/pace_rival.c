/*
 * A launch that waits while another slice comes. From then on its slice takes turns, and the peers
 * that go by turns use up what the bucket gets. So the launch has to go by a turn as well: whether
 * it waits for the bucket or in its device's group, there is never enough in the bucket for it.
 *
 * The other slice is a seat in the file of turns, and the peers are nothing but what they do to the
 * region.
 */
#include "bucket.h"
#include "pace_fake.h"
#include "turn.h"

#define DEBT_NS   (300 * MS)      /* of the bucket, whatever the time */
#define COMES_NS  (20 * MS)       /* after the begin of the launch, the other slice comes */
#define ENOUGH_NS (20 * NS_PER_S) /* the debt is over after a second of turns */

static struct turn rival;
static struct turn_account rival_account;
static char turns_path[160];
static uint64_t began_ns; /* when the launches began that may have to wait */
static bool has_peer;     /* in the device's group */

int __wrap_sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns);

int __wrap_sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	(void)word, (void)expected;
	pass(timeout_ns);
	meet();
	return 0;
}

static void rival_comes(void)
{
	const struct turn_slice slice = {
		.key = 7, .weight = 60, .limit_pct = 100, .account = &rival_account};
	struct fault fault = {""};

	rival_account = (struct turn_account){.held_from = 0};
	assert_int_equal(turn_join(&rival, turns_path, &slice, &fault), 0);
}

static void peer_goes_on(void)
{
	struct vgpu_region_bucket *bucket = bucket_of(0);

	bucket->charged += bucket_level(bucket) + (int64_t)DEBT_NS;
	if (has_peer)
		region.file->group[0].launcher = 2 + (uint32_t)region.slot;
}

/* The peers keep the bucket in debt, and the other slice takes each turn that it gets. */
static void others_go_on(void)
{
	assert_true(time_ns - began_ns < ENOUGH_NS);
	peer_goes_on();
	if (time_ns - began_ns < COMES_NS)
		return;
	if (!rival.file.file)
		rival_comes();
	if (turn_ask(&rival, time_ns).kind == TURN_MINE)
		turn_submitted(&rival, time_ns + MS, time_ns);
}

static void launch_one(void)
{
	const struct kernel kernel = {.function = 7, .ns = 10 * NS_PER_US};

	assert_int_equal(launch(&kernel), 0);
}

/* After which time a launch has gone that waited when the other slice came. */
static uint64_t waits(void **state, bool with_peer)
{
	const struct place *place = *state;
	uint64_t waited_ns;

	pace_set_turns(place->dir, "");
	joined(state, 30);
	snprintf(turns_path, sizeof(turns_path), "%s/%s", place->dir, hami->uuids[0]);
	has_peer = with_peer;
	for (unsigned i = 0; i < 3; i++) {
		region.file->group[0].launcher = has_peer ? 2 + (uint32_t)region.slot : 0;
		launch_one();
		synchronise_stream(0);
	}
	assert_int_equal(region.file->own.gang.member[0].owner != 0, has_peer);
	peer_goes_on();
	began_ns = time_ns;
	meet = others_go_on;
	do
		launch_one(); /* a group shuts when launches have gone at a debt */
	while (!rival.file.file);
	meet = NULL;
	waited_ns = time_ns - began_ns;
	turn_leave(&rival, time_ns);
	rival.file.file = NULL;
	left();
	pace_set_turns("", "");
	return waited_ns;
}

UNIT_TEST(test_in_the_bucket)
{
	assert_in_range(waits(state, false), COMES_NS, ENOUGH_NS);
}

UNIT_TEST(test_in_the_group)
{
	assert_in_range(waits(state, true), COMES_NS, ENOUGH_NS);
}
