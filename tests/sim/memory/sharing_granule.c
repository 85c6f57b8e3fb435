/* A block that is opened elsewhere keeps its granule, and other memory of its owner stays charged.
 */
#include "sharing_fixture.h"

static uint64_t get_ipc(uint64_t i)
{
	CHECK_OK(cuIpcGetMemHandle(&board->ipc[i], addresses[i]));
	return 0;
}

static uint64_t open_ipc(uint64_t i)
{
	CHECK_OK(cuIpcOpenMemHandle_v2(&addresses[i], board->ipc[i], 1));
	return 0;
}

static uint64_t close_ipc(uint64_t i)
{
	CHECK_OK(cuIpcCloseMemHandle(addresses[i]));
	return 0;
}

/* Two blocks share a granule. The one that another process has open is freed first. */
TEST(opened_block_is_freed_first)
{
	struct member a, b;

	begin();
	a = actor();
	b = actor();
	order(&a, allocate, 0);
	order(&a, allocate_small, 1);
	order(&a, allocate_small, 2);
	order(&a, get_ipc, 1);
	order(&b, open_ipc, 1);
	order(&a, give_back_address, 1);
	CHECK_AT_MOST(2 * CHARGE + SIZE + GRANULE, ledger_used(0));
	order(&a, give_back_address, 2);
	order(&a, tidy, 0);
	assert_held(2, SIZE + GRANULE);
	assert_charged(&a, SIZE, 0);
	assert_charged(&b, GRANULE, 0);
	order(&b, close_ipc, 1);
	assert_held(2, SIZE);
	order(&a, give_back_address, 0);
	assert_held(2, 0);
	dismiss(&a);
	dismiss(&b);
}
