/* Shared by the tests of shared memory: several slots of one region, and actions on one key. */
#pragma once

#include "region_fixture.h"

#define SLOTS 3
#define KEY   77
#define UNIT  4096

/* Mappings of one region with a slot each. Each counts as another process to the others. */
static struct region regions[SLOTS];

UNUSED static void make_slots(void)
{
	struct region_setup setup = setup_from(0, 2, GIB);

	for (int i = 0; i < SLOTS; i++) {
		regions[i] = (struct region)REGION_CLOSED;
		assert_int_equal(open_claimed(here.path, &setup, &regions[i]), 0);
		assert_int_equal(regions[i].slot, i);
	}
}

UNUSED static struct region *any_open(void)
{
	for (int i = 0; i < SLOTS; i++)
		if (regions[i].slot >= 0)
			return &regions[i];
	return NULL;
}

/* The number of shares in that state. */
UNUSED static unsigned entries(enum vgpu_share_state share_state)
{
	const struct vgpu_region_own *own = &any_open()->file->own;
	unsigned count = 0;

	for (unsigned i = 0; i < VGPU_SHARES_MAX; i++)
		count += own->shares[i].state == share_state;
	return count;
}

UNUSED static void close_slots(void)
{
	for (int i = 0; i < SLOTS; i++)
		region_close(&regions[i]);
}

UNUSED static void act_export(struct region *region)
{
	assert_int_equal(region_charge(region, 1, REGION_DATA, UNIT, 0), 0);
	assert_int_equal(region_share_export(region, 1, KEY, UNIT), 0);
}

UNUSED static void act_withdraw(struct region *region, int result)
{
	assert_int_equal(region_share_withdraw(region, KEY, REGION_SHARE_AS_EXPORTED), result);
	if (result == 0)
		region_refund(region, 1, REGION_DATA, UNIT);
}

UNUSED static void act_import(struct region *region, int result)
{
	unsigned device = 55;
	uint64_t bytes = 66;

	assert_int_equal(region_share_import(region, KEY, &device, &bytes), result);
	assert_int_equal(device, result ? 1 : 55);
	assert_int_equal(bytes, result ? UNIT : 66);
}
