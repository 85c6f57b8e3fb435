/* Pools: what is charged for them when, against a real region. */
#include "quota_pool_fixture.h"

static struct pool_reservation reservation;

/* -- which there are -------------------------------------------------------------------------- */

UNIT_TEST(test_known)
{
	uint64_t found[4];
	unsigned flags = 99;
	bool managed = true;
	int device = 99;

	attach(GIB);
	assert_false(quota_pool_is_known(POOL, &device, &flags));
	assert_int_equal(device, 99);
	assert_int_equal(flags, 99);
	assert_int_equal(quota_pool_open(POOL, 1, 0), 0);
	assert_int_equal(quota_pool_open(OTHER, 0, POOL_MANAGED | POOL_OF_DRIVER), 0);
	assert_true(quota_pool_is_known(POOL, &device, &flags));
	assert_int_equal(device, 1);
	assert_int_equal(flags, 0);
	assert_true(quota_pool_is_known(OTHER, &device, &flags));
	assert_int_equal(device, 0);
	assert_int_equal(flags, POOL_MANAGED | POOL_OF_DRIVER);
	quota_pool_ticket(POOL, &managed);
	assert_false(managed);
	quota_pool_ticket(OTHER, &managed);
	assert_true(managed);
	assert_int_equal(quota_pools(1, found, 4), 1);
	assert_int_equal(found[0], POOL);
	assert_int_equal(quota_pools(-1, found, 4), 2);
	assert_int_equal(quota_pools(-1, found, 1), 1);
	assert_int_equal(quota_pools(2, found, 4), 0);
	close_pool(POOL, true);
	assert_false(quota_pool_is_known(POOL, &device, &flags));
	assert_true(quota_pool_is_known(OTHER, &device, &flags));
	assert_int_equal(own_usage(0).total + own_usage(1).total, 0);
}

UNIT_TEST(test_unknown)
{
	struct pool_figure figure = {0, 10 * CHUNK};
	struct pool_closing closing;
	bool managed = true;

	attach(GIB);
	reservation = (struct pool_reservation){.device = 5, .worst_bytes = 5};
	assert_int_equal(quota_pool_reserve(POOL, 1, &reservation), -ENOENT);
	assert_int_equal(quota_pool_grow(POOL, 1, &figure, &reservation), -ENOENT);
	assert_int_equal(reservation.device, 5);
	assert_int_equal(reservation.worst_bytes, 5);
	assert_int_equal(quota_pool_ticket(POOL, &managed), 0);
	assert_false(managed);
	assert_false(quota_pool_correct(POOL, &figure));
	assert_false(quota_pool_close_begin(POOL, false, &closing));
	quota_pool_try(POOL, MIB);
	quota_pool_try(POOL, 0);
	assert_int_equal(own_usage(0).total, 0);
	assert_true(is_quiet());
}

/* The application's do not take the places of those that the driver has anyway. */
UNIT_TEST(test_many)
{
	uint64_t handle = POOL, found[QUOTA_POOLS_MAX + 1];
	unsigned count = 0;

	attach(GIB);
	while (quota_pool_open(handle + count, 0, 0) == 0)
		count++;
	assert_in_range(count, 1, QUOTA_POOLS_MAX - 4 * VGPU_DEVICES_MAX);
	assert_int_equal(quota_pool_open(handle + count, 0, 0), -ENOMEM);
	assert_int_equal(quota_pool_open(handle, 0, 0), 0); /* that one is known */
	for (; count < QUOTA_POOLS_MAX; count++)
		assert_int_equal(quota_pool_open(handle + count, 0, POOL_OF_DRIVER), 0);
	assert_int_equal(quota_pool_open(handle + count, 0, POOL_OF_DRIVER), -ENOMEM);
	assert_int_equal(quota_pools(0, found, QUOTA_POOLS_MAX + 1), QUOTA_POOLS_MAX);
	for (unsigned i = 0; i < QUOTA_POOLS_MAX; i++)
		close_pool(handle + i, true);
	assert_int_equal(quota_pools(-1, found, 1), 0);
}

/* -- what is charged when --------------------------------------------------------------------- */

/* How many chunks an allocation is charged, with those in advance: a sixteenth of the room at most,
 * and eight; and none for an allocation that needs several. */
static const struct {
	const char *name;
	uint64_t limit_bytes, size_bytes, chunks;
} charged[] = {
	{"a byte", NARROW, 1, 1},
	{"a chunk", NARROW, CHUNK, 1},
	{"a chunk and a byte", NARROW, CHUNK + 1, 2},
	{"five chunks less a byte", NARROW, 5 * CHUNK - 1, 5},
	{"eight chunks", NARROW, 8 * CHUNK, 8},
	{"eight in advance, without a limit", 0, 1, 9},
	{"eight in advance of a chunk", 64 * GIB, CHUNK, 9},
	{"none in advance of more", 64 * GIB, CHUNK + 1, 2},
	{"eight in advance, in 4 GiB", 4 * GIB, 1, 9},
	{"four in advance, in 2 GiB", 2 * GIB, 1, 5},
	{"two in advance, in 1 GiB", GIB, 1, 3},
	{"one in advance, in less", GIB - MIB, 1, 2},
	{"one in advance, in 512 MiB", 512 * MIB, 1, 2},
	{"none in advance, in less", 512 * MIB - 1, 1, 1},
	{"none in advance of four", GIB, 4 * CHUNK, 4},
};

UNIT_ROWS(charged)
{
	quota_slice.env.cores_pct[0] = 50; /* a slice, also without a limit */
	open_pool(row->limit_bytes);
	assert_int_equal(quota_pool_reserve(POOL, row->size_bytes, &reservation), -EAGAIN);
	assert_rests_at(0);
	assert_int_equal(grow(POOL, row->size_bytes, 0, &reservation), 0);
	assert_int_equal(reservation.device, 0);
	assert_int_equal(reservation.worst_bytes, (row->size_bytes + CHUNK - 1) / CHUNK * CHUNK);
	assert_int_equal(data(), row->chunks * CHUNK);
	assert_false(is_quiet()); /* until it is settled */
	settle(POOL, &reservation, CHUNK);
	assert_rests_at(CHUNK); /* the look takes what is in advance back */
	correct(POOL, 0);
	assert_rests_at(0);
}

/* Others of the slice leave less room. */
UNIT_TEST(test_ahead_beside_others)
{
	open_pool(2 * GIB);
	allocate(BASE, GIB);
	assert_int_equal(grow(POOL, 1, 0, &reservation), 0);
	assert_int_equal(data(), GIB + 3 * CHUNK);
	settle(POOL, &reservation, 0);
}

/* What is charged ahead does for the next ones, in which nobody is asked. */
UNIT_TEST(test_ahead_is_used)
{
	struct pool_reservation reservations[9], more;

	open_pool(64 * GIB);
	assert_int_equal(grow(POOL, 1, 0, &reservations[0]), 0);
	for (unsigned i = 1; i < 9; i++)
		assert_int_equal(quota_pool_reserve(POOL, 1 + i * MIB, &reservations[i]), 0);
	assert_int_equal(data(), 9 * CHUNK);
	assert_int_equal(quota_pool_reserve(POOL, 1, &more), -EAGAIN);
	for (unsigned i = 0; i < 9; i++)
		quota_pool_settle(POOL, &reservations[i], NULL);
	assert_int_equal(data(), 9 * CHUNK); /* it may all have been added */
	assert_int_equal(quota_pool_reserve(POOL, 1, &more), -EAGAIN);
	assert_true(is_quiet());
	assert_true(correct(POOL, 2 * CHUNK));
	assert_int_equal(data(), 2 * CHUNK);
	assert_false(correct(POOL, 2 * CHUNK));
	assert_int_equal(pool_spare_charge(0), 0);
}

/* A synchronisation while an allocation is under way leaves what that may add. */
UNIT_TEST(test_correct_under_way)
{
	open_pool(64 * GIB);
	assert_int_equal(grow(POOL, 1, 0, &reservation), 0);
	assert_true(correct(POOL, 0));
	assert_int_equal(data(), CHUNK);
	assert_int_equal(pool_spare_charge(0), CHUNK);
	settle(POOL, &reservation, CHUNK);
	assert_int_equal(data(), CHUNK);
	assert_int_equal(pool_spare_charge(0), 0);
	assert_true(correct(POOL, 0));
	assert_int_equal(data(), 0);
}

/* Free memory of the pool is no room: the order of streams decides whether it will do. */
UNIT_TEST(test_worst_beyond_reserved)
{
	open_pool(NARROW);
	allocate_from(POOL, 4 * CHUNK, 4 * CHUNK);
	assert_int_equal(quota_pool_reserve(POOL, 1, &reservation), -EAGAIN);
	assert_int_equal(grow(POOL, 1, 4 * CHUNK, &reservation), 0);
	assert_int_equal(data(), 5 * CHUNK);
	settle(POOL, &reservation, 4 * CHUNK);
	assert_int_equal(data(), 4 * CHUNK);
}

UNIT_TEST(test_apart)
{
	open_pool(NARROW);
	assert_int_equal(quota_pool_open(OTHER, 1, 0), 0);
	allocate_from(POOL, CHUNK, CHUNK);
	allocate_from(OTHER, 3 * CHUNK, 3 * CHUNK);
	assert_int_equal(own_usage(0).data, CHUNK);
	assert_int_equal(own_usage(1).data, 3 * CHUNK);
	correct(POOL, 0);
	assert_int_equal(own_usage(0).data, 0);
	assert_int_equal(own_usage(1).data, 3 * CHUNK);
	close_pool(OTHER, true);
	assert_int_equal(own_usage(1).total, 0);
}

/* -- refusals --------------------------------------------------------------------------------- */

UNIT_TEST(test_refused)
{
	static const uint64_t sizes[] = {
		2 * CHUNK + 1,          3 * CHUNK, GIB, ((uint64_t)1 << 60) + 1,
		UINT64_MAX - CHUNK + 2, UINT64_MAX};

	open_pool(3 * CHUNK);
	allocate_from(POOL, CHUNK, CHUNK);
	reservation.worst_bytes = 7;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		assert_int_equal(quota_pool_reserve(POOL, sizes[i], &reservation), -EAGAIN);
		assert_int_equal(grow(POOL, sizes[i], CHUNK, &reservation), -EDQUOT);
		assert_rests_at(CHUNK);
	}
	assert_int_equal(reservation.worst_bytes, 7);
	allocate_from(POOL, 2 * CHUNK, 3 * CHUNK);
	assert_int_equal(data(), 3 * CHUNK);
	assert_int_equal(grow(POOL, 1, 3 * CHUNK, &reservation), -EDQUOT);
	assert_int_equal(quota_used(0), 3 * CHUNK);
}

/* What is there is charged, whatever the limit, and nothing beside it. */
UNIT_TEST(test_more_than_charged)
{
	open_pool(3 * CHUNK);
	assert_true(correct(POOL, 5 * CHUNK));
	assert_int_equal(data(), 5 * CHUNK);
	assert_int_equal(grow(POOL, 1, 6 * CHUNK, &reservation), -EDQUOT);
	assert_rests_at(6 * CHUNK);
	assert_true(correct(POOL, 0));
	assert_int_equal(grow(POOL, CHUNK, 0, &reservation), 0);
	/* A figure that has in it what is under way is not charged for that once more. */
	assert_false(correct(POOL, CHUNK));
	assert_int_equal(data(), CHUNK);
	settle(POOL, &reservation, CHUNK);
	assert_int_equal(data(), CHUNK);
}

/* -- tickets ---------------------------------------------------------------------------------- */

UNIT_TEST(test_stale_figures)
{
	struct pool_figure low, high;

	open_pool(NARROW);
	low = figure_of(POOL, 0);
	high = figure_of(POOL, 7 * CHUNK);
	allocate_from(POOL, 2 * CHUNK, 2 * CHUNK);
	assert_true(quota_pool_correct(POOL, &low)); /* to be looked at again */
	assert_int_equal(data(), 2 * CHUNK);
	assert_true(quota_pool_correct(POOL, &high));
	assert_int_equal(data(), 2 * CHUNK);
	assert_false(correct(POOL, 2 * CHUNK));
	assert_int_equal(data(), 2 * CHUNK);
}

/* One that is being read while an allocation is settled does not have it. */
UNIT_TEST(test_settled_meanwhile)
{
	struct pool_figure before;

	open_pool(NARROW);
	assert_int_equal(grow(POOL, 1, 0, &reservation), 0);
	before = figure_of(POOL, 0);
	quota_pool_settle(POOL, &reservation, NULL);
	assert_true(quota_pool_correct(POOL, &before));
	assert_int_equal(data(), CHUNK);
	assert_int_equal(pool_spare_charge(0), CHUNK);
	assert_true(correct(POOL, 0));
	assert_int_equal(data(), 0);
}

/* Two are settled by the figures of both: the one that was read first is ignored. */
UNIT_TEST(test_two_settle)
{
	struct pool_reservation a, b;
	struct pool_figure figure_a, figure_b;

	open_pool(NARROW);
	assert_int_equal(grow(POOL, 1, 0, &a), 0);
	assert_int_equal(grow(POOL, CHUNK + 1, 0, &b), 0);
	assert_int_equal(data(), 3 * CHUNK);
	figure_a = figure_of(POOL, CHUNK); /* of before b's */
	figure_b = figure_of(POOL, 3 * CHUNK);
	quota_pool_settle(POOL, &b, &figure_b);
	quota_pool_settle(POOL, &a, &figure_a);
	assert_in_range(data(), 3 * CHUNK, 4 * CHUNK);
	assert_true(correct(POOL, 3 * CHUNK) || data() == 3 * CHUNK);
	assert_rests_at(3 * CHUNK);
}

/* -- trying ----------------------------------------------------------------------------------- */

UNIT_TEST(test_try)
{
	struct pool_figure before;

	open_pool(64 * GIB);
	assert_int_equal(grow(POOL, 1, 0, &reservation), 0);
	quota_pool_settle(POOL, &reservation, NULL); /* 8 are ahead */
	before = figure_of(POOL, 0);
	quota_pool_try(POOL, 6 * CHUNK - 1);
	assert_false(is_quiet());
	assert_int_equal(quota_pool_reserve(POOL, 2 * CHUNK + 1, &reservation), -EAGAIN);
	assert_true(correct(POOL, 0)); /* no figure is believed meanwhile */
	assert_int_equal(data(), 7 * CHUNK);
	assert_int_equal(quota_pool_reserve(POOL, 1, &reservation), -EAGAIN);
	assert_int_equal(grow(POOL, 2 * CHUNK, 0, &reservation), 0);
	assert_int_equal(data(), 9 * CHUNK);
	quota_pool_settle(POOL, &reservation, NULL);
	quota_pool_try(POOL, 0);
	assert_true(is_quiet());
	assert_true(quota_pool_correct(POOL, &before));
	assert_int_equal(data(), 3 * CHUNK); /* what was settled, unseen yet */
	assert_true(correct(POOL, CHUNK));
	assert_int_equal(data(), CHUNK);
}

/* A figure that is read from before a try has ended does not count after it. */
UNIT_TEST(test_try_ended_meanwhile)
{
	struct pool_figure during;

	open_pool(NARROW);
	allocate_from(POOL, 2 * CHUNK, 2 * CHUNK);
	quota_pool_try(POOL, CHUNK);
	during = figure_of(POOL, 0);
	quota_pool_try(POOL, 0);
	assert_true(quota_pool_correct(POOL, &during));
	assert_int_equal(data(), 2 * CHUNK);
}

/* -- managed ---------------------------------------------------------------------------------- */

UNIT_TEST(test_managed)
{
	attach(64 * GIB);
	assert_int_equal(quota_pool_open(POOL, 0, POOL_MANAGED), 0);
	assert_int_equal(grow(POOL, 1, 0, &reservation), 0);
	assert_int_equal(reservation.worst_bytes, MANAGED_CHUNK);
	assert_int_equal(data(), MANAGED_CHUNK);
	assert_int_equal(pool_managed_charge(0), MANAGED_CHUNK);
	assert_int_equal(pool_managed_charge(1), 0);
	assert_int_equal(account_managed_charge(0), MANAGED_CHUNK);
	assert_int_equal(pool_spare_charge(0), 0); /* NVML counts none of it */
	settle(POOL, &reservation, MANAGED_CHUNK);
	assert_false(correct(POOL, 0)); /* the driver keeps it */
	assert_int_equal(data(), MANAGED_CHUNK);
	assert_true(correct(POOL, 2 * MANAGED_CHUNK));
	assert_int_equal(data(), 2 * MANAGED_CHUNK);
	close_pool(POOL, true);
	assert_int_equal(own_usage(0).total, 0);
	assert_int_equal(pool_managed_charge(0), 0);
}

/* Nobody can tell when it goes. */
UNIT_TEST(test_managed_closed_in_use)
{
	attach(64 * GIB);
	assert_int_equal(quota_pool_open(POOL, 0, POOL_MANAGED), 0);
	allocate_from(POOL, 1, MANAGED_CHUNK);
	assert_int_equal(grow(POOL, 1, MANAGED_CHUNK, &reservation), 0);
	quota_pool_settle(POOL, &reservation, NULL);
	assert_int_equal(data(), 2 * MANAGED_CHUNK);
	correct(POOL, MANAGED_CHUNK);
	close_pool(POOL, false);
	assert_int_equal(data(), MANAGED_CHUNK);
	assert_int_equal(pool_managed_charge(0), MANAGED_CHUNK);
	assert_int_equal(own_usage(0).module, 0);
	assert_true(is_quiet());
}

/* -- closing ---------------------------------------------------------------------------------- */

UNIT_TEST(test_closed_empty)
{
	open_pool(64 * GIB);
	allocate_from(POOL, CHUNK, CHUNK);
	assert_int_equal(grow(POOL, 1, CHUNK, &reservation), 0);
	quota_pool_settle(POOL, &reservation, NULL);
	correct(POOL, 0);
	close_pool(POOL, true);
	assert_int_equal(own_usage(0).total, 0);
	assert_int_equal(pool_spare_charge(0), 0);
}

UNIT_TEST(test_closed_in_use)
{
	open_pool(NARROW);
	allocate_from(POOL, 3 * CHUNK, 2 * CHUNK);
	close_pool(POOL, false);
	assert_int_equal(own_usage(0).module, 2 * CHUNK);
	assert_rests_at(0);
}

/* While an allocation is in the driver, its pool is closed, and another pool may get the handle.
 * The allocation is then not charged: the comparison with NVML finds it. */
UNIT_TEST(test_closed_under_way)
{
	open_pool(64 * GIB);
	assert_int_equal(grow(POOL, 1, 0, &reservation), 0);
	close_pool(POOL, true);
	assert_int_equal(own_usage(0).module, CHUNK);
	assert_int_equal(data(), 0);
	assert_false(is_quiet());
	assert_int_equal(quota_pool_open(POOL, 0, 0), 0);
	settle(POOL, &reservation, 0);
	assert_int_equal(own_usage(0).total, CHUNK);
	assert_true(is_quiet());
}

/* The driver is asked to destroy the pool. Until it answers, the pool is charged as before. */
UNIT_TEST(test_kept)
{
	struct pool_closing closing;
	uint64_t found;

	open_pool(NARROW);
	assert_true(quota_pool_close_begin(POOL, true, &closing));
	assert_int_equal(quota_pools(-1, &found, 1), 0); /* nobody asks the driver about it */
	assert_false(is_quiet());
	allocate_from(POOL, CHUNK, CHUNK);
	assert_int_equal(data(), CHUNK);
	quota_pool_close_end(&closing, false);
	assert_int_equal(quota_pools(-1, &found, 1), 1);
	assert_rests_at(CHUNK);
}

/* The handle is another pool's before the record of its first is closed. */
static void assert_reopened(unsigned flags, bool is_empty, uint64_t module, uint64_t managed)
{
	struct pool_closing closing;

	assert_int_equal(quota_pool_open(POOL, 0, flags), 0);
	allocate_from(POOL, 1, MANAGED_CHUNK);
	assert_true(quota_pool_close_begin(POOL, is_empty, &closing));
	if (is_empty && !(flags & POOL_MANAGED))
		correct(POOL, 0);
	assert_int_equal(quota_pool_open(POOL, 0, 0), 0);
	assert_int_equal(own_usage(0).module, module);
	assert_int_equal(data(), managed);
	quota_pool_close_end(&closing, true);
	allocate_from(POOL, 1, CHUNK);
	assert_int_equal(data(), managed + CHUNK);
	close_pool(POOL, false);
	assert_int_equal(own_usage(0).module, module + CHUNK);
	assert_rests_at(managed);
}

UNIT_TEST(test_reopened)
{
	attach(GIB);
	assert_reopened(0, true, 0, 0);
	assert_reopened(POOL_MANAGED, true, CHUNK, 0);
	assert_reopened(0, false, CHUNK * 2 + MANAGED_CHUNK, 0);
	assert_reopened(POOL_MANAGED, false, 3 * CHUNK + MANAGED_CHUNK, MANAGED_CHUNK);
}
