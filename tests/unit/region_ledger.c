/* The ledger by itself: charges, refunds, limits, and figures at the ends of their range. */
#include "region_fixture.h"
#include "region_internal.h"

static struct region make_with(unsigned devices)
{
	struct region_setup setup = setup_from(0, devices, GIB);
	struct region region = REGION_CLOSED;

	assert_int_equal(open_claimed(here.path, &setup, &region), 0);
	return region;
}

static void assert_usage(const struct region *region, unsigned device, uint64_t context,
			 uint64_t module, uint64_t data, uint64_t offset)
{
	struct vgpu_hami_usage usage = region_own_usage(region, device);

	assert_int_equal(usage.context, context);
	assert_int_equal(usage.module, module);
	assert_int_equal(usage.data, data);
	assert_int_equal(usage.offset, offset);
	assert_int_equal(usage.total, context + module + data + offset);
}

UNIT_TEST(test_classes)
{
	struct region region = make_with(2);

	assert_int_equal(region_charge(&region, 1, REGION_CONTEXT, 1, 0), 0);
	assert_int_equal(region_charge(&region, 1, REGION_MODULE, 20, 0), 0);
	assert_int_equal(region_charge(&region, 1, REGION_DATA, 300, 0), 0);
	assert_int_equal(region_charge(&region, 1, REGION_OFFSET, 4000, 0), 0);
	assert_usage(&region, 1, 1, 20, 300, 4000);
	assert_usage(&region, 0, 0, 0, 0, 0);
	assert_int_equal(region_used(&region, 1), 4321);
	assert_int_equal(region_used(&region, 0), 0);
	region_refund(&region, 1, REGION_DATA, 100);
	assert_usage(&region, 1, 1, 20, 200, 4000);
	region_refund(&region, 1, REGION_MODULE, 21); /* more than there is leaves 0 */
	assert_usage(&region, 1, 1, 0, 200, 4000);
	assert_int_equal(region_used(&region, 1), 4201);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

UNIT_TEST(test_limit)
{
	struct region region = make_with(1), other = claimed();

	assert_int_equal(region_charge(&region, 0, REGION_DATA, 60, 100), 0);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, 41, 100), -EDQUOT);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, 40, 100), 0);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, 1, 100), -EDQUOT);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, 0, 100), 0);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, 1, 0), 0); /* no limit */
	assert_int_equal(region_charge(&other, 0, REGION_DATA, 0, 100), 0);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, 1, 50), -EDQUOT);
	assert_int_equal(region_used(&region, 0), 101);
	region_refund(&region, 0, REGION_DATA, 60);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, 59, 100), 0);
	assert_int_equal(region_used(&region, 0), 100);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&other);
	region_close(&region);
}

UNIT_TEST(test_overflow)
{
	struct region region = make_with(1);

	assert_int_equal(region_charge(&region, 0, REGION_DATA, UINT64_MAX - 5, 0), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 6, 0), -EDQUOT);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, UINT64_MAX, UINT64_MAX), -EDQUOT);
	assert_int_equal(region_charge(&region, 0, REGION_MODULE, 5, 0), 0);
	assert_int_equal(region_charge(&region, 0, REGION_MODULE, 1, 0), -EDQUOT);
	assert_int_equal(region_used(&region, 0), UINT64_MAX);
	assert_int_equal(count_wrong(&region), 0);
	region_refund(&region, 0, REGION_DATA, UINT64_MAX);
	region_refund(&region, 0, REGION_MODULE, UINT64_MAX);
	assert_int_equal(region_used(&region, 0), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 10, 20), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, UINT64_MAX - 5, 20), -EDQUOT);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

UNIT_TEST(test_range)
{
	struct region region = make_with(1);
	uint64_t got = 12345;

	assert_int_equal(region_charge_range(&region, 0, REGION_DATA, 10, 60, 100, &got), 0);
	assert_int_equal(got, 60);
	assert_int_equal(region_charge_range(&region, 0, REGION_DATA, 10, 60, 100, &got), 0);
	assert_int_equal(got, 40);
	got = 12345;
	assert_int_equal(region_charge_range(&region, 0, REGION_DATA, 1, 60, 100, &got), -EDQUOT);
	assert_int_equal(region_charge_range(&region, 0, REGION_DATA, 2, 1, 100, &got), -EINVAL);
	assert_int_equal(got, 12345); /* untouched */
	assert_int_equal(region_charge_range(&region, 0, REGION_DATA, 0, 60, 100, &got), 0);
	assert_int_equal(got, 0);
	assert_int_equal(region_charge_range(&region, 0, REGION_DATA, 0, 60, 50, &got), 0);
	assert_int_equal(got, 0); /* over the limit already: no room, and no wrap-around */
	assert_int_equal(region_charge_range(&region, 0, REGION_DATA, 0, UINT64_MAX, 0, &got), 0);
	assert_int_equal(got, UINT64_MAX - 100);
	assert_int_equal(region_used(&region, 0), UINT64_MAX);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

/* What was measured, and is there, is charged without a limit. */
UNIT_TEST(test_without_limit)
{
	struct region region = make_with(1);

	assert_int_equal(region_charge(&region, 0, REGION_DATA, 100, 100), 0);
	assert_int_equal(region_charge(&region, 0, REGION_CONTEXT, 500, 0), 0);
	assert_usage(&region, 0, 500, 0, 100, 0);
	assert_int_equal(region_used(&region, 0), 600);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 1, 599), -EDQUOT);
	region_refund(&region, 0, REGION_CONTEXT, 500);
	assert_usage(&region, 0, 0, 0, 100, 0);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

/* The most that was held together, `offset` aside, since one began to look. */
UNIT_TEST(test_peak)
{
	struct region region = make_with(1);

	assert_int_equal(region_charge(&region, 0, REGION_DATA, 70, 0), 0);
	assert_int_equal(region_peak_begin(&region, 0), 0);
	assert_int_equal(region_peak(&region, 0), 70);
	assert_int_equal(region_charge(&region, 0, REGION_MODULE, 20, 0), 0);
	region_refund(&region, 0, REGION_DATA, 60);
	assert_int_equal(region_charge(&region, 0, REGION_OFFSET, 500, 0), 0);
	assert_int_equal(region_charge(&region, 0, REGION_CONTEXT, 30, 0), 0);
	assert_int_equal(region_peak(&region, 0), 90);
	assert_int_equal(region_peak_begin(&region, 0), 0);
	assert_int_equal(region_peak(&region, 0), 60);
	region_peak_end(&region, 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 100, 0), 0);
	assert_int_equal(region_peak(&region, 0), 0);
	assert_int_not_equal(region_peak_begin(&region, 1), 0);
	region_close(&region);
}

UNIT_TEST(test_devices_out_of_range)
{
	struct region region = make_with(2);

	assert_int_equal(region_charge(&region, 2, REGION_DATA, 1, 0), -EINVAL);
	assert_int_equal(region_charge(&region, 16, REGION_DATA, 1, 0), -EINVAL);
	assert_int_equal(region_charge(&region, UINT32_MAX, REGION_DATA, 1, 0), -EINVAL);
	assert_int_equal(region_charge(&region, 0, (enum region_class)4, 1, 0), -EINVAL);
	region_refund(&region, 16, REGION_DATA, 1);
	assert_int_equal(region_used(&region, 16), 0);
	assert_int_equal(region_own_usage(&region, 16).total, 0);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

/* What a dead process held is there for the next one that needs it. */
UNIT_TEST(test_the_dead_make_room)
{
	struct region region = make_with(1), dead = claimed();
	uint64_t got;

	assert_int_equal(region_charge(&dead, 0, REGION_DATA, 90, 100), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 11, 100), -EDQUOT);
	region_forget(&dead);
	assert_int_equal(region_used(&region, 0), 90);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 11, 100), 0);
	assert_int_equal(region_used(&region, 0), 11);

	claim(&dead);
	assert_int_equal(region_charge(&dead, 0, REGION_DATA, 89, 100), 0);
	region_forget(&dead);
	assert_int_equal(region_charge_range(&region, 0, REGION_DATA, 89, 200, 100, &got), 0);
	assert_int_equal(got, 89);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

/* -- what a reader without the lock may see ---------------------------------------------------- */

static struct region watched;
static unsigned steps_watched;

/* In the middle of whatever change: too high rather than too low. */
static void watch(enum region_step step)
{
	struct vgpu_hami_usage usage = region_own_usage(&watched, 0);

	(void)step;
	assert_true(usage.total >= usage.context + usage.module + usage.data + usage.offset);
	assert_true(region_used(&watched, 0) >= usage.total);
	steps_watched++;
}

UNIT_TEST(test_never_too_low)
{
	watched = make_with(1);
	region_step_hook = watch;
	for (enum region_class class = REGION_CONTEXT; class <= REGION_OFFSET; class ++) {
		assert_int_equal(region_charge(&watched, 0, class, 5, 0), 0);
		region_refund(&watched, 0, class, 2);
		assert_int_equal(region_charge(&watched, 0, class, 6, 0), 0);
		region_refund(&watched, 0, class, 8);
	}
	region_step_hook = NULL;
	assert_int_equal(region_used(&watched, 0), 4);
	assert_true(steps_watched > 50);
	region_close(&watched);
}

/* The lock is not to be had: a charge that must not fail is made by the next change that gets it,
 * and counts for that change. */
UNIT_TEST(test_late_charge)
{
	struct region region = make_with(1), holder = REGION_CLOSED;

	assert_int_equal(open_claimed(here.path, NULL, &holder), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 100, 200), 0);
	region_charge_held(&region, 0, REGION_DATA, 20);
	assert_usage(&region, 0, 0, 0, 120, 0);
	assert_int_equal(region_lock(&holder), 0);
	region_charge_held(&region, 0, REGION_OFFSET, 100); /* they go from data to offset */
	region_refund(&region, 0, REGION_DATA, 100);
	region_unlock(&holder);
	assert_true(region_is_late(&region));
	assert_usage(&region, 0, 0, 0, 120, 0);
	assert_int_equal(region_charge(&region, 0, REGION_MODULE, 81, 200), -EDQUOT);
	assert_false(region_is_late(&region));
	assert_usage(&region, 0, 0, 0, 20, 100);
	assert_int_equal(region_charge(&region, 0, REGION_MODULE, 80, 200), 0);
	region_charge_held(&region, 0, REGION_DATA, 50); /* whatever the limit */
	assert_int_equal(region_used(&region, 0), 250);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&holder);
	region_close(&region);
}

/* The lock is not to be had: the refund is made by the next change that gets it. */
UNIT_TEST(test_late_refund)
{
	struct region region = make_with(1), holder = REGION_CLOSED;

	assert_int_equal(open_claimed(here.path, NULL, &holder), 0);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 100, 200), 0);
	assert_int_equal(region_lock(&holder), 0);
	region_refund(&region, 0, REGION_DATA, 60);
	region_unlock(&holder);
	assert_true(region_is_late(&region));
	assert_int_equal(region_used(&region, 0), 100);
	assert_int_equal(region_charge(&region, 0, REGION_MODULE, 160, 200), 0);
	assert_false(region_is_late(&region));
	assert_usage(&region, 0, 0, 160, 40, 0);
	assert_int_equal(region_used(&region, 0), 200);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&holder);
	region_close(&region);
}
