/*
 * What must be so after a death, whoever looks first: the next process of the slice, or an
 * onlooker.
 */
#pragma once

#include <sys/syscall.h>

#include "region_fixture.h"

#define AFTERMATH_LIMIT (100 * MIB)

/* Naps in wait for somebody, in the region's lock or before it: each is some milliseconds long, and
 * whoever waits in vain takes hundreds. (How long it all takes is the machine's affair: somebody
 * who reads /proc/locks can keep everyone who locks a byte waiting for seconds.) */
#define NAPS_MOST 100

static unsigned naps;

UNUSED static long count_nap(long number)
{
	naps += number == SYS_futex || number == SYS_nanosleep;
	return 0;
}

/* Nobody lives in it. Somebody opens it at once, and has all of it for himself. */
UNUSED static void assert_whole_for_the_next(const char *path, const char *after)
{
	struct region_setup setup = setup_of(AFTERMATH_LIMIT);
	struct region region = REGION_CLOSED;
	struct stat st;

	naps = 0;
	sys_fault = count_nap;
	if (open_claimed(path, &setup, &region) != 0)
		fail_msg("killed %s: cannot be opened", after);
	if (region_charge(&region, 0, REGION_DATA, AFTERMATH_LIMIT, AFTERMATH_LIMIT) != 0)
		fail_msg("killed %s: quota is lost", after);
	sys_fault = NULL;
	if (naps > NAPS_MOST)
		fail_msg("killed %s: blocked", after);
	if (stat(path, &st) != 0 || (st.st_mode & 07777) != 0666)
		fail_msg("killed %s: mode %o", after, st.st_mode);
	region_reap(&region);
	if (count_wrong(&region) != 0)
		fail_msg("killed %s: not whole", after);
	assert_int_equal(region_used(&region, 0), AFTERMATH_LIMIT);
	assert_int_equal(region_living(&region), 1);
	region_close(&region);
}

/* Nobody lives in it. An onlooker alone makes it whole, too: no setup, so no reset helps. Where it
 * may be unmade, that is said, and it is not taken for somebody else's. */
UNUSED static void assert_whole_for_an_onlooker(const char *path, bool may_be_unmade,
						const char *after)
{
	struct region view = REGION_CLOSED;
	struct fault fault = {""};
	int error = region_view(path, &view, &fault);

	if (error) {
		if (!may_be_unmade || (error != -ENOENT && !strstr(fault.text, "it is empty")))
			fail_msg("killed %s: %s", after, fault.text);
		return;
	}
	assert_true(region_reap(&view) >= 0);
	region_check(&view, NULL, NULL); /* takes over what a dead holder left */
	if (count_wrong(&view) != 0 || region_living(&view) != 0)
		fail_msg("killed %s: an onlooker finds it not whole", after);
	for (unsigned device = 0; device < VGPU_DEVICES_MAX; device++)
		assert_int_equal(region_used(&view, device), 0);
	region_close(&view);
}
