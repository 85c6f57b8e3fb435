/* The granules that allocations occupy: what each takes and gives back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "blocks.h"
#include "size.h"
#include "sys.h"
#include "unit.h"

#define KIB  ((uint64_t)1024)
#define BASE ((uint64_t)0x7f0000000000) /* a granule begins there */

static uint64_t enter_in(uint64_t context, uint64_t address, uint64_t size_bytes)
{
	struct block block = {.address = address, .size_bytes = size_bytes, .context = context};
	uint64_t bytes = 1;

	assert_int_equal(blocks_enter(&block, &bytes), 0);
	return bytes;
}

static uint64_t enter(uint64_t address, uint64_t size_bytes)
{
	return enter_in(1, address, size_bytes);
}

static uint64_t leave(uint64_t address)
{
	struct block block;
	uint64_t bytes = 1;

	assert_true(blocks_remove(address, &block, &bytes));
	assert_int_equal(block.address, address);
	return bytes;
}

static int forget(void **state)
{
	(void)state;
	blocks_forked();
	return 0;
}

#undef UNIT_SET_UP
#undef UNIT_TEAR_DOWN
#define UNIT_SET_UP    NULL
#define UNIT_TEAR_DOWN forget

UNIT_TEST(test_granules_of)
{
	assert_int_equal(granules_of(0), 0);
	assert_int_equal(granules_of(1), 2 * MIB);
	assert_int_equal(granules_of(2 * MIB), 2 * MIB);
	assert_int_equal(granules_of(2 * MIB + 1), 4 * MIB);
}

/* As it was measured on a device. */
UNIT_TEST(test_measured)
{
	assert_int_equal(enter(BASE, 1), 2 * MIB);
	assert_int_equal(enter(BASE + 512, 4 * KIB), 0);
	assert_int_equal(enter(BASE + MIB, MIB), 0);
	assert_int_equal(enter(BASE + 16 * MIB, 2 * MIB + 1), 4 * MIB);
	assert_int_equal(enter(BASE + 32 * MIB, 100 * MIB), 100 * MIB);
	assert_int_equal(leave(BASE), 0);
	assert_int_equal(leave(BASE + 512), 0);
	assert_int_equal(leave(BASE + MIB), 2 * MIB);
	assert_int_equal(leave(BASE + 16 * MIB), 4 * MIB);
	assert_int_equal(leave(BASE + 32 * MIB), 100 * MIB);
}

/* A small one at the end of a big one, which goes first; and the other way about. */
UNIT_TEST(test_shared_tail)
{
	for (unsigned turn = 0; turn < 2; turn++) {
		assert_int_equal(enter(BASE, 7 * MIB), 8 * MIB);
		assert_int_equal(enter(BASE + 7 * MIB, KIB), 0);
		if (turn) {
			assert_int_equal(leave(BASE), 6 * MIB);
			assert_int_equal(leave(BASE + 7 * MIB), 2 * MIB);
		} else {
			assert_int_equal(leave(BASE + 7 * MIB), 0);
			assert_int_equal(leave(BASE), 8 * MIB);
		}
	}
}

/* One that begins in the middle of a granule and ends in the middle of another. */
UNIT_TEST(test_shared_head)
{
	assert_int_equal(enter(BASE + MIB, 2 * MIB), 4 * MIB);
	assert_int_equal(enter(BASE, KIB), 0);
	assert_int_equal(enter(BASE + 3 * MIB, 10 * MIB), 10 * MIB);
	assert_int_equal(leave(BASE + MIB), 0);
	assert_int_equal(leave(BASE), 2 * MIB);
	assert_int_equal(leave(BASE + 3 * MIB), 12 * MIB);
}

UNIT_TEST(test_unknown)
{
	struct block block = {.address = 77};
	uint64_t bytes = 77;

	assert_false(blocks_remove(BASE, &block, &bytes));
	enter(BASE, 6 * MIB);
	assert_false(blocks_remove(BASE + 2 * MIB, &block, &bytes)); /* inside: nothing begins */
	assert_false(blocks_remove(BASE + 6 * MIB, &block, &bytes));
	assert_false(blocks_remove(0, &block, &bytes));
	assert_false(blocks_remove(UINT64_MAX, &block, &bytes));
	assert_int_equal(block.address, 77);
	assert_int_equal(bytes, 77);
	assert_int_equal(leave(BASE), 6 * MIB);
	assert_false(blocks_remove(BASE, &block, &bytes));
}

/* The driver refused to free it: it goes back in, as it was. */
UNIT_TEST(test_put_back)
{
	struct block block;
	uint64_t bytes, taken;

	for (uint64_t size = KIB; size <= 64 * MIB; size *= 2) {
		enter(BASE, size);
		assert_true(blocks_remove(BASE, &block, &bytes));
		assert_int_equal(blocks_enter(&block, &taken), 0);
		assert_int_equal(taken, bytes);
		assert_int_equal(leave(BASE), granules_of(size));
	}
}

UNIT_TEST(test_what_is_kept)
{
	struct block in = {.address = BASE,
			   .size_bytes = 5 * MIB,
			   .context = 99,
			   .device = 3,
			   .managed = true};
	struct block out;
	uint64_t bytes;

	for (unsigned turn = 0; turn < 2; turn++) {
		in.size_bytes = turn ? KIB : 5 * MIB;
		assert_int_equal(blocks_enter(&in, &bytes), 0);
		assert_true(blocks_remove(BASE, &out, &bytes));
		assert_int_equal(out.size_bytes, turn ? 1 : 5 * MIB);
		assert_int_equal(out.context, 99);
		assert_int_equal(out.device, 3);
		assert_true(out.managed);
	}
}

static void enter_managed(uint64_t context, uint64_t address, uint64_t size_bytes)
{
	struct block block = {
		.address = address, .size_bytes = size_bytes, .context = context, .managed = true};
	uint64_t bytes;

	assert_int_equal(blocks_enter(&block, &bytes), 0);
}

UNIT_TEST(test_remove_context)
{
	uint64_t bytes, managed;
	struct block block;

	enter_in(1, BASE, 7 * MIB);
	enter_in(1, BASE + 7 * MIB, KIB);
	enter_in(2, BASE + 64 * MIB, 3 * MIB);
	enter_in(1, BASE + 128 * MIB, KIB);
	enter_managed(1, BASE + 256 * MIB, 5 * MIB);
	enter_managed(2, BASE + 512 * MIB, 1);
	blocks_remove_context(3, &bytes, &managed);
	assert_int_equal(bytes, 0);
	assert_int_equal(managed, 0);
	blocks_remove_context(1, &bytes, &managed);
	assert_int_equal(bytes, 10 * MIB);
	assert_int_equal(managed, 6 * MIB);
	assert_false(blocks_remove(BASE, &block, &bytes));
	assert_false(blocks_remove(BASE + 128 * MIB, &block, &bytes));
	blocks_remove_context(1, &bytes, &managed);
	assert_int_equal(bytes + managed, 0);
	assert_int_equal(leave(BASE + 64 * MIB), 4 * MIB);
	blocks_remove_context(2, &bytes, &managed);
	assert_int_equal(bytes, 0);
	assert_int_equal(managed, 2 * MIB);
}

/* -- against a model: each granule has a count ----------------------------------------------- */

#define GRANULES 256
#define LIVE     400

static unsigned counts[GRANULES];

static struct {
	uint64_t address, size_bytes;
} live[LIVE];

/* Counts the block in (by 1) or out (by -1); what the device gives or gets. */
static uint64_t model(uint64_t address, uint64_t size_bytes, int by)
{
	uint64_t changed = 0;

	for (uint64_t g = (address - BASE) / GRANULE_BYTES;
	     g <= (address + size_bytes - 1 - BASE) / GRANULE_BYTES; g++) {
		counts[g] += (unsigned)by;
		changed += counts[g] == (by > 0 ? 1u : 0u);
	}
	return changed * GRANULE_BYTES;
}

static bool overlaps(uint64_t address, uint64_t size_bytes)
{
	for (unsigned i = 0; i < LIVE; i++)
		if (live[i].size_bytes && address < live[i].address + live[i].size_bytes &&
		    live[i].address < address + size_bytes)
			return true;
	return false;
}

UNIT_TEST(test_model)
{
	const uint64_t end = GRANULES * GRANULE_BYTES;
	unsigned seed = 21, entered = 0;

	for (unsigned step = 0; step < 60000; step++) {
		unsigned i = (unsigned)rand_r(&seed) % LIVE;
		uint64_t size = 1 + (uint64_t)rand_r(&seed) % (step % 4 ? 200 * KIB : 9 * MIB);
		uint64_t address = BASE + (uint64_t)rand_r(&seed) % (end - size) / 512 * 512;

		if (live[i].size_bytes) {
			assert_int_equal(leave(live[i].address),
					 model(live[i].address, live[i].size_bytes, -1));
			live[i].size_bytes = 0;
		} else if (!overlaps(address, size)) {
			assert_int_equal(enter(address, size), model(address, size, 1));
			live[i].address = address;
			live[i].size_bytes = size;
			entered++;
		}
	}
	assert_true(entered > 5000);
	for (unsigned i = 0; i < LIVE; i++)
		if (live[i].size_bytes)
			assert_int_equal(leave(live[i].address),
					 model(live[i].address, live[i].size_bytes, -1));
	for (unsigned g = 0; g < GRANULES; g++)
		assert_int_equal(counts[g], 0);
}

/* -- no memory -------------------------------------------------------------------------------- */

static int maps_left;

static long few_maps(long number)
{
	return number == SYS_mmap && maps_left-- <= 0 ? -ENOMEM : 0;
}

/* Nothing is entered, not half a span either. */
UNIT_TEST(test_no_memory)
{
	struct block span = {.address = BASE, .size_bytes = 9 * MIB, .context = 1};
	uint64_t bytes = 77, managed;
	struct block removed;

	sys_fault = few_maps;
	for (int maps = 0; maps < 2; maps++) { /* the spans' table, then the granules' */
		maps_left = maps;
		assert_int_equal(blocks_enter(&span, &bytes), -ENOMEM);
		assert_int_equal(bytes, 77);
	}
	sys_fault = NULL;
	assert_false(blocks_remove(BASE, &removed, &bytes));
	blocks_remove_context(1, &bytes, &managed);
	assert_int_equal(bytes, 0);
	assert_int_equal(enter(BASE, 9 * MIB), 10 * MIB);
	assert_int_equal(leave(BASE), 10 * MIB);
}

/* There is room for the first granule of a span, and not for its last. */
UNIT_TEST(test_no_memory_for_the_end)
{
	struct block span = {.address = BASE, .size_bytes = 9 * MIB, .context = 1};
	uint64_t bytes = 77;
	unsigned before = 0;

	enter(BASE + GIB, 3 * MIB); /* both tables are there */
	do {
		sys_fault = few_maps;
		maps_left = 0;
		assert_true(++before < 1000);
		enter(BASE + 2 * GIB + before * GRANULE_BYTES, KIB);
		bytes = 77;
	} while (blocks_enter(&span, &bytes) == 0 && leave(BASE) == 10 * MIB);
	sys_fault = NULL;
	assert_int_equal(bytes, 77);
	assert_int_equal(enter(BASE, KIB), 2 * MIB); /* its first granule is not taken */
	assert_int_equal(enter(BASE + 8 * MIB, KIB), 2 * MIB);
}

/* -- leaving ---------------------------------------------------------------------------------- */

static bool is_found(uint64_t address)
{
	struct block block;
	uint64_t bytes;

	return blocks_find(address, &block, &bytes);
}

static struct block begin_to_leave(uint64_t address)
{
	struct block block = {.address = 0};
	uint64_t bytes;

	assert_true(blocks_leave(address, &block, &bytes));
	return block;
}

UNIT_TEST(test_leaving)
{
	struct block big, small;
	uint64_t bytes;

	enter(BASE, 8 * MIB);
	enter(BASE + 16 * MIB, KIB);
	enter(BASE + 16 * MIB + KIB, KIB);
	big = begin_to_leave(BASE);
	small = begin_to_leave(BASE + 16 * MIB);
	assert_false(is_found(BASE));
	assert_false(is_found(BASE + 16 * MIB));
	assert_true(is_found(BASE + 16 * MIB + KIB));    /* its neighbour in the granule */
	assert_int_equal(blocks_enter(&big, &bytes), 0); /* the driver has refused */
	assert_int_equal(blocks_enter(&small, &bytes), 0);
	blocks_left(&big, false);
	blocks_left(&small, false);
	assert_true(is_found(BASE));
	assert_true(is_found(BASE + 16 * MIB));
	leave(BASE);
	assert_false(is_found(BASE));
}

/* Two small blocks and their neighbours, in two contexts. */
UNIT_TEST(test_lingering)
{
	struct block first, second;
	uint64_t bytes, managed;

	for (uint64_t i = 0; i < 2; i++) {
		enter_in(1, BASE + i * KIB, KIB);
		enter_in(2, BASE + 64 * MIB + i * KIB, KIB);
	}
	first = begin_to_leave(BASE);
	second = begin_to_leave(BASE + 64 * MIB);
	blocks_left(&first, true);
	blocks_left(&second, true);
	assert_false(is_found(BASE));
	blocks_remove_context(1, &bytes, &managed);
	enter_in(3, BASE + KIB, KIB);
	assert_true(is_found(BASE)); /* as far as is known */
	assert_false(is_found(BASE + 64 * MIB));
	enter_in(2, BASE + 64 * MIB, KIB); /* the driver gives the address again */
	assert_true(is_found(BASE + 64 * MIB));
}

/* The driver gives the address to another block before the first free has returned. */
UNIT_TEST(test_reused_meanwhile)
{
	struct block first, second;

	enter(BASE + KIB, KIB);
	enter(BASE, KIB);
	first = begin_to_leave(BASE);
	enter(BASE, KIB);
	assert_true(is_found(BASE));
	second = begin_to_leave(BASE);
	assert_false(is_found(BASE));
	blocks_left(&second, false);
	enter(BASE, KIB);
	blocks_left(&first, true); /* it is gone: nothing lingers */
	assert_true(is_found(BASE));
}

UNIT_TEST(test_marks_are_forked)
{
	enter(BASE, KIB);
	enter(BASE + KIB, KIB);
	begin_to_leave(BASE);
	blocks_forked();
	enter(BASE + KIB, KIB);
	assert_true(is_found(BASE));
}

static long fail_maps(long number)
{
	return number == SYS_mmap ? -ENOMEM : 0;
}

/* Where a mark has no memory, every block may be the one. */
UNIT_TEST(test_unmarked)
{
	struct block block;

	enter(BASE, KIB);
	enter(BASE + KIB, KIB);
	enter(BASE + 64 * MIB, 4 * MIB);
	sys_fault = fail_maps;
	block = begin_to_leave(BASE);
	sys_fault = NULL;
	assert_false(is_found(BASE + KIB));
	assert_false(is_found(BASE + 64 * MIB));
	blocks_left(&block, false);
	assert_true(is_found(BASE + KIB));
}

/* A block that took more than is charged is found once it is settled. */
UNIT_TEST(test_unsettled)
{
	const struct block big = {.address = BASE, .size_bytes = 8 * MIB, .context = 1},
			   small = {.address = BASE + 64 * MIB, .size_bytes = KIB, .context = 1};
	struct block removed;
	uint64_t bytes;

	assert_int_equal(blocks_enter_charged(&big, 6 * MIB, &bytes), 0);
	assert_int_equal(bytes, 8 * MIB);
	assert_int_equal(blocks_enter_charged(&small, 0, &bytes), 0);
	assert_int_equal(bytes, 2 * MIB);
	assert_false(is_found(big.address));
	assert_false(is_found(small.address));
	blocks_settled(&big);
	assert_true(is_found(big.address));
	enter(small.address + KIB, KIB);
	assert_true(blocks_remove(small.address, &removed, &bytes));
	assert_false(is_found(small.address));
	blocks_left(&small, false);
	assert_true(is_found(small.address)); /* as far as is known */
}

UNIT_TEST(test_charged_is_settled)
{
	const struct block big = {.address = BASE, .size_bytes = 8 * MIB, .context = 1},
			   small = {.address = BASE + 64 * MIB, .size_bytes = KIB, .context = 1};
	uint64_t bytes;

	assert_int_equal(blocks_enter_charged(&big, 8 * MIB, &bytes), 0);
	assert_true(is_found(big.address));
	enter(small.address + KIB, KIB);
	assert_int_equal(blocks_enter_charged(&small, 0, &bytes), 0);
	assert_int_equal(bytes, 0);
	assert_true(is_found(small.address));
}

/* The driver gives the address of a block that is being freed to one that is settled later. */
UNIT_TEST(test_settled_meanwhile)
{
	const struct block block = {.address = BASE, .size_bytes = KIB, .context = 1};
	struct block first;
	uint64_t bytes;

	enter(BASE, KIB);
	first = begin_to_leave(BASE);
	assert_int_equal(blocks_enter_charged(&block, 0, &bytes), 0);
	assert_false(is_found(BASE));
	blocks_settled(&block);
	assert_true(is_found(BASE));
	blocks_left(&first, false);
	assert_true(is_found(BASE));
}

/* -- a context ends in the driver before it does in the accounts ------------------------------- */

static uint64_t end_context(uint64_t context)
{
	uint64_t bytes, managed;

	blocks_remove_context(context, &bytes, &managed);
	blocks_context_ending(0);
	assert_int_equal(managed, 0);
	return bytes;
}

/* The driver gives the places of its blocks to blocks of another context. */
UNIT_TEST(test_replaced)
{
	enter_in(1, BASE, 64 * MIB);
	enter_in(1, BASE + 128 * MIB, KIB);
	enter_in(1, BASE + 256 * MIB, 4 * MIB); /* nothing comes here */
	blocks_context_ending(1);
	assert_int_equal(enter_in(2, BASE, 32 * MIB), 32 * MIB);
	assert_int_equal(enter_in(2, BASE + 128 * MIB, KIB), 2 * MIB);
	assert_int_equal(end_context(1), 64 * MIB + 2 * MIB + 4 * MIB);
	assert_int_equal(leave(BASE), 32 * MIB);
	assert_int_equal(leave(BASE + 128 * MIB), 2 * MIB);
}

/* Several of its blocks shared the granule. */
UNIT_TEST(test_replaced_in_granule)
{
	enter_in(1, BASE, KIB);
	enter_in(1, BASE + KIB, KIB);
	blocks_context_ending(1);
	assert_int_equal(enter_in(2, BASE, KIB), 2 * MIB);
	assert_int_equal(end_context(1), 2 * MIB);
	assert_int_equal(leave(BASE), 2 * MIB);
}

/* The driver has refused to end the context. */
UNIT_TEST(test_not_ended)
{
	enter_in(1, BASE, KIB);
	blocks_context_ending(1);
	blocks_context_ending(0);
	assert_int_equal(enter_in(1, BASE + KIB, KIB), 0);
	assert_int_equal(end_context(1), 2 * MIB);
}
