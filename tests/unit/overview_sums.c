/* What the slices of a GPU have together. */
#include <stdio.h>

#include "clock.h"
#include "overview.h"
#include "size.h"
#include "unit.h"

#define UUID "GPU-a"

/* What is held by a slice whose last launch was that long ago. */
static uint64_t held_after_s(int64_t ago_s)
{
	struct overview_device device = {.seen = {.used_bytes = GIB}};
	struct overview_slice slice = {
		.state = OVERVIEW_RUNNING,
		.launched_s = (int64_t)(clock_wall_ns() / NS_PER_S) - ago_s,
		.running = 1,
		.device_count = 1,
		.device = &device,
	};
	struct overview overview = {.count = 1, .slice = &slice};

	snprintf(device.seen.uuid, sizeof(device.seen.uuid), UUID);
	return overview_held_bytes(&overview, UUID);
}

UNIT_TEST(memory_of_a_slice_counts_after_a_launch)
{
	(void)state;
	assert_int_equal(held_after_s(0), GIB);
	assert_int_equal(held_after_s(25), GIB);
	assert_int_equal(held_after_s(35), 0);
}

/* The clock may be set back by a second or two while the slice launches, and by hours. */
UNIT_TEST(a_launch_in_the_future_was_before_the_clock_was_set)
{
	(void)state;
	assert_int_equal(held_after_s(-2), GIB);
	assert_int_equal(held_after_s(-3600), 0);
	assert_int_equal(held_after_s(-((int64_t)1 << 60)), 0);
}
