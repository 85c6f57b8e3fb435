/* Mappings of memory that is held: in which ranges they are found, and how many. */
#include <time.h>

#include "blocks.h"
#include "quota_holding_fixture.h"

UNIT_TEST(test_ranges)
{
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

	hold(2 * MIB, HANDLE);
	map_many();
	let_go(HANDLE);
	began_ms = processor_ms();
	assert_int_equal(quota_mappings(BASE, end), MANY);
	assert_int_equal(quota_unmapping(BASE, end, going, MANY), MANY);
	for (unsigned i = 0; i < MANY; i++)
		quota_holding_unref_commit(&going[i]);
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

	hold(2 * MIB, HANDLE);
	for (uint64_t i = 0; i < MANY; i++)
		if (i % 2)
			map(BASE + i * FAR, 2 * MIB, HANDLE);
		else
			map(BASE + i * FAR, 2 * MIB, OTHER);
	count = quota_unmapping(BASE, end, going, MANY);
	assert_int_equal(count, MANY / 2);
	for (size_t i = 0; i < count; i++)
		quota_holding_unref_commit(&going[i]);
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
	hold(2 * MIB, HANDLE);
	map(BASE, 2 * MIB, OTHER);
	map(BASE + 2 * MIB, 2 * MIB, HANDLE);
	assert_int_equal(unmap(BASE, BASE + GIB), 1);
	assert_int_equal(quota_mappings(BASE, BASE + GIB), 0);
	assert_true(let_go(HANDLE));
	assert_true(is_quiet());
}
