/*
 * A process that begins to exit: monitors see an empty slot, the ledger counts what it had, and
 * everything works as before, until it is dead.
 */
#include "region_fixture.h"

#include <sys/syscall.h>

#include "region_internal.h"

#define LIMIT (100 * MIB)

static const struct vgpu_hami_slot *slot_of(const struct region *region)
{
	return &region->file->hami.slots[region->slot];
}

/* Nothing is in it but the words that are ours. */
static void assert_empty(const struct region *region)
{
	struct vgpu_hami_slot slot = *slot_of(region);
	static const struct vgpu_hami_slot empty;

	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		slot.used[device].exiting_data = slot.used[device].exiting_other = 0;
	assert_memory_equal(&slot, &empty, sizeof(slot));
}

static void start(struct region *ret_region)
{
	struct region_setup setup = setup_of(LIMIT);

	*ret_region = (struct region)REGION_CLOSED;
	assert_int_equal(open_claimed(here.path, &setup, ret_region), 0);
}

static void charge_all(struct region *region)
{
	for (unsigned class = 0; class < REGION_CLASSES; class ++)
		assert_int_equal(region_charge(region, 0, (enum region_class) class,
					       (class + 1) * MIB, LIMIT),
				 0);
	region->file->hami.slots[region->slot].device_util[0].sm = 29;
	region->file->hami.slots[region->slot].monitor_used[0] = 7;
}

UNIT_TEST(test_is_emptied)
{
	struct region region, other = REGION_CLOSED;
	struct vgpu_hami_usage own;

	start(&region);
	charge_all(&region);
	region_begin_exit(&region);
	assert_empty(&region);
	assert_int_equal(region_used(&region, 0), 10 * MIB);
	assert_int_equal(region_shown(&region, 0), 10 * MIB);
	own = region_own_usage(&region, 0);
	assert_int_equal(own.context, 1 * MIB);
	assert_int_equal(own.module, 2 * MIB);
	assert_int_equal(own.data, 3 * MIB);
	assert_int_equal(own.offset, 4 * MIB);
	assert_int_equal(own.total, 10 * MIB);
	assert_int_equal(count_wrong(&region), 0);

	/* Nobody gets its slot, or clears it. */
	assert_int_equal(open_claimed(here.path, NULL, &other), 0);
	assert_int_not_equal(other.slot, region.slot);
	assert_int_equal(region_reap(&other), 0);
	assert_int_equal(region_living(&other), 2);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, 91 * MIB, LIMIT), -EDQUOT);
	assert_int_equal(region_charge(&other, 0, REGION_DATA, 90 * MIB, LIMIT), 0);
	assert_int_equal(count_wrong(&other), 0);
	region_forget(&region); /* dead now, and zombie or not: the pid is ours */
	assert_int_equal(region_used(&other, 0), 100 * MIB);
	assert_int_equal(region_shown(&other, 0), 90 * MIB);
	assert_int_equal(region_reap(&other), 1);
	assert_int_equal(region_shown(&other, 0), 90 * MIB);
	assert_int_equal(region_used(&other, 0), 90 * MIB);
	assert_int_equal(count_wrong(&other), 0);
	region_close(&other);
}

UNIT_TEST(test_goes_on)
{
	struct vgpu_hami_usage own;
	struct region region;

	start(&region);
	charge_all(&region);
	region_begin_exit(&region);
	region_begin_exit(&region); /* nothing more */
	region_refund(&region, 0, REGION_DATA, 2 * MIB);
	region_refund(&region, 0, REGION_OFFSET, 99 * MIB);
	assert_int_equal(region_charge(&region, 0, REGION_CONTEXT, 5 * MIB, 0), 0);
	assert_int_equal(region_charge(&region, 0, REGION_MODULE, 3 * MIB, LIMIT), 0);
	own = region_own_usage(&region, 0);
	assert_int_equal(own.context, 6 * MIB);
	assert_int_equal(own.module, 5 * MIB);
	assert_int_equal(own.data, 1 * MIB);
	assert_int_equal(own.offset, 0);
	assert_int_equal(region_used(&region, 0), 12 * MIB);
	assert_int_equal(region_charge(&region, 0, REGION_DATA, 89 * MIB, LIMIT), -EDQUOT);
	assert_empty(&region);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

/* The slot's next process has nothing of it. */
UNIT_TEST(test_is_given_back)
{
	struct region region;

	start(&region);
	charge_all(&region);
	region_begin_exit(&region);
	region_close(&region);
	start(&region);
	assert_int_equal(region.slot, 0);
	assert_false(region.exiting);
	assert_int_equal(region_used(&region, 0), 0);
	assert_int_equal(slot_of(&region)->status, VGPU_SLOT_RUNNING);
	charge_all(&region);
	assert_int_equal(slot_of(&region)->used[0].total, 10 * MIB);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

static void begin_exit_of(void *arg)
{
	region_begin_exit(arg);
	CHECK(!((struct region *)arg)->exiting);
}

UNIT_TEST(test_of_the_claimer_alone)
{
	struct region region, view = REGION_CLOSED, none = REGION_CLOSED;
	struct fault fault;

	start(&region);
	charge_all(&region);
	/* As a child by vfork, that has all that the parent has. */
	assert_int_equal(reap_status(spawn(begin_exit_of, &region)), 0);
	assert_int_equal(region_view(here.path, &view, &fault), 0);
	region_begin_exit(&view);
	region_close(&view);
	region_begin_exit(&none);
	assert_int_equal(slot_of(&region)->status, VGPU_SLOT_RUNNING);
	assert_int_equal(slot_of(&region)->used[0].total, 10 * MIB);
	region_close(&region);
}

static long no_futex(long number)
{
	return number == SYS_futex ? -ETIMEDOUT : 0;
}

/* As in a handler of a signal that came while the lock was held: the exit goes on. */
UNIT_TEST(test_is_not_kept)
{
	struct region region;
	uint64_t began_ns;

	start(&region);
	charge_all(&region);
	assert_int_equal(region_lock(&region), 0);
	sys_fault = no_futex;
	began_ns = clock_now_ns();
	region_begin_exit(&region);
	sys_fault = NULL;
	assert_true(clock_now_ns() - began_ns < 10 * REGION_EXIT_PATIENCE_NS);
	region_unlock(&region);
	assert_int_equal(slot_of(&region)->status, VGPU_SLOT_RUNNING);
	assert_int_equal(count_wrong(&region), 0);
	region_close(&region);
}

/* What is paused stays so for the others. */
UNIT_TEST(test_paused)
{
	struct region region, other = REGION_CLOSED;

	start(&region);
	assert_int_equal(open_claimed(here.path, NULL, &other), 0);
	region_pause(&region, true, &(unsigned){0});
	region_begin_exit(&region);
	assert_int_equal(slot_of(&region)->status, VGPU_SLOT_FREE);
	region_pause(&other, false, &(unsigned){0});
	assert_int_equal(slot_of(&region)->status, VGPU_SLOT_FREE);
	assert_int_equal(slot_of(&other)->status, VGPU_SLOT_RUNNING);
	region_close(&other);
	region_close(&region);
}

/* A monitor's word of suspension that came too late is seen. */
UNIT_TEST(test_is_checked)
{
	struct region region;

	start(&region);
	charge_all(&region);
	region_begin_exit(&region);
	region.file->hami.slots[0].status = VGPU_SLOT_SUSPENDED;
	assert_int_equal(region_check(&region, NULL, NULL), 1);
	region.file->hami.slots[0].status = VGPU_SLOT_FREE;
	region.file->hami.slots[0].used[0].exiting_other += 1;
	assert_int_equal(region_check(&region, NULL, NULL), 1);
	region.file->hami.slots[0].used[0].exiting_other -= 1;
	assert_int_equal(region_check(&region, NULL, NULL), 0);
	region_close(&region);
}
