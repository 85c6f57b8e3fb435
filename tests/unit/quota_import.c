/* The records of imports: memory of this slice and of others, while calls that end them are under
 * way. */
#include "import.h"

#include "context.h"
#include "export.h"
#include "quota_held_lock.h"

#define LIMIT   GIB
#define SIZE    (8 * MIB)
#define CONTEXT 1
#define MEMORY  quota_holding_number(77)

static const char handle[] = "a handle";

static uint64_t of_context; /* bytes of it that no figure shows */

static uint64_t hidden(void)
{
	return own_usage(0).offset - (quota_has_context(0) ? of_context : 0);
}

static struct holding_reservation reserve_import(uint64_t bytes)
{
	struct holding_reservation reservation;

	assert_int_equal(quota_holding_reserve(HOLDING_IMPORT, 0, CONTEXT, bytes, &reservation), 0);
	return reservation;
}

/* Memory of another slice is open at the address. */
static void open_at(uint64_t address, uint64_t bytes)
{
	struct holding_reservation reservation;
	int again = quota_import_again(address, CONTEXT);

	assert_true(again >= 0);
	if (again)
		return;
	reservation = reserve_import(bytes);
	assert_int_equal(quota_import_charge(&reservation, address, CONTEXT), 0);
}

static void close_at(uint64_t address)
{
	struct quota_pointer pointer;

	quota_pointer_free_begin(address, &pointer);
	quota_pointer_free_end(&pointer, true);
}

static void with_context(void)
{
	attach_anew(LIMIT);
	make_context(CONTEXT);
	of_context = own_usage(0).offset;
}

static void end_context(void)
{
	quota_ending_begin();
	quota_context_end(CONTEXT);
	quota_ending_end();
}

/* -- memory of another slice ------------------------------------------------------------------- */

UNIT_TEST(test_opened_twice)
{
	struct quota_pointer first, second;

	with_context();
	open_at(BASE, SIZE);
	open_at(BASE, SIZE);
	assert_int_equal(hidden(), SIZE);
	quota_pointer_free_begin(BASE, &first);
	quota_pointer_free_begin(BASE, &second);
	quota_pointer_free_end(&second, true);
	assert_int_equal(hidden(), SIZE);
	quota_pointer_free_end(&first, false); /* the driver has refused: it is open */
	assert_int_equal(hidden(), SIZE);
	close_at(BASE);
	assert_int_equal(hidden(), 0);
}

/* The driver gives the address to other memory before the first call returns. */
UNIT_TEST(test_address_of_other_memory)
{
	struct quota_pointer pointer;

	with_context();
	open_at(BASE, SIZE);
	quota_pointer_free_begin(BASE, &pointer);
	open_at(BASE, 2 * MIB);
	assert_int_equal(hidden(), SIZE + 2 * MIB);
	quota_pointer_free_end(&pointer, true);
	assert_int_equal(hidden(), 2 * MIB);
	close_at(BASE);
	assert_int_equal(hidden(), 0);
}

/* The context ends while a call that closes the memory is under way. */
UNIT_TEST(test_context_ends_meanwhile)
{
	struct quota_pointer pointer;

	with_context();
	open_at(BASE, SIZE);
	quota_pointer_free_begin(BASE, &pointer);
	end_context();
	quota_pointer_free_end(&pointer, false);
	assert_int_equal(hidden(), 0);
	assert_int_equal(quota_import_again(BASE, CONTEXT), 0);
}

UNIT_TEST(test_made_in_ended_context)
{
	uint64_t ends;

	with_context();
	ends = quota_context_ends();
	end_context();
	open_at(BASE, SIZE);
	quota_import_made_in(CONTEXT, ends);
	assert_int_equal(hidden(), 0);
}

/* Physical memory of unknown size. */
UNIT_TEST(test_charged_when_mapped)
{
	struct holding_reservation reservation;

	attach_anew(LIMIT);
	assert_true(quota_import_later(MEMORY));
	quota_ending_begin();
	assert_true(quota_import_is_due(MEMORY, SIZE));
	reservation = reserve_import(SIZE);
	assert_int_equal(quota_import_pay(&reservation, MEMORY), 0);
	assert_false(quota_import_is_due(MEMORY, SIZE));
	assert_true(quota_import_is_due(MEMORY, 2 * SIZE));
	assert_int_equal(hidden(), SIZE);
	quota_import_ended(MEMORY);
	assert_false(quota_import_is_due(MEMORY, SIZE));
	quota_ending_end();
	assert_int_equal(hidden(), 0);
}

/* -- memory of this slice ---------------------------------------------------------------------- */

static void export_elsewhere(uint64_t bytes)
{
	const uint64_t key = export_key(handle, sizeof(handle));

	lock_elsewhere();
	region_unlock(&holder);
	assert_int_equal(region_charge(&holder, 0, REGION_DATA, bytes, LIMIT), 0);
	assert_int_equal(region_share_export(&holder, 0, key, bytes), 0);
}

static bool import_it(uint64_t bytes)
{
	struct quota_import import;

	quota_import_begin(handle, sizeof(handle), &import);
	return quota_import_record(&import, BASE, bytes, CONTEXT);
}

/* The charge moves here with the exporter's end, and goes with the import. */
UNIT_TEST(test_exporter_ends)
{
	with_context();
	export_elsewhere(SIZE);
	assert_true(import_it(SIZE));
	assert_int_equal(data(), 0);
	region_close(&holder);
	assert_int_equal(data(), SIZE);
	close_at(BASE);
	assert_int_equal(data(), 0);
}

/* More than the exporter is charged for is not the exporter's. */
UNIT_TEST(test_larger_than_charge)
{
	with_context();
	export_elsewhere(SIZE);
	assert_false(import_it(SIZE + 1));
	assert_int_equal(quota_import_again(BASE, CONTEXT), 0);
	region_close(&holder);
	assert_int_equal(data(), 0);
}

/* An application may free a value that is no address. */
UNIT_TEST(test_no_address)
{
	struct quota_pointer pointer;

	attach_anew(LIMIT);
	assert_true(quota_import_later(MEMORY));
	quota_pointer_free_begin(MEMORY, &pointer);
	assert_int_equal(pointer.import, 0);
	quota_ending_begin();
	assert_true(quota_import_is_due(MEMORY, SIZE));
	quota_ending_end();
	quota_pointer_free_end(&pointer, false);
}

/* -- pointers of pools, which are recorded before the driver imports them ---------------------- */

/* Exports a pointer of a pool, and begins to import it. */
static uint64_t expect_pointer(void)
{
	struct quota_import import;

	attach_anew(LIMIT);
	quota_export_handle(BASE, handle, sizeof(handle), 0, SIZE, 0);
	quota_import_begin(handle, sizeof(handle), &import);
	return quota_import_expect(&import);
}

/* The exporter frees the pointer while the driver imports it. The driver keeps the memory until
 * this process ends. */
UNIT_TEST(test_pointer_arrives)
{
	uint64_t number = expect_pointer();

	assert_int_not_equal(number, 0);
	assert_false(is_quiet());
	close_at(BASE);
	assert_int_equal(data(), SIZE);
	quota_import_arrived(number, BASE + SIZE);
	assert_true(is_quiet());
	assert_int_equal(data(), SIZE);
	close_at(BASE + SIZE);
	assert_int_equal(data(), SIZE);
}

UNIT_TEST(test_pointer_refused)
{
	uint64_t number = expect_pointer();

	quota_import_arrived(number, 0);
	assert_true(is_quiet());
	close_at(BASE);
	assert_int_equal(data(), 0);
}

UNIT_TEST(test_pointer_of_others)
{
	struct quota_import import;

	attach_anew(LIMIT);
	quota_import_begin(handle, sizeof(handle), &import);
	assert_int_equal(quota_import_expect(&import), 0);
	quota_import_cancel(&import);
	assert_true(is_quiet());
}
