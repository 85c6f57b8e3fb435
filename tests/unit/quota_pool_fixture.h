/* Shared by the tests of pools: the calls of an allocation, with figures that no driver has
 * given. */
#pragma once

#include "pool.h"
#include "quota_fixture.h"

#define POOL          ((uint64_t)0x1000)
#define OTHER         ((uint64_t)0x2000)
#define CHUNK         (32 * MIB)
#define NARROW        (256 * MIB) /* a limit with too little room to reserve chunks in advance */
#define MANAGED_CHUNK (128 * MIB)

UNUSED static void open_pool(uint64_t limit_bytes)
{
	attach(limit_bytes);
	assert_int_equal(quota_pool_open(POOL, 0, 0), 0);
}

/* Destroys the pool, and the driver succeeds. */
UNUSED static void close_pool(uint64_t pool, bool is_empty)
{
	struct pool_closing closing;

	assert_true(quota_pool_close_begin(pool, is_empty, &closing));
	quota_pool_close_end(&closing, true);
}

UNUSED static struct pool_figure figure_of(uint64_t pool, uint64_t reserved_bytes)
{
	bool managed;

	return (struct pool_figure){quota_pool_ticket(pool, &managed), reserved_bytes};
}

UNUSED static int grow(uint64_t pool, uint64_t size_bytes, uint64_t reserved_bytes,
		       struct pool_reservation *ret_reservation)
{
	struct pool_figure figure = figure_of(pool, reserved_bytes);

	return quota_pool_grow(pool, size_bytes, &figure, ret_reservation);
}

UNUSED static bool correct(uint64_t pool, uint64_t reserved_bytes)
{
	struct pool_figure figure = figure_of(pool, reserved_bytes);

	return quota_pool_correct(pool, &figure);
}

UNUSED static void settle(uint64_t pool, const struct pool_reservation *reservation,
			  uint64_t reserved_bytes)
{
	struct pool_figure figure = figure_of(pool, reserved_bytes);

	quota_pool_settle(pool, reservation, &figure);
}

/* Makes all calls of an allocation that makes the pool grow to reserved_bytes. */
UNUSED static void allocate_from(uint64_t pool, uint64_t size_bytes, uint64_t reserved_bytes)
{
	struct pool_reservation reservation;

	if (quota_pool_reserve(pool, size_bytes, &reservation) == -EAGAIN)
		assert_int_equal(grow(pool, size_bytes, 0, &reservation), 0);
	settle(pool, &reservation, reserved_bytes);
}
