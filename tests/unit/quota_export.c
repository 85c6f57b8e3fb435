/* The records of exports: blocks that are freed meanwhile, or while another process has the lock.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

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

static struct quota_reservation tentative;

static void *settle_small(void *address)
{
	const struct block block = block_at((uint64_t)(uintptr_t)address, KIB, false);

	return quota_settle(&tentative, &block) == -EDQUOT ? address : NULL;
}

/* A small block that is about to be refused. Nobody can export it meanwhile. */
UNIT_TEST(test_unsettled)
{
	const uint64_t address = BASE + 64 * MIB;
	struct quota_block found;
	pthread_t thread;
	void *refused;

	attach_anew(4 * MIB);
	allocate(BASE, 4 * MIB);
	assert_int_equal(quota_reserve(0, false, KIB, &tentative), 0);
	assert_true(tentative.tentative);
	lock_elsewhere();
	assert_int_equal(pthread_create(&thread, NULL, settle_small, (void *)(uintptr_t)address),
			 0);
	await_waiter();
	assert_false(quota_find_block(address, &found));
	unlock_elsewhere();
	assert_int_equal(pthread_join(thread, &refused), 0);
	assert_ptr_equal(refused, (void *)(uintptr_t)address);
	quota_cancel(&tentative);
	assert_int_equal(quota_used(0), 4 * MIB);
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

/* The caller closes the descriptor, of which another thread may have made a copy. */
UNIT_TEST(test_freed_while_exported)
{
	struct quota_block block;
	uint32_t serial;
	int fd = memfd_create("a descriptor", MFD_CLOEXEC);

	attach_anew(LIMIT);
	assert_true(fd >= 0);
	allocate(BASE, 8 * MIB);
	block = known(BASE);
	serial = begin_export(BASE);
	release(BASE);
	assert_false(quota_export_end_fd(serial, &block, fd));
	assert_false(quota_exports_look());
	assert_int_equal(quota_used(0), 8 * MIB);
	close(fd);
	assert_true(quota_exports_look());
	assert_int_equal(quota_used(0), 0);
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
	attach_anew(LIMIT);
	make_context(1);
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

/* The context of an exported block ends. Meanwhile the driver gives the block's place to a block of
 * another context. */
static void replace_block_of_ending_context(void)
{
	struct quota_reservation allocation;
	struct block other = block_at(BASE, 4 * MIB, false);

	quota_ending_begin();
	quota_context_ending(1);
	other.context = 2;
	assert_int_equal(quota_reserve(0, false, 4 * MIB, &allocation), 0);
	assert_int_equal(quota_settle(&allocation, &other), 0);
	quota_context_end(1);
	quota_context_ending(0);
	quota_ending_end();
	assert_int_equal(data(), 4 * MIB);
	release(BASE);
	assert_int_equal(data(), 0);
}

UNIT_TEST(test_context_ends_and_block_is_replaced)
{
	attach_anew(LIMIT);
	make_context(1);
	allocate(BASE, 8 * MIB);
	export(BASE);
	replace_block_of_ending_context();
}

/* Another process keeps the first block, and is charged for all of it. */
UNIT_TEST(test_context_ends_and_imported_block_is_replaced)
{
	attach_anew(LIMIT);
	make_context(1);
	allocate(BASE, 8 * MIB);
	export(BASE);
	lock_elsewhere();
	region_unlock(&holder);
	assert_int_equal(import_elsewhere(), 8 * MIB);
	replace_block_of_ending_context();
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
