/* The records of exports: blocks that are freed meanwhile, or while another process has the lock.
 */
#include "allocation.h"
#include "context.h"
#include "export.h"
#include "import.h"
#include "quota_held_lock.h"

#define LIMIT GIB

static const char handle[] = "a handle";

static struct quota_block known(uint64_t address)
{
	struct quota_block block;

	assert_true(quota_find_block(address, &block));
	return block;
}

/* An export by descriptor that the driver is making. */
static uint32_t begin_export(uint64_t address)
{
	const struct quota_block block = known(address);
	uint32_t serial;
	bool full;

	assert_true(quota_export_begin(address, &block, &serial, &full));
	return serial;
}

static void export(uint64_t address)
{
	const struct quota_block block = known(address);

	quota_export_handle(address, handle, sizeof(handle), 0, block.bytes, block.context);
}

static uint64_t import_elsewhere(void)
{
	unsigned device;
	uint64_t bytes;

	return region_share_import(&holder, export_key(handle, sizeof(handle)), &device, &bytes) ==
			       1
		       ? bytes
		       : 0;
}

/* -- another process has the region's lock ---------------------------------------------------- */

/* The bytes go from data to what no figure shows. */
UNIT_TEST(test_hidden_while_lock_is_held)
{
	uint32_t serial;

	attach_anew(LIMIT);
	allocate(BASE, 8 * MIB);
	serial = begin_export(BASE);
	lock_elsewhere();
	release(BASE);
	assert_int_equal(own_usage(0).total, 8 * MIB);
	unlock_elsewhere();
	allocate(BASE + GIB, 2 * MIB);
	assert_int_equal(data(), 2 * MIB);
	assert_int_equal(own_usage(0).offset, 8 * MIB);
	quota_export_cancel(serial);
	assert_int_equal(own_usage(0).total, 2 * MIB);
}

/* The process that has it open is charged for it in the end, or this one as long as it lives. */
UNIT_TEST(test_withdrawn_while_lock_is_held)
{
	attach_anew(LIMIT);
	allocate(BASE, 8 * MIB);
	allocate(BASE + 2 * GIB, 16 * MIB);
	export(BASE);
	lock_elsewhere();
	region_unlock(&holder);
	assert_int_equal(import_elsewhere(), 8 * MIB);
	assert_int_equal(region_lock(&holder), 0);
	release(BASE);
	region_unlock(&holder);
	assert_int_equal(region_used(&holder, 0), 24 * MIB);
	allocate(BASE + GIB, 2 * MIB);
	assert_int_equal(data(), 18 * MIB);
	assert_int_equal(region_used(&holder, 0), 26 * MIB);
	region_close(&holder);
	assert_int_equal(quota_used(0), 18 * MIB);
}

/* -- the address is another block's before the call that freed the first one returns ------------
 */

UNIT_TEST(test_address_of_another_block)
{
	struct quota_release going;

	attach_anew(LIMIT);
	allocate(BASE, 8 * MIB);
	assert_true(quota_free_begin(BASE, &going));
	assert_int_equal(going.exports, 0);
	allocate(BASE, 4 * MIB);
	export(BASE);
	quota_free_commit(&going);
	lock_elsewhere();
	region_unlock(&holder);
	assert_int_equal(import_elsewhere(), 4 * MIB);
	region_close(&holder);
	release(BASE);
	assert_int_equal(quota_used(0), 0);
}

/* The exports of the first block end with it, and not with the second. */
UNIT_TEST(test_exports_of_two_blocks)
{
	struct quota_release going;
	uint32_t first, second;

	attach_anew(LIMIT);
	allocate(BASE, 8 * MIB);
	first = begin_export(BASE);
	assert_true(quota_free_begin(BASE, &going));
	assert_int_not_equal(going.exports, 0);
	allocate(BASE, 4 * MIB);
	second = begin_export(BASE);
	release(BASE);
	assert_int_equal(own_usage(0).offset, 4 * MIB);
	quota_free_commit(&going);
	assert_int_equal(own_usage(0).offset, 12 * MIB);
	quota_export_cancel(second);
	assert_int_equal(own_usage(0).offset, 8 * MIB);
	quota_export_cancel(first);
	assert_int_equal(own_usage(0).total, 0);
}

UNIT_TEST(test_free_is_refused)
{
	struct quota_release going;

	attach_anew(LIMIT);
	allocate(BASE, 8 * MIB);
	export(BASE);
	assert_true(quota_free_begin(BASE, &going));
	quota_free_undo(&going);
	lock_elsewhere();
	region_unlock(&holder);
	assert_int_equal(import_elsewhere(), 8 * MIB);
	release(BASE);
	assert_int_equal(region_used(&holder, 0), 8 * MIB);
	region_close(&holder);
}

/* A block that is being freed is not exported, nor one that has changed meanwhile. */
UNIT_TEST(test_block_is_gone)
{
	struct quota_release going;
	struct quota_block block;
	uint32_t serial;
	bool full;

	attach_anew(LIMIT);
	allocate(BASE, 8 * MIB);
	block = known(BASE);
	assert_true(quota_free_begin(BASE, &going));
	assert_false(quota_export_begin(BASE, &block, &serial, &full));
	assert_false(full);
	allocate(BASE, 4 * MIB);
	assert_false(quota_export_begin(BASE, &block, &serial, &full));
	quota_free_commit(&going);
	release(BASE);
	assert_int_equal(own_usage(0).total, 0);
}

/* The end of the context frees exported blocks, too. */
UNIT_TEST(test_context_ends)
{
	struct quota_context_reservation reservation;

	attach_anew(LIMIT);
	assert_int_equal(quota_context_reserve(0, 0, &reservation), 0);
	assert_int_equal(quota_context_settle(&reservation, 1, 2 * MIB, 0), 0);
	allocate(BASE, 8 * MIB);
	export(BASE);
	lock_elsewhere();
	region_unlock(&holder);
	assert_int_equal(import_elsewhere(), 8 * MIB);
	quota_ending_begin();
	quota_context_end(1);
	quota_ending_end();
	assert_int_equal(data(), 0);
	assert_int_equal(region_used(&holder, 0), 8 * MIB);
	region_close(&holder);
}

/* -- what an application frees may be no block ------------------------------------------------- */

/* Records of memory that only descriptors keep have no name. */
UNIT_TEST(test_free_of_nothing)
{
	struct quota_pointer pointer;
	uint32_t serial;

	attach_anew(LIMIT);
	allocate(BASE, 8 * MIB);
	serial = begin_export(BASE);
	release(BASE);
	quota_pointer_free_begin(0, &pointer);
	quota_pointer_free_end(&pointer, true);
	assert_int_equal(own_usage(0).offset, 8 * MIB);
	quota_export_cancel(serial);
	assert_int_equal(own_usage(0).total, 0);
}

/* A call that the driver refuses, such as cuIpcCloseMemHandle of a block, takes no exports. */
UNIT_TEST(test_close_of_block)
{
	struct quota_pointer pointer;
	uint32_t serial;

	attach_anew(LIMIT);
	allocate(BASE, 8 * MIB);
	serial = begin_export(BASE);
	quota_pointer_free_begin(BASE, &pointer);
	release(BASE);
	quota_pointer_free_end(&pointer, false);
	assert_int_equal(own_usage(0).offset, 8 * MIB);
	quota_export_cancel(serial);
	assert_int_equal(own_usage(0).total, 0);
}

UNIT_TEST(test_free_of_number)
{
	const uint64_t memory = quota_holding_number(77);
	struct quota_pointer pointer;

	attach_anew(LIMIT);
	quota_export_handle(memory, handle, sizeof(handle), 0, 8 * MIB, 0);
	quota_pointer_free_begin(memory, &pointer);
	assert_int_equal(pointer.exports, 0);
	quota_pointer_free_end(&pointer, false);
}
