/* The table of allocations, against a model that cannot be wrong. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "sys.h"
#include "table.h"
#include "unit.h"

#define KEYS 4000 /* more than the table begins with, and few enough to be met again */

/* What should be in it: amount by key, 0 for none. */
static uint64_t model[KEYS + 1];

/* Addresses as the driver gives them: low bits alike. */
static uint64_t key_of(unsigned i)
{
	return 0x7f0000000000u + (uint64_t)i * 0x200;
}

static void assert_same(struct table *table)
{
	size_t count = 0;

	for (unsigned i = 1; i <= KEYS; i++) {
		struct entry *entry = table_find(table, key_of(i));

		if (!model[i]) {
			assert_null(entry);
			continue;
		}
		assert_non_null(entry);
		assert_int_equal(entry->key, key_of(i));
		assert_int_equal(entry->amount, model[i]);
		assert_int_equal(entry->context, i % 7);
		count++;
	}
	assert_int_equal(table->count, count);
}

static void add(struct table *table, unsigned i, uint64_t amount)
{
	struct entry *entry = table_add(table, key_of(i));

	assert_non_null(entry);
	assert_int_equal(entry->key, key_of(i));
	assert_int_equal(entry->amount, 0);
	assert_int_equal(entry->context, 0);
	entry->amount = amount;
	entry->context = i % 7;
	model[i] = amount;
}

static void toggle(struct table *table, unsigned i, uint64_t amount)
{
	struct entry *entry = table_find(table, key_of(i));

	if (!entry) {
		add(table, i, amount);
		return;
	}
	table_remove(table, entry);
	model[i] = 0;
}

static int forget_model(void **state)
{
	(void)state;
	memset(model, 0, sizeof(model));
	return 0;
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    forget_model
#define UNIT_TEAR_DOWN NULL

UNIT_TEST(test_empty)
{
	struct table table = {NULL, 0, 0};

	assert_null(table_find(&table, key_of(1)));
	table_clear(&table);
	assert_null(table_find(&table, key_of(1)));
}

UNIT_TEST(test_random)
{
	struct table table = {NULL, 0, 0};
	unsigned seed = 11;

	for (unsigned step = 0; step < 200000; step++) {
		/* Up to many, down to few: the range of keys that is played with breathes. */
		unsigned range = step / 20000 % 2 ? 50 : KEYS;

		toggle(&table, 1 + (unsigned)rand_r(&seed) % range, step + 1);
		if (step % 10000 == 9999)
			assert_same(&table);
	}
	table_clear(&table);
	assert_int_equal(table.count, 0);
	assert_null(table_find(&table, key_of(1)));
}

UNIT_TEST(test_growth)
{
	struct table table = {NULL, 0, 0};

	for (unsigned i = 1; i <= KEYS; i++) {
		add(&table, i, i);
		assert_int_equal(table.capacity & (table.capacity - 1), 0);
		assert_true(table.count * 2 <= table.capacity + 1); /* a probe ends soon */
	}
	assert_same(&table);
	for (unsigned i = 1; i <= KEYS; i++)
		toggle(&table, i, 0);
	assert_same(&table);
	table_clear(&table);
}

/* A key whose own place is the table's last, or first: found by adding it to an empty table. */
static uint64_t key_at(size_t wanted, unsigned *at)
{
	for (;; ++*at) {
		struct table table = {NULL, 0, 0};
		struct entry *entry = table_add(&table, key_of(*at));
		size_t place = (size_t)(entry - table.entries);
		size_t last = table.capacity - 1;

		table_clear(&table);
		if (place == (wanted == SIZE_MAX ? last : wanted))
			return key_of((*at)++);
	}
}

/* A run that goes round the end: whichever of it goes, the others are found. */
UNIT_TEST(test_wraps_around)
{
	uint64_t keys[6];
	unsigned at = 1;

	for (unsigned i = 0; i < 6; i++)
		keys[i] = key_at(i < 4 ? SIZE_MAX : i - 4, &at);
	for (unsigned gone = 0; gone < 1u << 6; gone++) {
		struct table table = {NULL, 0, 0};

		for (unsigned i = 0; i < 6; i++)
			table_add(&table, keys[i])->amount = i + 1;
		for (unsigned i = 0; i < 6; i++)
			if (gone & 1u << i)
				table_remove(&table, table_find(&table, keys[i]));
		for (unsigned i = 0; i < 6; i++) {
			struct entry *entry = table_find(&table, keys[i]);

			assert_int_equal(entry != NULL, !(gone & 1u << i));
			if (entry)
				assert_int_equal(entry->amount, i + 1);
		}
		table_clear(&table);
	}
}

static bool of_context(void *arg, const struct entry *entry)
{
	return entry->context == *(const uint64_t *)arg;
}

UNIT_TEST(test_remove_if)
{
	struct table table = {NULL, 0, 0};
	unsigned seed = 3;

	for (unsigned round = 0; round < 200; round++) {
		uint64_t context = round % 7;
		unsigned most = round % 5 ? KEYS : 60; /* crowded, and nearly empty */

		for (unsigned i = 0; i < most / 2; i++) {
			unsigned key = 1 + (unsigned)rand_r(&seed) % most;

			if (!model[key])
				add(&table, key, i + 1);
		}
		table_remove_if(&table, of_context, &context);
		for (unsigned i = 1; i <= KEYS; i++)
			if (i % 7 == context)
				model[i] = 0;
		if (round % 20 == 19)
			assert_same(&table);
	}
	for (uint64_t context = 0; context < 7; context++)
		table_remove_if(&table, of_context, &context);
	assert_int_equal(table.count, 0);
	table_clear(&table);
}

/* All of a run goes that wraps round the end. */
UNIT_TEST(test_remove_if_wraps_around)
{
	unsigned at = 1;
	struct table table = {NULL, 0, 0};
	uint64_t context = 5;

	for (unsigned i = 0; i < 8; i++)
		table_add(&table, key_at(i % 2 ? 0 : SIZE_MAX, &at))->context = i < 6 ? 5 : 6;
	table_remove_if(&table, of_context, &context);
	assert_int_equal(table.count, 2);
	context = 6;
	table_remove_if(&table, of_context, &context);
	assert_int_equal(table.count, 0);
	table_clear(&table);
}

struct visits {
	unsigned count, of_kept;
};

static bool is_odd(void *arg, const struct entry *entry)
{
	struct visits *visits = arg;

	visits->count++;
	visits->of_kept += entry->context == 0;
	return entry->context == 1;
}

/* Each entry is looked at once, also where entries go that come before it in its run. */
UNIT_TEST(test_remove_if_looks_once)
{
	for (unsigned gone = 0; gone < 1u << 8; gone++) {
		struct table table = {NULL, 0, 0};
		struct visits visits = {0, 0};
		unsigned at = 1;

		for (unsigned i = 0; i < 8; i++)
			table_add(&table, key_at(i % 2 ? 0 : SIZE_MAX, &at))->context =
				gone >> i & 1;
		table_remove_if(&table, is_odd, &visits);
		assert_int_equal(visits.count, 8);
		assert_int_equal(visits.of_kept, table.count);
		table_clear(&table);
	}
}

static long no_memory(long number)
{
	return number == SYS_mmap ? -12 : 0;
}

/* No memory: the table is as it was. */
UNIT_TEST(test_no_memory)
{
	struct table table = {NULL, 0, 0};
	unsigned i = 1;

	sys_fault = no_memory;
	assert_null(table_add(&table, key_of(1)));
	assert_int_equal(table.count, 0);
	sys_fault = NULL;
	add(&table, i++, 1);
	sys_fault = no_memory;
	for (; table.count * 2 < table.capacity; i++)
		add(&table, i, i);
	assert_null(table_add(&table, key_of(i)));
	assert_same(&table);
	sys_fault = NULL;
	add(&table, i, i);
	assert_same(&table);
	table_clear(&table);
}
