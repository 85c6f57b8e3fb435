/* For tests in which another living process of the slice holds the region's lock: here, a
 * second mapping of the region in this process. Also for tests of a region whose file was
 * deleted. */
#pragma once

#include "clock.h"
#include "quota_fixture.h"
#include "region_internal.h"
#include "sys.h"

static struct region holder = REGION_CLOSED;

UNUSED static void lock_elsewhere(void)
{
	assert_int_equal(region_open(quota_slice.region_path, NULL, &holder, NULL), 0);
	assert_int_equal(region_claim(&holder, NULL), 0);
	assert_int_equal(region_lock(&holder), 0);
}

UNUSED static void unlock_elsewhere(void)
{
	region_unlock(&holder);
	region_close(&holder);
}

/* Waits until a thread of this process sleeps for the region's lock. That thread holds the
 * locks of quota/ that come first. */
UNUSED static void await_waiter(void)
{
	const uint32_t *word = &holder.file->own.lock;

	for (unsigned i = 0; i < 5000; i++) {
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) & VGPU_LOCK_WAITERS)
			return;
		sys_sleep_ns(NS_PER_MS);
	}
	fail_msg("nobody waits for the region's lock");
}

/* Deletes the region's file, and waits until the next look at the file is due, by the coarse
 * clock. */
UNUSED static void delete_region(void)
{
	assert_int_equal(unlink(quota_slice.region_path), 0);
	sys_sleep_ns(REGION_WATCH_NS + 20 * NS_PER_MS);
}

UNUSED static void assert_why_lost(void)
{
	struct fault fault = {""};

	quota_why_lost(&fault);
	assert_non_null(strstr(fault.text, quota_slice.region_path));
}
