/* Limits that are written while processes are in the region, and a slice that is paused. */
#include <sched.h>

#include "region_fixture.h"

static int32_t status_of(const struct region *region)
{
	return region->file->hami.slots[region->slot].status;
}

/* Pauses or resumes, and expects whether that changes the slice, and how many processes. */
static void turn(struct region *region, bool paused, bool changes, unsigned processes)
{
	unsigned turned = 0;

	assert_int_equal(region_pause(region, paused, &turned), changes);
	assert_int_equal(turned, processes);
	assert_int_equal(region_is_paused(region), paused);
}

UNIT_TEST(test_pause)
{
	struct region first = claimed(), later = REGION_CLOSED, view = REGION_CLOSED;
	struct fault fault = {""};

	assert_int_equal(region_view(here.path, &view, &fault), 0);
	turn(&view, true, true, 1);
	assert_int_equal(status_of(&first), VGPU_SLOT_SUSPENDED);
	claim(&later);
	assert_int_equal(status_of(&later), VGPU_SLOT_SUSPENDED);
	assert_int_equal(region_living(&view), 2);
	assert_int_equal(count_wrong(&view), 0);
	turn(&view, true, false, 0);
	view.file->hami.slots[first.slot].status = VGPU_SLOT_RUNNING; /* as a monitor does */
	turn(&view, true, false, 1);
	turn(&view, false, true, 2);
	assert_int_equal(status_of(&first), VGPU_SLOT_RUNNING);
	assert_int_equal(status_of(&later), VGPU_SLOT_RUNNING);
	turn(&view, false, false, 0);
	region_close(&later);
	region_close(&first);
	region_close(&view);
}

/* A pause before the first process comes, and after the last one is gone, when the next process
 * resets the region. */
UNIT_TEST(test_pause_of_nobody)
{
	struct region_setup other = setup_of(2 * GIB);
	struct region region = REGION_CLOSED, view = REGION_CLOSED;
	struct fault fault = {""};

	assert_int_equal(region_open(here.path, &one_gib, &view, &fault), 0);
	turn(&view, true, true, 0);
	claim(&region);
	assert_int_equal(status_of(&region), VGPU_SLOT_SUSPENDED);
	region_close(&region);
	assert_int_equal(open_claimed(here.path, &other, &region), 0);
	assert_int_equal(region.file->hami.limit[0], 2 * GIB);
	assert_int_equal(status_of(&region), VGPU_SLOT_SUSPENDED);
	turn(&view, false, true, 1);
	region_close(&region);
	claim(&region);
	assert_int_equal(status_of(&region), VGPU_SLOT_RUNNING);
	region_close(&region);
	region_close(&view);
}

struct guests {
	const char *path;
	uint64_t stay; /* how many */
};

/* Again and again, and then for good. */
static void come(void *arg)
{
	struct guests *guests = arg;
	struct region region = REGION_CLOSED;

	for (unsigned i = 0; i < 300; i++) {
		region_close(&region);
		while (open_claimed(guests->path, &one_gib, &region) != 0)
			region_close(&region); /* whoever has the lock may be starved for seconds */
	}
	__atomic_fetch_add(&guests->stay, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
}

#define GUESTS 3

/* Whoever comes while the slice is being paused and resumed ends as it ends. */
UNIT_TEST(test_pause_while_others_come)
{
	struct guests *guests = shared_memory(sizeof(*guests));
	struct region region = REGION_CLOSED;
	uint64_t deadline_ns = clock_now_ns() + 100 * NS_PER_S;
	pid_t children[GUESTS];
	unsigned turned;

	guests->path = here.path;
	claim(&region);
	for (unsigned i = 0; i < GUESTS; i++)
		children[i] = spawn(come, guests);
	while (__atomic_load_n(&guests->stay, __ATOMIC_SEQ_CST) < GUESTS) {
		assert_true(clock_now_ns() < deadline_ns);
		region_pause(&region, true, &turned);
		region_pause(&region, false, &turned);
	}
	assert_int_equal(region_living(&region), 1 + GUESTS);
	for (int slot = 0; slot < region.file->hami.slot_count; slot++)
		assert_int_not_equal(region.file->hami.slots[slot].status, VGPU_SLOT_SUSPENDED);
	for (unsigned i = 0; i < GUESTS; i++)
		kill_child(children[i]);
	region_close(&region);
}

#define ROUNDS 3000

/* Two processes that pause and resume at the same moment, round by round. */
struct match {
	const char *path;
	uint32_t round; /* which one has begun; the judge's */
	uint32_t done;  /* turns that are over, of all rounds */
};

static uint32_t wait_for_count(const uint32_t *count, uint32_t least)
{
	uint32_t seen;

	while ((seen = __atomic_load_n(count, __ATOMIC_SEQ_CST)) < least)
		sched_yield();
	return seen;
}

static void play(struct match *match, bool pauses)
{
	struct region region = REGION_CLOSED;
	unsigned turned;

	if (region_view(match->path, &region, NULL))
		_exit(1);
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		wait_for_count(&match->round, round);
		region_pause(&region, pauses, &turned);
		__atomic_fetch_add(&match->done, 1, __ATOMIC_SEQ_CST);
	}
}

static void play_pause(void *arg)
{
	play(arg, true);
}

static void play_resume(void *arg)
{
	play(arg, false);
}

UNIT_TEST(test_pause_and_resume_at_once)
{
	struct match *match = shared_memory(sizeof(*match));
	struct region regions[8];
	pid_t children[2];

	match->path = here.path;
	for (unsigned i = 0; i < 8; i++) {
		regions[i] = (struct region)REGION_CLOSED;
		claim(&regions[i]);
	}
	children[0] = spawn(play_pause, match);
	children[1] = spawn(play_resume, match);
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		__atomic_store_n(&match->round, round, __ATOMIC_SEQ_CST);
		wait_for_count(&match->done, 2 * round);
		for (unsigned i = 0; i < 8; i++)
			assert_int_equal(status_of(&regions[i]) == VGPU_SLOT_SUSPENDED,
					 region_is_paused(&regions[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		kill_child(children[i]);
	for (unsigned i = 0; i < 8; i++)
		region_close(&regions[i]);
}

UNIT_TEST(test_limits)
{
	struct region region = claimed();
	struct region_limits limits;
	uint64_t first;

	assert_int_equal(region_limit(&region, 0, &first), GIB);
	assert_int_equal(first, GIB);
	limits = (struct region_limits){3 * GIB, 70, 90, 5};
	region_set_limits(&region, 0, &limits);
	assert_int_equal(region_limit(&region, 0, &first), 3 * GIB);
	assert_int_equal(first, GIB);
	assert_int_equal(region.file->hami.sm_limit[0], 70);
	assert_int_equal(region.file->own.device[0].burst_ns, 5);
	assert_int_equal(region.file->turn[0].cores_most, 90);
	limits = (struct region_limits){0};
	region_set_limits(&region, 0, &limits);
	assert_int_equal(region_limit(&region, 0, &first), 0);
	assert_int_equal(region.file->hami.sm_limit[0], 100);
	assert_true(region_change_limit(&region, 0, 0, 2 * GIB));
	assert_false(region_change_limit(&region, 0, GIB, 5 * GIB));
	assert_int_equal(region_limit(&region, 0, &first), 2 * GIB);
	assert_int_equal(region_limit(&region, VGPU_DEVICES_MAX, &first), 0);
	assert_false(region_change_limit(&region, VGPU_DEVICES_MAX, 0, 1));
	assert_int_equal(region.file->own.device[0].burst_ns, 0);
	assert_true(region_change_burst(&region, 0, 0, 7));
	assert_false(region_change_burst(&region, 0, 0, 8));
	assert_int_equal(region.file->own.device[0].burst_ns, 7);
	assert_false(region_change_burst(&region, VGPU_DEVICES_MAX, 0, 1));
	assert_int_equal(region.file->turn[0].cores_most, 0);
	limits = (struct region_limits){1, 1, 1, 1};
	region_set_limits(&region, VGPU_DEVICES_MAX, &limits);
	region_close(&region);
}
