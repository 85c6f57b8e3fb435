/* Shared by the tests of holdings: functions that make all calls for taking and releasing
 * one. */
#pragma once

#include "holding.h"
#include "mapping.h"
#include "quota_fixture.h"

#define HANDLE  ((uint64_t)0x1000)
#define OTHER   ((uint64_t)0x2000)
#define CONTEXT ((uint64_t)0x77)
#define UNIT    (64 * KIB)

UNUSED static bool is_known(enum holding_kind kind, uint64_t handle)
{
	uint64_t bytes;
	int device;

	return quota_holding_charge(kind, handle, &device, &bytes);
}

UNUSED static void hold_on(enum holding_kind kind, int device, uint64_t context,
			   uint64_t size_bytes, uint64_t handle)
{
	struct holding_reservation reservation;

	assert_int_equal(quota_holding_reserve(kind, device, context, size_bytes, &reservation), 0);
	assert_int_equal(quota_holding_add(&reservation, handle), 0);
}

UNUSED static void hold(uint64_t size_bytes, uint64_t handle)
{
	hold_on(HOLDING_PHYSICAL, 0, 0, size_bytes, handle);
}

UNUSED static void hold_array(uint64_t size_bytes, uint64_t handle)
{
	hold_on(HOLDING_ARRAY, 0, CONTEXT, size_bytes, handle);
}

/* Releases a reference. Returns whether it was the last one. */
UNUSED static bool let_go_of(enum holding_kind kind, uint64_t handle)
{
	struct holding_release going;

	assert_true(quota_holding_unref_begin(kind, handle, &going));
	quota_holding_unref_commit(&going);
	return going.last;
}

UNUSED static bool let_go(uint64_t handle)
{
	return let_go_of(HOLDING_PHYSICAL, handle);
}

/* One more reference. Returns its device, or -1: the handle is not known. */
UNUSED static int hold_again(enum holding_kind kind, uint64_t handle)
{
	struct holding_reference reference;

	if (!quota_reference_begin(kind, handle, &reference))
		return -1;
	quota_reference_keep(&reference);
	return reference.device;
}

/* The memory is mapped there, if its handle is known. */
UNUSED static bool map_over(uint64_t address, uint64_t size_bytes, uint64_t handle,
			    struct holding_release *ret_before)
{
	struct holding_reference reference;

	quota_reference_begin(HOLDING_PHYSICAL, handle, &reference);
	return quota_mapped(address, size_bytes, &reference, ret_before);
}

/* Nothing is mapped there yet. */
UNUSED static void map(uint64_t address, uint64_t size_bytes, uint64_t handle)
{
	struct holding_release before;

	assert_false(map_over(address, size_bytes, handle, &before));
}

/* Unmaps all that is known in the range. Returns how many mappings that were. */
UNUSED static unsigned unmap(uint64_t address, uint64_t end)
{
	struct holding_release going;
	unsigned count = 0;

	for (; quota_unmapping(address, end, &going, 1); count++)
		quota_holding_unref_commit(&going);
	return count;
}

#undef UNIT_SET_UP
#define UNIT_SET_UP attached_make
