/* Holdings, their references and mappings, against a real region. */
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "quota_held_lock.h"
#include "quota_holding_fixture.h"

/* Nothing is mapped there yet. */
static void note_mapping(uint64_t address, uint64_t size_bytes, uint64_t handle)
{
	struct holding_release before;

	assert_false(quota_mapped(address, size_bytes, handle, &before));
}

static void map(uint64_t address, uint64_t size_bytes, uint64_t handle)
{
	assert_true(quota_hold_again(HOLDING_PHYSICAL, handle) >= 0);
	note_mapping(address, size_bytes, handle);
}

/* Unmaps all that is known in the range; how many mappings that were. */
static unsigned unmap(uint64_t address, uint64_t end)
{
	struct holding_release going;
	unsigned count = 0;

	for (; quota_unmapping(address, end, &going, 1); count++)
		quota_let_go_commit(&going);
	return count;
}

/* -- charging --------------------------------------------------------------------------------- */

UNIT_TEST(test_kinds)
{
	uint64_t bytes = 0;
	int device = -1;

	attach(GIB);
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
	assert_false(quota_holds(HOLDING_ARRAY, OTHER));
	assert_true(let_go_of(HOLDING_ARRAY, HANDLE));
	assert_int_equal(own_usage(0).data, 4 * MIB);
	assert_true(let_go_of(HOLDING_IMPORT, HANDLE));
	assert_int_equal(own_usage(0).offset, 0);
	assert_true(quota_holds(HOLDING_PHYSICAL, HANDLE));
	assert_true(let_go(HANDLE) && let_go(OTHER));
	assert_int_equal(own_usage(0).total + own_usage(1).total, 0);
	assert_true(is_quiet());
}

UNIT_TEST(test_cancel)
{
	struct holding_reservation reservation;

	attach(GIB);
	for (unsigned kind = 0; kind < HOLDING_KINDS; kind++)
		for (uint64_t size = UNIT; size < 64 * MIB; size *= 2) {
			assert_int_equal(quota_hold_reserve(kind, 0, CONTEXT, size, &reservation),
					 0);
			assert_int_equal(own_usage(0).total, granules_of(size));
			assert_false(is_quiet());
			quota_hold_cancel(&reservation);
			assert_int_equal(own_usage(0).total, 0);
			assert_true(is_quiet());
		}
}

UNIT_TEST(test_refused)
{
	static const uint64_t sizes[] = {1, 2 * MIB, GIB, ((uint64_t)1 << 60) + 1, UINT64_MAX};
	struct holding_reservation reservation = {.device = 99};

	attach(10 * MIB);
	hold(9 * MIB, HANDLE);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (unsigned kind = 0; kind < HOLDING_KINDS; kind++) {
			assert_int_equal(
				quota_hold_reserve(kind, 0, CONTEXT, sizes[i], &reservation),
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
	attach(GIB);
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
	attach(GIB);
	hold(6 * MIB, HANDLE);
	assert_int_equal(quota_hold_again(HOLDING_PHYSICAL, HANDLE), 0);
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

static long no_memory(long number)
{
	return number == SYS_mmap ? -ENOMEM : 0;
}

UNIT_TEST(test_no_memory)
{
	struct holding_reservation reservation;

	attach(GIB);
	assert_int_equal(quota_hold_reserve(HOLDING_ARRAY, 0, CONTEXT, UNIT, &reservation), 0);
	sys_fault = no_memory;
	assert_int_equal(quota_hold(&reservation, HANDLE), -ENOMEM);
	assert_int_equal(data(), 2 * MIB); /* the reservation stands */
	assert_false(is_quiet());
	quota_hold_cancel(&reservation);
	note_mapping(BASE, 2 * MIB, HANDLE);
	sys_fault = NULL;
	assert_int_equal(data(), 0);
	assert_true(is_quiet());
	assert_false(quota_holds(HOLDING_ARRAY, HANDLE));
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 0);
}

/* -- references ------------------------------------------------------------------------------- */

UNIT_TEST(test_references)
{
	struct holding_release going;

	attach(GIB);
	assert_int_equal(quota_hold_again(HOLDING_PHYSICAL, HANDLE), -1);
	assert_false(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &going));
	assert_true(is_quiet());
	hold_on(HOLDING_PHYSICAL, 1, 0, 6 * MIB, HANDLE);
	assert_int_equal(quota_hold_again(HOLDING_PHYSICAL, HANDLE), 1);
	assert_int_equal(quota_hold_again(HOLDING_ARRAY, HANDLE), -1);
	assert_int_equal(quota_hold_again(HOLDING_PHYSICAL, HANDLE), 1);
	assert_false(let_go(HANDLE));
	assert_false(let_go(HANDLE));
	assert_int_equal(own_usage(1).data, 6 * MIB);
	assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &going));
	assert_true(going.last);
	assert_int_equal(going.bytes, 6 * MIB);
	assert_int_equal(going.device, 1);
	assert_int_equal(going.handle, HANDLE);
	assert_int_equal(own_usage(1).data, 6 * MIB); /* until the driver has let go */
	assert_false(is_quiet());
	assert_true(quota_holds(HOLDING_PHYSICAL, HANDLE));
	quota_let_go_commit(&going);
	assert_false(quota_holds(HOLDING_PHYSICAL, HANDLE));
	assert_int_equal(own_usage(1).total, 0);
	assert_false(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &going));
	assert_true(is_quiet());
}

UNIT_TEST(test_undone)
{
	struct holding_release going;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	quota_hold_again(HOLDING_PHYSICAL, HANDLE);
	for (unsigned i = 0; i < 5; i++) {
		assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &going));
		quota_let_go_undo(&going);
	}
	assert_false(let_go(HANDLE));
	for (unsigned i = 0; i < 5; i++) {
		assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &going));
		assert_true(going.last);
		quota_let_go_undo(&going);
		assert_int_equal(data(), 6 * MIB);
		assert_true(is_quiet());
	}
	assert_true(let_go(HANDLE));
	assert_int_equal(data(), 0);
	assert_true(is_quiet());
}

/* Two calls let go of memory that has two references. */
static void begin_both(struct holding_release *ret_first, struct holding_release *ret_second)
{
	attach(GIB);
	hold(6 * MIB, HANDLE);
	quota_hold_again(HOLDING_PHYSICAL, HANDLE);
	assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, ret_first));
	assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, ret_second));
}

/* The call that began first returns last: the memory is charged until then. */
UNIT_TEST(test_overtaken)
{
	struct holding_release first, second;

	begin_both(&first, &second);
	quota_let_go_commit(&second);
	assert_false(second.last);
	assert_int_equal(data(), 6 * MIB);
	quota_let_go_commit(&first);
	assert_true(first.last);
	assert_int_equal(data(), 0);
	assert_true(is_quiet());
}

/* A reference is made while what was the last one goes. */
UNIT_TEST(test_held_again_meanwhile)
{
	struct holding_release going;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &going));
	assert_int_equal(quota_hold_again(HOLDING_PHYSICAL, HANDLE), 0);
	quota_let_go_commit(&going);
	assert_false(going.last);
	assert_int_equal(data(), 6 * MIB);
	assert_true(let_go(HANDLE));
	assert_int_equal(data(), 0);
}

/* The driver gives the handle to other memory before the call that ended the first returns. */
UNIT_TEST(test_replaced)
{
	struct holding_release first, second;

	begin_both(&first, &second);
	hold(4 * MIB, HANDLE);
	assert_int_equal(data(), 10 * MIB);
	quota_let_go_commit(&first);
	assert_false(first.last);
	assert_int_equal(data(), 10 * MIB);
	quota_let_go_commit(&second);
	assert_true(second.last);
	assert_int_equal(data(), 4 * MIB);
	assert_true(let_go(HANDLE));
	assert_int_equal(data(), 0);
	assert_true(is_quiet());
}

/* An unmapping of two that are all that is left of it, and which the driver refuses. */
UNIT_TEST(test_undone_together)
{
	struct holding_release first, second;

	attach(GIB);
	for (unsigned turned_round = 0; turned_round < 2; turned_round++) {
		hold(6 * MIB, HANDLE);
		quota_hold_again(HOLDING_PHYSICAL, HANDLE);
		assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &first));
		assert_true(quota_let_go_begin(HOLDING_PHYSICAL, HANDLE, &second));
		assert_false(first.last);
		assert_true(second.last);
		quota_let_go_undo(turned_round ? &second : &first);
		quota_let_go_undo(turned_round ? &first : &second);
		assert_false(let_go(HANDLE));
		assert_int_equal(data(), 6 * MIB);
		assert_true(let_go(HANDLE));
		assert_int_equal(data(), 0);
	}
	assert_true(is_quiet());
}

/* -- mappings --------------------------------------------------------------------------------- */

UNIT_TEST(test_mapping)
{
	struct holding_release going;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	map(BASE + 4 * MIB, 6 * MIB, HANDLE);
	assert_false(let_go(HANDLE)); /* the handle; the mapping keeps the memory */
	assert_int_equal(data(), 6 * MIB);
	assert_int_equal(quota_unmapping(BASE, BASE + GIB, &going, 1), 1);
	assert_true(going.last);
	assert_int_equal(going.handle, HANDLE);
	assert_int_equal(going.address, BASE + 4 * MIB);
	assert_int_equal(data(), 6 * MIB);
	quota_let_go_undo(&going); /* the driver refused */
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 1);
	assert_int_equal(unmap(BASE, BASE + GIB), 1);
	assert_int_equal(data(), 0);
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 0);
	assert_int_equal(unmap(BASE, BASE + GIB), 0);
	assert_true(is_quiet());
}

/* Two threads unmap the same, and the driver refuses one of them, before or after the other. */
static void assert_unmapped_beside(bool refused_first)
{
	struct holding_release refused, going;

	hold(6 * MIB, HANDLE);
	map(BASE, 6 * MIB, HANDLE);
	let_go(HANDLE);
	assert_int_equal(quota_unmapping(BASE, BASE + GIB, &refused, 1), 1);
	assert_int_equal(quota_unmapping(BASE, BASE + GIB, &going, 1), 1);
	if (refused_first)
		quota_let_go_undo(&refused);
	quota_let_go_commit(&going);
	if (!refused_first)
		quota_let_go_undo(&refused);
	assert_int_equal(data(), 0);
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 0);
	assert_true(is_quiet());
}

UNIT_TEST(test_unmapped_beside_a_refusal)
{
	attach(GIB);
	assert_unmapped_beside(true);
	assert_unmapped_beside(false);
}

/* The driver has unmapped it, and another thread maps other memory there before that is noted. */
UNIT_TEST(test_mapped_again)
{
	struct holding_release going, before;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	hold(4 * MIB, OTHER);
	map(BASE, 6 * MIB, HANDLE);
	let_go(HANDLE);
	assert_int_equal(quota_unmapping(BASE, BASE + GIB, &going, 1), 1);
	assert_true(quota_hold_again(HOLDING_PHYSICAL, OTHER) >= 0);
	assert_true(quota_mapped(BASE, 4 * MIB, OTHER, &before));
	assert_true(before.last);
	quota_let_go_commit(&before);
	assert_int_equal(data(), 4 * MIB);
	quota_let_go_commit(&going);
	let_go(OTHER);
	assert_int_equal(data(), 4 * MIB);
	assert_int_equal(unmap(BASE, BASE + GIB), 1);
	assert_int_equal(data(), 0);
	assert_true(is_quiet());
}

/* The handle has been given to other memory, while one of two calls was refused. */
UNIT_TEST(test_replaced_beside_a_refusal)
{
	struct holding_release refused, going;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	map(BASE, 6 * MIB, HANDLE);
	let_go(HANDLE);
	assert_int_equal(quota_unmapping(BASE, BASE + GIB, &refused, 1), 1);
	assert_int_equal(quota_unmapping(BASE, BASE + GIB, &going, 1), 1);
	hold(2 * MIB, HANDLE);
	quota_let_go_commit(&going);
	quota_let_go_undo(&refused);
	assert_int_equal(data(), 2 * MIB);
	assert_true(let_go(HANDLE));
	assert_int_equal(data(), 0);
	assert_true(is_quiet());
}

UNIT_TEST(test_ranges)
{
	attach(GIB);
	hold(6 * MIB, HANDLE);
	hold(2 * MIB, OTHER);
	map(BASE, 6 * MIB, HANDLE);
	map(BASE + 6 * MIB, 2 * MIB, OTHER);
	map(BASE + 8 * MIB, 6 * MIB, HANDLE); /* the same memory twice */
	map(BASE + 20 * MIB, 2 * MIB, OTHER);
	let_go(HANDLE);
	let_go(OTHER);
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 4);
	assert_int_equal(quota_mappings(BASE + 2 * MIB, BASE + 20 * MIB), 2);
	assert_int_equal(quota_mappings(BASE + 14 * MIB, BASE + 20 * MIB), 0);
	assert_int_equal(unmap(BASE + 6 * MIB, BASE + 14 * MIB), 2);
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 2);
	assert_int_equal(data(), 8 * MIB); /* each is mapped once more */
	assert_int_equal(unmap(BASE, BASE + 6 * MIB), 1);
	assert_int_equal(data(), 2 * MIB);
	assert_int_equal(unmap(BASE, BASE + GIB), 1);
	assert_int_equal(data(), 0);
}

/* A range of any size, also up to the last address. */
UNIT_TEST(test_any_range)
{
	static const uint64_t addresses[] = {GRANULE_BYTES, BASE, UINT64_MAX - 2 * GRANULE_BYTES};

	attach(GIB);
	hold(2 * MIB, HANDLE);
	for (unsigned i = 0; i < 3; i++)
		map(addresses[i], 2 * MIB, HANDLE);
	assert_int_equal(quota_mappings(0, UINT64_MAX), 3);
	assert_int_equal(quota_mappings(0, BASE), 1);
	assert_int_equal(quota_mappings(BASE, BASE + ((uint64_t)1 << 55)), 1);
	assert_int_equal(quota_mappings(addresses[2], UINT64_MAX), 1);
	assert_int_equal(quota_mappings(addresses[2] + 1, UINT64_MAX), 0);
	assert_int_equal(quota_mappings(UINT64_MAX, BASE), 0);
	assert_int_equal(unmap(addresses[2], UINT64_MAX), 1);
	assert_int_equal(unmap(0, UINT64_MAX), 2);
	assert_true(let_go(HANDLE));
	assert_true(is_quiet());
}

/* -- many mappings ---------------------------------------------------------------------------- */

#define MANY 100000
#define FAR  (100 * GRANULE_BYTES) /* apart: the range has more granules than the table places */

static void map_many(void)
{
	for (uint64_t i = 0; i < MANY; i++)
		map(BASE + i * FAR, 2 * MIB, HANDLE);
}

static uint64_t processor_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* One call unmaps all mappings. A pass over the table for each of them would take minutes. */
UNIT_TEST(test_many_at_once)
{
	static struct holding_release going[MANY];
	uint64_t end = BASE + MANY * FAR, began_ms;

	attach(GIB);
	hold(2 * MIB, HANDLE);
	map_many();
	let_go(HANDLE);
	began_ms = processor_ms();
	assert_int_equal(quota_mappings(BASE, end), MANY);
	assert_int_equal(quota_unmapping(BASE, end, going, MANY), MANY);
	for (unsigned i = 0; i < MANY; i++)
		quota_let_go_commit(&going[i]);
	assert_true(processor_ms() - began_ms < 10000);
	assert_int_equal(quota_mappings(BASE, end), 0);
	assert_int_equal(data(), 0);
	assert_true(is_quiet());
}

/* Each mapping's reference begins to end once, also where unknown mappings go meanwhile. */
UNIT_TEST(test_many_among_unknown)
{
	static struct holding_release going[MANY];
	uint64_t end = BASE + MANY * FAR;
	size_t count;

	attach(GIB);
	hold(2 * MIB, HANDLE);
	for (uint64_t i = 0; i < MANY; i++)
		if (i % 2)
			map(BASE + i * FAR, 2 * MIB, HANDLE);
		else
			note_mapping(BASE + i * FAR, 2 * MIB, OTHER);
	count = quota_unmapping(BASE, end, going, MANY);
	assert_int_equal(count, MANY / 2);
	for (size_t i = 0; i < count; i++)
		quota_let_go_commit(&going[i]);
	assert_int_equal(quota_mappings(BASE, end), 0);
	assert_true(let_go(HANDLE));
	assert_int_equal(data(), 0);
	assert_true(is_quiet());
}

/* What a multicast object has bound is known by a place that is no address, to its end. */
UNIT_TEST(test_binding)
{
	static const uint64_t places[] = {(uint64_t)1 << 63 | 12345, (uint64_t)1 << 63 | 12346,
					  UINT64_MAX - 1};

	attach(GIB);
	hold(6 * MIB, HANDLE);
	for (unsigned i = 0; i < 3; i++)
		map(places[i], GRANULE_BYTES, HANDLE);
	let_go(HANDLE);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(data(), 6 * MIB);
		assert_int_equal(unmap(places[i], places[i] + 1), 1);
	}
	assert_int_equal(data(), 0);
}

/* A mapping of memory that is not known any more is none of ours. */
UNIT_TEST(test_mapping_of_unknown)
{
	attach(GIB);
	hold(2 * MIB, HANDLE);
	note_mapping(BASE, 2 * MIB, OTHER);
	map(BASE + 2 * MIB, 2 * MIB, HANDLE);
	assert_int_equal(unmap(BASE, BASE + GIB), 1);
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 0);
	assert_true(let_go(HANDLE));
	assert_true(is_quiet());
}

/* -- contexts --------------------------------------------------------------------------------- */

static void make_context(uint64_t context)
{
	struct quota_context_reservation reservation;

	assert_int_equal(quota_context_reserve(0, MIB, &reservation), 0);
	assert_int_equal(quota_context_settle(&reservation, context, 100 * MIB, 0), 0);
}

UNIT_TEST(test_context_ends)
{
	struct holding_release going;

	attach(4 * GIB);
	make_context(CONTEXT);
	hold(6 * MIB, HANDLE); /* of the process */
	quota_hold_again(HOLDING_PHYSICAL, HANDLE);
	for (unsigned i = 0; i < 50; i++)
		hold_array((i + 1) * UNIT, HANDLE + i);
	hold_on(HOLDING_IMPORT, 0, CONTEXT, 10 * MIB, HANDLE);
	quota_hold_again(HOLDING_IMPORT, HANDLE);
	hold_on(HOLDING_ARRAY, 0, CONTEXT + 1, UNIT, OTHER);
	hold_on(HOLDING_IMPORT, 0, CONTEXT + 1, 2 * MIB, OTHER);
	assert_true(own_usage(0).total > 100 * MIB);
	quota_ending_begin();
	quota_context_end(CONTEXT);
	quota_ending_end();
	assert_int_equal(own_usage(0).data, 8 * MIB);
	assert_int_equal(own_usage(0).offset, 2 * MIB);
	assert_int_equal(own_usage(0).total, 10 * MIB);
	assert_false(quota_let_go_begin(HOLDING_ARRAY, HANDLE, &going));
	assert_false(quota_let_go_begin(HOLDING_IMPORT, HANDLE, &going));
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
	return (void *)(intptr_t)quota_hold_reserve(HOLDING_ARRAY, 0, CONTEXT, UNIT, &reservation);
}

static bool knows_nothing(void)
{
	return !quota_holds(HOLDING_PHYSICAL, HANDLE) && !quota_holds(HOLDING_ARRAY, OTHER) &&
	       quota_mappings(BASE, BASE + GIB) == 0 && holdings_doubt(0) == 0 && is_quiet();
}

/* A child that is forked while a thread has the lock of holding.c: 0 if all is well in it. */
static int look_in_child(void)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		alarm(100);
		quota_forget();
		_exit(!knows_nothing());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* What waits for the region's lock in vain is refused, and what goes back meanwhile goes back with
 * the next change. */
UNIT_TEST(test_lock_held)
{
	pthread_t thread;
	void *result = NULL;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	lock_elsewhere();
	assert_int_equal(pthread_create(&thread, NULL, reserve_in_thread, NULL), 0);
	await_waiter();
	assert_int_equal(look_in_child(), 0);
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

	attach(GIB);
	hold(6 * MIB, HANDLE);
	hold_array(UNIT, OTHER);
	assert_int_equal(quota_hold_reserve(HOLDING_ARRAY, 0, CONTEXT, UNIT, &reservation), 0);
	delete_region();
	quota_hold_cancel(&reservation);
	assert_int_equal(quota_hold_reserve(HOLDING_PHYSICAL, 0, 0, 1, &reservation), -ESTALE);
	assert_int_equal(quota_hold_reserve(HOLDING_ARRAY, 0, CONTEXT + 1, 1, &reservation),
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

	alarm(100);
	quota_forget();
	if (!knows_nothing())
		return 1;
	if (quota_attach(&quota_slice, &gpu, 1, NULL) != 0 || data() != 0)
		return 2;
	if (quota_hold_reserve(HOLDING_ARRAY, 0, CONTEXT, UNIT, &reservation) != 0)
		return 3; /* in none of the parent's granules */
	return data() == 2 * MIB && quota_hold(&reservation, OTHER) == 0 ? 0 : 4;
}

UNIT_TEST(test_forked)
{
	int status = -1;
	pid_t pid;

	attach(GIB);
	hold(6 * MIB, HANDLE);
	map(BASE, 6 * MIB, HANDLE);
	hold_array(UNIT, OTHER);
	hold_array(MIB, OTHER + 1);
	pid = fork();
	if (pid == 0)
		_exit(live_as_child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	quota_reap();
	assert_int_equal(quota_used(0), data());
	assert_false(let_go(HANDLE));
	assert_int_equal(unmap(BASE, BASE + GIB), 1);
	assert_true(let_go_of(HOLDING_ARRAY, OTHER));
	assert_true(let_go_of(HOLDING_ARRAY, OTHER + 1));
	assert_int_equal(data(), 0);
}

/* -- threads ---------------------------------------------------------------------------------- */

#define THREADS 4
#define LIMIT   (24 * MIB)

static bool hold_some(enum holding_kind kind, uint64_t size_bytes, uint64_t handle, bool cancel)
{
	struct holding_reservation reservation;

	if (quota_hold_reserve(kind, 0, CONTEXT, size_bytes, &reservation) != 0)
		return false;
	if (!cancel && quota_hold(&reservation, handle) == 0)
		return true;
	quota_hold_cancel(&reservation);
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
		quota_hold_again(HOLDING_PHYSICAL, HANDLE);
		if (quota_mapped(address, 2 * MIB, HANDLE, &going))
			return (void *)5;
		if (!held[i]) {
			held[i] = hold_some(kind, size, base + i, step % 7 == 0);
		} else {
			if (!quota_let_go_begin(kind, base + i, &going) || !going.last)
				return (void *)2;
			held[i] = step % 5 == 0;
			(held[i] ? quota_let_go_undo : quota_let_go_commit)(&going);
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
	pthread_t threads[THREADS];

	attach(LIMIT);
	hold(2 * MIB, HANDLE);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		void *wrong = NULL;

		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
	assert_int_equal(own_usage(0).total, 2 * MIB);
	assert_true(let_go(HANDLE));
	assert_int_equal(quota_used(0), 0);
	assert_true(is_quiet());
}
