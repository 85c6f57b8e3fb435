/* CUDA IPC: memory that another process opens is charged as sharing.c says, once in a slice. */
#include "sharing_fixture.h"

/* -- steps ------------------------------------------------------------------------------------ */

static uint64_t ipc_get(uint64_t i)
{
	CHECK_CUDA(cuIpcGetMemHandle(&board->ipc[i], addresses[i] + MIB), CUDA_SUCCESS);
	return 0;
}

static uint64_t ipc_get_small(uint64_t i)
{
	CHECK_CUDA(cuIpcGetMemHandle(&board->ipc[0], addresses[i]), CUDA_SUCCESS);
	return 0;
}

static uint64_t allocate_and_get(uint64_t i)
{
	allocate(i);
	return ipc_get(i);
}

/* Opens the handle 0 of the board, by either version, as the i-th. */
static uint64_t ipc_try(uint64_t i)
{
	CUdeviceptr address = UNTOUCHED;
	CUresult result;

	if (i % 2)
		result = cuIpcOpenMemHandle(&address, board->ipc[0], 1);
	else
		result = cuIpcOpenMemHandle_v2(&address, board->ipc[0], 1);
	if (result == CUDA_SUCCESS)
		addresses[i] = address;
	else
		CHECK_EQUAL(address, UNTOUCHED);
	return result;
}

static uint64_t ipc_open(uint64_t i)
{
	CHECK_CUDA(ipc_try(i), CUDA_SUCCESS);
	return 0;
}

static uint64_t ipc_close(uint64_t i)
{
	CHECK_CUDA(cuIpcCloseMemHandle(addresses[i]), CUDA_SUCCESS);
	CHECK_CUDA(cuIpcCloseMemHandle(addresses[i]), CUDA_ERROR_INVALID_VALUE);
	return 0;
}

/* -- scenes ----------------------------------------------------------------------------------- */

/* a has allocated it, b has opened it twice, as 0 and 1. */
static void open_twice(struct member *a, struct member *b)
{
	order(a, allocate_and_get, 0);
	assert_held(2, SIZE);
	order(b, ipc_open, 0);
	order(b, ipc_open, 1);
	assert_held(2, SIZE);
	assert_charged(a, SIZE, 0);
	assert_charged(b, 0, 0);
}

TEST(ipc_closed_first)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	CHECK_CUDA((order(&a, allocate_and_get, 0), order(&a, ipc_try, 1)),
		   CUDA_ERROR_INVALID_CONTEXT); /* it is its own */
	order(&a, give_back_address, 0);
	assert_held(2, 0);
	for (unsigned round = 0; round < 3; round++) {
		open_twice(&a, &b);
		order(&b, ipc_close, round % 2);
		assert_held(2, SIZE);
		order(&b, ipc_close, !(round % 2));
		assert_held(2, SIZE);
		assert_charged(&a, SIZE, 0);
		order(&a, give_back_address, 0);
		assert_held(2, 0);
	}
	open_twice(&a, &b);
	order(&b, context_reset, 0); /* closes both */
	assert_held(2, SIZE);
	order(&a, give_back_address, 0);
	assert_held(2, 0);
	open_twice(&a, &b);
	member_kill(&b);
	assert_held(1, SIZE);
	order(&a, give_back_address, 0);
	assert_held(1, 0);
	dismiss(&a);
}

TEST(ipc_freed_first)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	for (unsigned round = 0; round < 3; round++) {
		open_twice(&a, &b);
		order(&a, give_back_address, 0);
		assert_held(2, SIZE);
		assert_charged(&a, 0, 0);
		assert_charged(&b, SIZE, 0);
		order(&b, ipc_close, 1);
		assert_held(2, SIZE);
		order(&b, ipc_close, 0);
		assert_held(2, 0);
	}
	for (unsigned resets = 0; resets < 2; resets++) {
		open_twice(&a, &b);
		if (resets)
			order(&a, context_reset, 0);
		else
			order(&a, give_back_address, 0);
		assert_held(2, SIZE);
		order(&b, context_reset, 0);
		assert_held(2, 0);
	}
	dismiss(&a);
	dismiss(&b);
}

TEST(ipc_exporter_dies)
{
	struct member a, b;

	begin();
	b = actor();
	for (unsigned looks = 0; looks < 2; looks++) {
		a = actor();
		open_twice(&a, &b);
		member_kill(&a);
		if (looks) {
			order(&b, look, 0);
			CHECK_AT_MOST(outside_used(0), ledger_used(0));
		}
		ledger_reap();
		if (looks)
			order(&b, look, 0);
		assert_held(1, SIZE);
		assert_charged(&b, SIZE, 0);
		order(&b, ipc_close, 0);
		assert_held(1, SIZE);
		order(&b, ipc_close, 1);
		assert_held(1, 0);
	}
	dismiss(&b);
	assert_held(0, 0);
}

/* The quota is one for all: what is shared is not in the way twice. */
TEST(ipc_at_the_quota)
{
	struct member a, b;

	begin();
	env_set("CUDA_DEVICE_MEMORY_LIMIT", "1156m"); /* two contexts, and 100 MiB */
	a = actor();
	b = actor();
	open_twice(&a, &b);
	order(&a, give_back_address, 0);
	assert_held(2, SIZE);
	CHECK_CUDA(order(&a, ipc_try, 2), CUDA_ERROR_INVALID_CONTEXT);
	order(&b, ipc_close, 0);
	order(&b, ipc_close, 1);
	for (unsigned round = 0; round < 3; round++) {
		order(&a, allocate, 1);
		order(&a, give_back_address, 1);
	}
	assert_held(2, 0);
	dismiss(&a);
	dismiss(&b);
}

TEST(ipc_of_outsider)
{
	struct member a, b;

	begin();
	b = outsider("1g");
	a = actor();
	order(&a, allocate_and_get, 0);
	order(&b, ipc_open, 0);
	assert_outsider(&b, 0, SIZE);
	order(&b, ipc_open, 1);
	assert_outsider(&b, 0, 2 * SIZE); /* not known to be the same */
	order(&b, ipc_close, 0);
	assert_outsider(&b, 0, SIZE);
	order(&b, look, 0);
	assert_outsider(&b, 0, SIZE);
	order(&b, context_reset, 0);
	assert_outsider(&b, 0, 0);
	order(&b, ipc_open, 0);
	order(&b, ipc_close, 0);
	assert_outsider(&b, 0, 0);
	assert_charged(&a, SIZE, 0);
	order(&a, give_back_address, 0);
	CHECK_EQUAL(outside_used(0), 2 * FIGURE);
	dismiss(&a);
	dismiss(&b);
}

/* A block and its neighbour share a granule, and b has opened the block as 0. */
static void open_small(struct member *a, struct member *b)
{
	order(a, allocate_small, 1);
	order(a, allocate_small, 2);
	order(a, ipc_get_small, 1);
	order(b, ipc_open, 0);
	CHECK_EQUAL(outside_used(0), 2 * FIGURE + GRANULE);
}

/* It keeps the whole granule, whichever goes first. */
TEST(ipc_neighbours)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	for (unsigned first = 1; first < 3; first++) {
		open_small(&a, &b);
		order(&a, give_back_address, first);
		CHECK_EQUAL(outside_used(0), 2 * FIGURE + GRANULE);
		CHECK_AT_MOST(2 * CHARGE + GRANULE, ledger_used(0));
		order(&a, give_back_address, 3 - first);
		order(&a, tidy, 0);
		assert_held(2, GRANULE);
		assert_charged(&b, GRANULE, 0);
		order(&b, ipc_close, 0);
		assert_held(2, 0);
	}
	open_small(&a, &b);
	member_kill(&a);
	assert_held(1, GRANULE);
	order(&b, ipc_close, 0);
	assert_held(1, 0);
	dismiss(&b);
	assert_held(0, 0);
}

/* It does not fit: it is closed again, and refused as the driver refuses. */
TEST(ipc_too_big)
{
	struct member a, b;

	begin();
	b = outsider("580m"); /* a context and 52 MiB */
	a = actor();
	order(&a, allocate_and_get, 0);
	for (unsigned i = 0; i < 4; i++) {
		CHECK_CUDA(order(&b, ipc_try, i), CUDA_ERROR_OUT_OF_MEMORY);
		assert_outsider(&b, 0, 0);
	}
	CHECK_EQUAL(outside_of(0, a.pid), CONTEXT + SIZE);
	order(&a, give_back_address, 0);
	CHECK_EQUAL(outside_used(0), 2 * FIGURE); /* nobody has it open */
	dismiss(&a);
	dismiss(&b);
}
