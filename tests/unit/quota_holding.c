/* Holdings, against a real region: what is charged, refused, and known in a child. */
#include "blocks.h"
#include "compare.h"
#include "context.h"
#include "quota_held_lock.h"
#include "quota_holding_fixture.h"

/* -- charging --------------------------------------------------------------------------------- */

UNIT_TEST(test_kinds)
{
	uint64_t bytes = 0;
	int device = -1;

	for (unsigned kind = 0; kind < HOLDING_KINDS; kind++) /* each has handles of its own */
		hold_on(kind, 0, CONTEXT, (kind + 1) * 4 * MIB - 1, HANDLE);
	hold_on(HOLDING_PHYSICAL, 1, 0, 1, OTHER);
	assert_int_equal(own_usage(0).data, 12 * MIB);
	assert_int_equal(own_usage(0).offset, 12 * MIB);
	assert_int_equal(own_usage(0).total, 24 * MIB);
	assert_int_equal(own_usage(1).total, 2 * MIB);
	assert_true(quota_holding_charge(HOLDING_ARRAY, HANDLE, &device, &bytes));
	assert_int_equal(device, 0);
	assert_int_equal(bytes, 8 * MIB);
	assert_true(quota_holding_charge(HOLDING_PHYSICAL, OTHER, &device, &bytes));
	assert_int_equal(device, 1);
	assert_false(is_known(HOLDING_ARRAY, OTHER));
	assert_true(let_go_of(HOLDING_ARRAY, HANDLE));
	assert_int_equal(own_usage(0).data, 4 * MIB);
	assert_true(let_go_of(HOLDING_IMPORT, HANDLE));
	assert_int_equal(own_usage(0).offset, 0);
	assert_true(is_known(HOLDING_PHYSICAL, HANDLE));
	assert_true(let_go(HANDLE) && let_go(OTHER));
	assert_int_equal(own_usage(0).total + own_usage(1).total, 0);
	assert_true(is_quiet());
}

UNIT_TEST(test_cancel)
{
	struct holding_reservation reservation;

	for (unsigned kind = 0; kind < HOLDING_KINDS; kind++)
		for (uint64_t size = UNIT; size < 64 * MIB; size *= 2) {
			assert_int_equal(
				quota_holding_reserve(kind, 0, CONTEXT, size, &reservation), 0);
			assert_int_equal(own_usage(0).total, granules_of(size));
			assert_false(is_quiet());
			quota_holding_cancel(&reservation);
			assert_int_equal(own_usage(0).total, 0);
			assert_true(is_quiet());
		}
}

UNIT_TEST(test_refused)
{
	static const uint64_t sizes[] = {1, 2 * MIB, GIB, ((uint64_t)1 << 60) + 1, UINT64_MAX};
	struct holding_reservation reservation = {.device = 99};

	attach_anew(10 * MIB);
	hold(9 * MIB, HANDLE);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (unsigned kind = 0; kind < HOLDING_KINDS; kind++) {
			assert_int_equal(
				quota_holding_reserve(kind, 0, CONTEXT, sizes[i], &reservation),
				-EDQUOT);
			assert_int_equal(own_usage(0).total, 10 * MIB);
			assert_true(is_quiet());
		}
	assert_int_equal(reservation.device, 99);
	assert_int_equal(holdings_doubt(0), 0);
	let_go(HANDLE);
	hold_array(1, HANDLE); /* the refused left nothing behind */
	assert_int_equal(data(), 2 * MIB);
}

/* The driver will refuse it, or take nothing. */
UNIT_TEST(test_nothing)
{
	for (unsigned kind = 0; kind < HOLDING_KINDS; kind++) {
		hold_on(kind, 0, CONTEXT, 0, HANDLE);
		assert_int_equal(own_usage(0).total, 0);
		assert_true(let_go_of(kind, HANDLE));
	}
	assert_int_equal(own_usage(0).total, 0);
}

/* The driver gives a handle again whose end went past us. */
UNIT_TEST(test_held_again_by_another)
{
	hold(6 * MIB, HANDLE);
	assert_int_equal(hold_again(HOLDING_PHYSICAL, HANDLE), 0);
	hold_on(HOLDING_PHYSICAL, 1, 0, 4 * MIB, HANDLE);
	assert_int_equal(own_usage(0).total, 0);
	assert_int_equal(own_usage(1).data, 4 * MIB);
	assert_true(let_go(HANDLE)); /* with one reference */
	assert_int_equal(own_usage(1).total, 0);
	hold_array(UNIT, HANDLE);
	hold_array(8 * MIB, HANDLE);
	assert_int_equal(data(), 8 * MIB);
	hold_array(UNIT, HANDLE);
	assert_int_equal(data(), 2 * MIB);
}

UNIT_TEST(test_no_memory)
{
	struct holding_reservation reservation;

	assert_int_equal(quota_holding_reserve(HOLDING_ARRAY, 0, CONTEXT, UNIT, &reservation), 0);
	sys_fault = fail_mmap;
	assert_int_equal(quota_holding_add(&reservation, HANDLE), -ENOMEM);
	assert_int_equal(data(), 2 * MIB); /* the reservation stands */
	assert_false(is_quiet());
	quota_holding_cancel(&reservation);
	map(BASE, 2 * MIB, HANDLE);
	sys_fault = NULL;
	assert_rests_at(0);
	assert_false(is_known(HOLDING_ARRAY, HANDLE));
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 0);
}

/* -- contexts --------------------------------------------------------------------------------- */

UNIT_TEST(test_context_ends)
{
	struct holding_release going;

	attach_anew(4 * GIB);
	make_context(CONTEXT);
	hold(6 * MIB, HANDLE); /* of the process */
	hold_again(HOLDING_PHYSICAL, HANDLE);
	for (unsigned i = 0; i < 50; i++)
		hold_array((i + 1) * UNIT, HANDLE + i);
	hold_on(HOLDING_IMPORT, 0, CONTEXT, 10 * MIB, HANDLE);
	hold_again(HOLDING_IMPORT, HANDLE);
	hold_on(HOLDING_ARRAY, 0, CONTEXT + 1, UNIT, OTHER);
	hold_on(HOLDING_IMPORT, 0, CONTEXT + 1, 2 * MIB, OTHER);
	assert_true(own_usage(0).total > 100 * MIB);
	quota_ending_begin();
	quota_context_end(CONTEXT);
	quota_ending_end();
	assert_int_equal(own_usage(0).data, 8 * MIB);
	assert_int_equal(own_usage(0).offset, 2 * MIB);
	assert_int_equal(own_usage(0).total, 10 * MIB);
	assert_false(quota_holding_unref_begin(HOLDING_ARRAY, HANDLE, &going));
	assert_false(quota_holding_unref_begin(HOLDING_IMPORT, HANDLE, &going));
	assert_true(let_go_of(HOLDING_ARRAY, OTHER));
	assert_true(let_go_of(HOLDING_IMPORT, OTHER));
	assert_false(let_go(HANDLE));
	assert_true(let_go(HANDLE));
	assert_int_equal(own_usage(0).total, 0);
	assert_true(is_quiet());
}

/* -- the region ------------------------------------------------------------------------------- */

static void *reserve_in_thread(void *arg)
{
	struct holding_reservation reservation;

	(void)arg;
	return (void *)(intptr_t)quota_holding_reserve(HOLDING_ARRAY, 0, CONTEXT, UNIT,
						       &reservation);
}

static int knows_something(void)
{
	return is_known(HOLDING_PHYSICAL, HANDLE) || is_known(HOLDING_ARRAY, OTHER) ||
	       quota_mappings(BASE, BASE + GIB) || holdings_doubt(0) || !is_quiet();
}

/* What waits for the region's lock in vain is refused, and what goes back meanwhile goes back with
 * the next change. */
UNIT_TEST(test_lock_held)
{
	pthread_t thread;
	void *result = NULL;

	hold(6 * MIB, HANDLE);
	lock_elsewhere();
	assert_int_equal(pthread_create(&thread, NULL, reserve_in_thread, NULL), 0);
	await_waiter();
	assert_in_child(knows_something); /* a thread has the lock of holding.c */
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, -ETIMEDOUT);
	assert_true(is_quiet());
	assert_int_equal(data(), 6 * MIB);
	assert_true(let_go(HANDLE));
	assert_int_equal(data(), 6 * MIB);
	unlock_elsewhere();
	/* What is late is charged, and not held. */
	assert_int_equal(quota_reconcile_ticket(0).stamp, QUOTA_NO_STAMP);
	hold_array(UNIT, HANDLE);
	assert_int_equal(data(), 2 * MIB);
	assert_int_not_equal(quota_reconcile_ticket(0).stamp, QUOTA_NO_STAMP);
}

UNIT_TEST(test_lost)
{
	struct holding_reservation reservation;

	hold(6 * MIB, HANDLE);
	hold_array(UNIT, OTHER);
	assert_int_equal(quota_holding_reserve(HOLDING_ARRAY, 0, CONTEXT, UNIT, &reservation), 0);
	delete_region();
	quota_holding_cancel(&reservation);
	assert_int_equal(quota_holding_reserve(HOLDING_PHYSICAL, 0, 0, 1, &reservation), -ESTALE);
	assert_int_equal(quota_holding_reserve(HOLDING_ARRAY, 0, CONTEXT + 1, 1, &reservation),
			 -ESTALE);
	assert_why_lost();
	assert_true(let_go(HANDLE));
	assert_true(let_go_of(HOLDING_ARRAY, OTHER));
	assert_true(is_quiet());
}

static int live_as_child(void)
{
	struct quota_gpu gpu = {"GPU-a", 0};
	struct holding_reservation reservation;

	if (knows_something())
		return 1;
	if (quota_attach(&quota_slice, &gpu, 1, NULL) != 0 || data() != 0)
		return 2;
	if (quota_holding_reserve(HOLDING_ARRAY, 0, CONTEXT, UNIT, &reservation) != 0)
		return 3; /* in none of the parent's granules */
	return data() == 2 * MIB && quota_holding_add(&reservation, OTHER) == 0 ? 0 : 4;
}

UNIT_TEST(test_forked)
{
	hold(6 * MIB, HANDLE);
	map(BASE, 6 * MIB, HANDLE);
	hold_array(UNIT, OTHER);
	hold_array(MIB, OTHER + 1);
	assert_in_child(live_as_child);
	quota_reap();
	assert_int_equal(quota_used(0), data());
	assert_false(let_go(HANDLE));
	assert_int_equal(unmap(BASE, BASE + GIB), 1);
	assert_true(let_go_of(HOLDING_ARRAY, OTHER));
	assert_true(let_go_of(HOLDING_ARRAY, OTHER + 1));
	assert_int_equal(data(), 0);
}

/* -- threads ---------------------------------------------------------------------------------- */

#define LIMIT (24 * MIB)

static bool hold_some(enum holding_kind kind, uint64_t size_bytes, uint64_t handle, bool cancel)
{
	struct holding_reservation reservation;

	if (quota_holding_reserve(kind, 0, CONTEXT, size_bytes, &reservation) != 0)
		return false;
	if (!cancel && quota_holding_add(&reservation, handle) == 0)
		return true;
	quota_holding_cancel(&reservation);
	return false;
}

/* Each has handles of its own; one is shared, and held throughout. */
static void *work(void *arg)
{
	uint64_t base = HANDLE + ((uintptr_t)arg + 1) * 0x10000;
	uint64_t address = BASE + (uintptr_t)arg * GIB;
	unsigned seed = (unsigned)(uintptr_t)arg + 1;
	bool held[16] = {false};

	for (unsigned step = 0; step < 20000; step++) {
		unsigned i = (unsigned)rand_r(&seed) % 16;
		enum holding_kind kind = i % HOLDING_KINDS;
		uint64_t size = 1 + (uint64_t)rand_r(&seed) % (i % 2 ? 6 * MIB : MIB);
		struct holding_release going;

		if (quota_used(0) > LIMIT)
			return (void *)1;
		if (map_over(address, 2 * MIB, HANDLE, &going))
			return (void *)5;
		if (!held[i]) {
			held[i] = hold_some(kind, size, base + i, step % 7 == 0);
		} else {
			if (!quota_holding_unref_begin(kind, base + i, &going) || !going.last)
				return (void *)2;
			held[i] = step % 5 == 0;
			(held[i] ? quota_holding_unref_undo : quota_holding_unref_commit)(&going);
		}
		if (unmap(address, address + 2 * MIB) != 1)
			return (void *)3;
	}
	for (unsigned i = 0; i < 16; i++)
		if (held[i] && !let_go_of(i % HOLDING_KINDS, base + i))
			return (void *)4;
	return NULL;
}

UNIT_TEST(test_threads)
{
	attach_anew(LIMIT);
	hold(2 * MIB, HANDLE);
	assert_in_threads(work);
	assert_int_equal(own_usage(0).total, 2 * MIB);
	assert_true(let_go(HANDLE));
	assert_int_equal(quota_used(0), 0);
	assert_true(is_quiet());
}
