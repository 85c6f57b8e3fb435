/* The check sees each thing that can be wrong, and nothing in a region that is right. */
#include "assertion.h"
#include "region_fixture.h"
#include "region_internal.h"

/* Two devices, two processes: a has slot 0, b slot 1. */
static void make_pair(struct region *a, struct region *b)
{
	struct region_setup setup = setup_from(0, 2, GIB);

	*a = *b = (struct region)REGION_CLOSED;
	assert_int_equal(open_claimed(here.path, &setup, a), 0);
	assert_int_equal(open_claimed(here.path, &setup, b), 0);
	assert_int_equal(region_charge(a, 0, REGION_DATA, 10, 0), 0);
	assert_int_equal(region_charge(b, 0, REGION_MODULE, 20, 0), 0);
	assert_int_equal(region_charge(b, 1, REGION_DATA, 30, 0), 0);
	assert_int_equal(count_wrong(a), 0);
}

UNIT_TEST(test_header)
{
	struct region a, b;

	make_pair(&a, &b);
	ASSERT_SEEN(&a, 1, a.file->hami.magic, 1, "HAMi's magic");
	ASSERT_SEEN(&a, 1, a.file->own.magic, 1, "our magic");
	ASSERT_SEEN(&a, 1, a.file->hami.version_major, 2, "the layout is 2.2");
	ASSERT_SEEN(&a, 1, a.file->hami.version_minor, 1, "the layout is 1.1");
	ASSERT_SEEN(&a, 1, a.file->own.version, 9, "our version is 9");
	ASSERT_SEEN(&a, 1, a.file->own.size, 9, "its size is 9");
	ASSERT_SEEN(&a, 1, a.file->hami.slot_count, 1025, "1025 slots");
	ASSERT_SEEN(&a, 1, a.file->hami.slot_count, 1,
		    "slot 1 is used, and the high-water mark is 1");
	region_close(&b);
	region_close(&a);
}

UNIT_TEST(test_device_count)
{
	struct region a, b;

	make_pair(&a, &b);
	for (unsigned i = 2; i < VGPU_DEVICES_MAX; i++)
		snprintf(a.file->hami.uuids[i], VGPU_UUID_LEN, "GPU-%u", i);
	ASSERT_SEEN(&a, 1, a.file->hami.device_count, 17, "17 devices");
	ASSERT_SEEN(&a, 1, a.file->hami.device_count, UINT64_MAX, "18446744073709551615 devices");
	region_close(&b);
	region_close(&a);
}

UNIT_TEST(test_uuids)
{
	struct region a, b;

	make_pair(&a, &b);
	ASSERT_SEEN(&a, 1, a.file->hami.uuids[1][0], 0, "device 1: its uuid is none");
	ASSERT_SEEN(&a, 1, a.file->hami.uuids[1][1], 7, "device 1: its uuid is none");
	ASSERT_SEEN(&a, 1, a.file->hami.uuids[1][95], 'x', "device 1: its uuid is none");
	ASSERT_SEEN(&a, 1, a.file->hami.uuids[1][4], '0', "devices 0 and 1 are the same");
	region_close(&b);
	region_close(&a);
}

UNIT_TEST(test_sums)
{
	struct region a, b;

	make_pair(&a, &b);
	ASSERT_SEEN(&a, 1, b.file->hami.slots[1].used[0].module, 21,
		    "slot 1, device 0: its total is 20");
	ASSERT_SEEN(&a, 1, b.file->own.device[1].used, 31,
		    "device 1: its total is 31, its slots are 30");
	ASSERT_SEEN(&a, 1, b.file->own.device[9].used, 1,
		    "device 9: its total is 1, its slots are 0");
	ASSERT_SEEN(&a, 1, b.file->hami.slots[1].status, 3, "status 3");
	region_close(&b);
	region_close(&a);
}

UNIT_TEST(test_the_dead)
{
	struct region a, b;

	make_pair(&a, &b);
	region_forget(&b);
	assert_int_equal(count_wrong(&a), 0); /* it may count until it is in the way */
	assert_int_equal(region_reap(&a), 1);
	assert_int_equal(count_wrong(&a), 0);
	region_close(&a);
}

/* To inspect is to see what the dead left, counts that are out of bounds too, and to leave it. */
UNIT_TEST(test_inspected)
{
	struct region a, b, seen = REGION_CLOSED;
	struct fault fault = {""};
	char *before = malloc(sizeof(*a.file));

	make_pair(&a, &b);
	a.file->own.lock = 7; /* slot 6: nobody */
	a.file->hami.slot_count = 1025;
	region_forget(&b);
	region_forget(&a);
	assert_int_equal(region_view(here.path, &seen, &fault), -EINVAL);
	assert_int_equal(region_inspect(here.path, &seen, &fault), 0);
	assert_false(seen.writable);
	memcpy(before, seen.file, sizeof(*seen.file));
	checked_lines[0] = '\0';
	assert_int_equal(region_check(&seen, keep_line, NULL), 2);
	assert_non_null(strstr(checked_lines, "a dead process, of slot 6, holds the lock\n"));
	assert_non_null(strstr(checked_lines, "1025 slots: 1024 is the most\n"));
	assert_memory_equal(before, seen.file, sizeof(*seen.file));
	assert_int_equal(region_reap(&seen), -EROFS);
	region_close(&seen);
	free(before);
}

/* -- the assertion at each release of the lock ------------------------------------------------ */

/* A child: a holder of the lock that changes a total and nothing else. */
static void spoil_total(void *arg)
{
	struct region *region = arg;

	close(STDERR_FILENO);
	CHECK(region_lock(region) == 0);
	region->file->own.device[0].used++;
	region_unlock(region);
}

UNIT_TEST(test_holder_is_found_out)
{
	struct region a, b;
	int status;

	make_pair(&a, &b);
	status = reap_status(spawn(spoil_total, &a));
	if (ASSERTION_LEVEL >= 3)
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	else
		assert_int_equal(status, 0);
	a.file->own.lock = 0; /* the child's, which had our open file */
	assert_wrong(&b, 1, "device 0: its total is 31, its slots are 30");
	region_close(&b);
	region_close(&a);
}

UNIT_TEST(test_holder_is_not_blamed_for_what_was)
{
	struct region a, b;

	make_pair(&a, &b);
	a.file->own.device[0].used++;
	assert_int_equal(reap_status(spawn(spoil_total, &a)), 0);
	assert_wrong(&b, 1, "device 0: its total is 32, its slots are 30");
	region_close(&b);
	region_close(&a);
}
