/* Limits that are written while processes are in the region, and a slice that is paused. */
#include "region_fixture.h"

static int32_t status_of(const struct region *region)
{
	return region->file->hami.slots[region->slot].status;
}

static void test_pause(void **state)
{
	struct place *place = *state;
	struct region_setup setup = setup_of(GIB);
	struct region first = REGION_CLOSED, later = REGION_CLOSED, view = REGION_CLOSED;
	struct fault fault = {""};

	assert_int_equal(open_claimed(place->path, &setup, &first), 0);
	assert_int_equal(region_view(place->path, &view, &fault), 0);
	assert_int_equal(region_pause(&view, true), 1);
	assert_int_equal(status_of(&first), VGPU_SLOT_SUSPENDED);
	assert_int_equal(open_claimed(place->path, &setup, &later), 0);
	assert_int_equal(status_of(&later), VGPU_SLOT_SUSPENDED);
	assert_int_equal(region_living(&view), 2);
	assert_int_equal(count_wrong(&view), 0);
	assert_int_equal(region_pause(&view, true), 2); /* as often as one likes */
	assert_int_equal(region_pause(&view, false), 2);
	assert_int_equal(status_of(&first), VGPU_SLOT_RUNNING);
	assert_int_equal(status_of(&later), VGPU_SLOT_RUNNING);
	region_close(&later);
	assert_int_equal(region_pause(&view, true), 1);
	region_close(&first);

	/* Nobody is in it any more: whoever takes it over begins anew. */
	assert_int_equal(open_claimed(place->path, &setup, &first), 0);
	assert_int_equal(status_of(&first), VGPU_SLOT_RUNNING);
	region_close(&first);
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
	struct region_setup setup = setup_of(GIB);
	struct region region = REGION_CLOSED;

	for (unsigned i = 0; i < 300; i++) {
		region_close(&region);
		while (open_claimed(guests->path, &setup, &region) != 0)
			region_close(&region); /* whoever has the lock may be starved for seconds */
	}
	__atomic_fetch_add(&guests->stay, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
}

#define GUESTS 3

/* Whoever comes while the slice is being paused and resumed ends as it ends. */
static void test_pause_while_others_come(void **state)
{
	struct place *place = *state;
	struct guests *guests = shared_memory(sizeof(*guests));
	struct region_setup setup = setup_of(GIB);
	struct region region = REGION_CLOSED;
	uint64_t deadline_ns = clock_now_ns() + 100 * NS_PER_S;
	pid_t children[GUESTS];

	guests->path = place->path;
	assert_int_equal(open_claimed(place->path, &setup, &region), 0);
	for (unsigned i = 0; i < GUESTS; i++)
		children[i] = spawn(come, guests);
	while (__atomic_load_n(&guests->stay, __ATOMIC_SEQ_CST) < GUESTS) {
		assert_true(clock_now_ns() < deadline_ns);
		region_pause(&region, true);
		region_pause(&region, false);
	}
	assert_int_equal(region_living(&region), 1 + GUESTS);
	for (int slot = 0; slot < region.file->hami.slot_count; slot++)
		assert_int_not_equal(region.file->hami.slots[slot].status, VGPU_SLOT_SUSPENDED);
	for (unsigned i = 0; i < GUESTS; i++)
		kill_child(children[i]);
	region_close(&region);
}

static void test_limits(void **state)
{
	struct place *place = *state;
	struct region_setup setup = setup_of(GIB);
	struct region region = REGION_CLOSED;
	uint64_t first;

	assert_int_equal(open_claimed(place->path, &setup, &region), 0);
	assert_int_equal(region_limit(&region, 0, &first), GIB);
	assert_int_equal(first, GIB);
	region_set_limits(&region, 0, 3 * GIB, 70);
	assert_int_equal(region_limit(&region, 0, &first), 3 * GIB);
	assert_int_equal(first, GIB);
	assert_int_equal(region.file->hami.sm_limit[0], 70);
	region_set_limits(&region, 0, 0, 0);
	assert_int_equal(region_limit(&region, 0, &first), 0);
	assert_int_equal(region.file->hami.sm_limit[0], 100);
	assert_true(region_change_limit(&region, 0, 0, 2 * GIB));
	assert_false(region_change_limit(&region, 0, GIB, 5 * GIB));
	assert_int_equal(region_limit(&region, 0, &first), 2 * GIB);
	assert_int_equal(region_limit(&region, VGPU_DEVICES_MAX, &first), 0);
	assert_false(region_change_limit(&region, VGPU_DEVICES_MAX, 0, 1));
	region_set_limits(&region, VGPU_DEVICES_MAX, 1, 1);
	region_close(&region);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_pause),
		TEST(test_pause_while_others_come),
		TEST(test_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
