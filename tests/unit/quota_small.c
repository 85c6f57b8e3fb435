/* Small arrays: what is charged for them, whatever granules the driver lays them in. */
#include "quota_holding_fixture.h"

/* Of one size, they are charged what they take: as many as fit share a granule. */
UNIT_TEST(test_small_alike)
{
	static const uint64_t sizes[] = {1, UNIT, UNIT + 1, 5 * UNIT, 11 * UNIT, MIB};
	static const uint64_t fitting[] = {32, 32, 16, 6, 2, 2};

	attach(GIB);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint64_t count = 3 * fitting[i] + 1;

		for (uint64_t n = 0; n < count; n++) {
			hold_array(sizes[i], HANDLE + n);
			assert_int_equal(data(), (n / fitting[i] + 1) * 2 * MIB);
		}
		for (uint64_t n = 0; n < count; n++) {
			let_go_of(HOLDING_ARRAY, HANDLE + n);
			/* no more granules than there are arrays to be in them */
			assert_true(data() <= (count - 1 - n) * 2 * MIB);
		}
		assert_int_equal(data(), 0);
	}
}

/* Freed but for two in each granule, which leave no room for a third of one. */
UNIT_TEST(test_small_scattered)
{
	attach(GIB);
	for (unsigned i = 0; i < 64; i++)
		hold_array(UNIT, HANDLE + i);
	assert_int_equal(data(), 4 * MIB);
	for (unsigned i = 0; i < 64; i++)
		if (i % 32 != 10 && i % 32 != 21)
			let_go_of(HOLDING_ARRAY, HANDLE + i);
	assert_int_equal(data(), 4 * MIB);
	hold_array(10 * UNIT, OTHER); /* fits between them */
	assert_int_equal(data(), 4 * MIB);
	let_go_of(HOLDING_ARRAY, OTHER);
	hold_array(11 * UNIT, OTHER);
	assert_int_equal(data(), 6 * MIB);
}

/* They fill a granule to the end, and no count of them says so: the next needs one. */
UNIT_TEST(test_small_full)
{
	attach(GIB);
	for (unsigned i = 0; i < 16; i++)
		hold_array(UNIT, HANDLE + i);
	hold_array(MIB, OTHER);
	assert_int_equal(data() - holdings_doubt(0), 2 * MIB);
	holdings_lower(0, holdings_doubt(0)); /* so they lie */
	assert_int_equal(data(), 2 * MIB);
	hold_array(UNIT, OTHER + 1);
	assert_int_equal(data(), 4 * MIB);
}

UNIT_TEST(test_small_or_not)
{
	attach(GIB);
	hold_array(MIB, HANDLE);
	hold_array(MIB, HANDLE + 1);
	assert_int_equal(data(), 2 * MIB);
	hold_array(MIB + 1, HANDLE + 2);
	hold_array(MIB + 1, HANDLE + 3);
	assert_int_equal(data(), 6 * MIB);
	hold(UNIT, HANDLE); /* not an array */
	hold(UNIT, HANDLE + 1);
	assert_int_equal(data(), 10 * MIB);
}

/* Not with those of another context, nor of another device. */
UNIT_TEST(test_small_apart)
{
	attach(GIB);
	hold_array(UNIT, HANDLE);
	hold_on(HOLDING_ARRAY, 0, CONTEXT + 1, UNIT, HANDLE + 1);
	hold_on(HOLDING_ARRAY, 1, CONTEXT, UNIT, HANDLE + 2);
	assert_int_equal(own_usage(0).data, 4 * MIB);
	assert_int_equal(own_usage(1).data, 2 * MIB);
	let_go_of(HOLDING_ARRAY, HANDLE + 1);
	assert_int_equal(own_usage(0).data, 2 * MIB);
	assert_int_equal(own_usage(1).data, 2 * MIB);
	let_go_of(HOLDING_ARRAY, HANDLE + 2);
	assert_int_equal(own_usage(1).data, 0);
}

UNIT_TEST(test_small_undone)
{
	struct holding_release going;

	attach(GIB);
	for (unsigned i = 0; i < 33; i++)
		hold_array(UNIT, HANDLE + i);
	assert_int_equal(data(), 4 * MIB);
	assert_true(quota_holding_unref_begin(HOLDING_ARRAY, HANDLE, &going));
	assert_int_equal(data(), 4 * MIB);
	quota_holding_unref_undo(&going);
	assert_int_equal(data(), 4 * MIB);
	for (unsigned i = 0; i < 33; i++)
		assert_true(let_go_of(HOLDING_ARRAY, HANDLE + i));
	assert_int_equal(data(), 0);
}

/* More contexts than there can be; and each that goes leaves a place. */
UNIT_TEST(test_small_places)
{
	struct holding_reservation reservation;
	unsigned count = 256;

	attach(4 * GIB);
	for (unsigned i = 0; i < count; i++)
		hold_on(HOLDING_ARRAY, 0, CONTEXT + i, UNIT, HANDLE + i);
	assert_int_equal(data(), count * 2 * MIB);
	assert_int_equal(
		quota_holding_reserve(HOLDING_ARRAY, 0, CONTEXT + count, UNIT, &reservation),
		-EDQUOT);
	assert_int_equal(data(), count * 2 * MIB);
	assert_true(is_quiet());
	let_go_of(HOLDING_ARRAY, HANDLE + 7);
	hold_on(HOLDING_ARRAY, 0, CONTEXT + count, UNIT, HANDLE + count);
	assert_int_equal(data(), count * 2 * MIB);
}

/* Where the driver may have put them: in granules of 32 units, each a bit. */
#define PLACES 64

static uint32_t granules[PLACES];

static uint64_t taken_bytes(void)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < PLACES; i++)
		bytes += granules[i] ? 2 * MIB : 0;
	return bytes;
}

/* The driver opens a granule only where none has room. Otherwise it may do as it likes. */
static void place(unsigned units, unsigned seed, unsigned *ret_granule, uint32_t *ret_bits)
{
	uint32_t bits = (uint32_t)(((uint64_t)1 << units) - 1);

	for (unsigned empty = 0; empty < 2; empty++)
		for (unsigned i = 0; i < PLACES * 32; i++) {
			unsigned at = (i + seed) % (PLACES * 32), granule = at / 32;

			if (at % 32 + units > 32 || (granules[granule] != 0) == empty ||
			    granules[granule] & bits << at % 32)
				continue;
			*ret_granule = granule;
			*ret_bits = bits << at % 32;
			granules[granule] |= *ret_bits;
			return;
		}
	fail_msg("no granule is left");
}

#define ARRAYS 40

UNIT_TEST(test_small_random)
{
	struct {
		unsigned granule;
		uint32_t bits;
	} arrays[ARRAYS] = {{0, 0}};
	unsigned seed = 1, most = 1;

	attach(GIB);
	for (unsigned step = 0; step < 20000; step++) {
		unsigned i = (unsigned)rand_r(&seed) % ARRAYS;

		if (step % 1000 == 0)
			most = 1 + (unsigned)rand_r(&seed) % 16;
		if (arrays[i].bits) {
			granules[arrays[i].granule] &= ~arrays[i].bits;
			arrays[i].bits = 0;
			let_go_of(HOLDING_ARRAY, HANDLE + i);
		} else {
			unsigned units = 1 + (unsigned)rand_r(&seed) % most;

			hold_array(units * UNIT, HANDLE + i);
			place(units, (unsigned)rand_r(&seed), &arrays[i].granule, &arrays[i].bits);
		}
		assert_true(data() >= taken_bytes());
		assert_true(data() - holdings_doubt(0) <= taken_bytes());
		if (step % 50 == 0) /* as after a comparison with NVML */
			holdings_lower(0, data() - taken_bytes());
	}
	for (unsigned i = 0; i < ARRAYS; i++)
		if (arrays[i].bits)
			let_go_of(HOLDING_ARRAY, HANDLE + i);
	assert_int_equal(data(), 0);
}

UNIT_TEST(test_doubt)
{
	attach(GIB);
	assert_int_equal(holdings_doubt(0), 0);
	hold_array(UNIT, HANDLE);
	for (unsigned i = 1; i < 5; i++)
		hold_array(MIB, HANDLE + i); /* 65 units: 3 granules at least */
	hold_on(HOLDING_ARRAY, 1, CONTEXT, UNIT, OTHER);
	assert_int_equal(own_usage(0).data - holdings_doubt(0), 6 * MIB);
	assert_true(holdings_doubt(0) >= 2 * MIB);
	assert_int_equal(holdings_doubt(1), 0);
	holdings_lower(1, 2 * MIB); /* there is nothing to lower */
	assert_int_equal(own_usage(1).data, 2 * MIB);
	holdings_lower(0, 2 * MIB - 1); /* not a granule */
	assert_true(holdings_doubt(0) >= 2 * MIB);
	holdings_lower(0, holdings_doubt(0));
	assert_int_equal(own_usage(0).data, 6 * MIB);
	assert_int_equal(holdings_doubt(0), 0);
	holdings_lower(0, GIB);
	assert_int_equal(own_usage(0).data, 6 * MIB);
	for (unsigned i = 0; i < 5; i++)
		let_go_of(HOLDING_ARRAY, HANDLE + i);
	assert_int_equal(own_usage(0).data, 0);
	assert_int_equal(own_usage(1).data, 2 * MIB);
}
